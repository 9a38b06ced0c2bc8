"""A batch of shared votes, what the two servers find of it, and every way in which one voter cheats."""

from dataclasses import replace

import numpy as np

from protocols.crypto.field import P, from_integers, plus
from protocols.levels.two_server.shares import CoordinatorShare, GuardianShare, share_votes
from protocols.levels.two_server.sketch import Ballots, coordinator_checks, guardian_checks
from tests.harness.seeded import seeded_source
from tests.harness.two_server_sides import converse

VOTERS, QUERIES, CLASSES, CHEAT = 5, 6, 4, 2
VOTES = np.random.default_rng(5).integers(0, CLASSES, (VOTERS, QUERIES))


def ballots(*, takes_part=None, abstention=False, context=b"batch", voters=VOTERS, queries=QUERIES, classes=CLASSES):
    everybody = np.ones((voters, queries), dtype=bool)
    return Ballots(everybody if takes_part is None else takes_part, classes, abstention, context)


def shared(votes=VOTES, *, classes=CLASSES, context=b"batch", seed=1):
    return share_votes(votes, classes=classes, context=context, source=seeded_source(seed))


def verdicts(coordinator, guardian, terms, seed=1):
    """What both servers find, which must be the same."""
    found = converse(
        lambda channel: coordinator_checks(
            channel, coordinator, terms, coin_seed=seeded_source(seed, 1)(32), pin=lambda coin: None
        ),
        lambda channel: guardian_checks(
            channel, guardian, terms, coin_seed=seeded_source(seed, 2)(32), pin=lambda coin: None
        ),
    )
    np.testing.assert_array_equal(*found)
    return found[0]


HALF = (P + 1) // 2


def with_votes(vector):
    """The cheat's vector in query 3 instead of its vote."""

    def change(coordinator, guardian):
        honest = np.eye(CLASSES, dtype=np.int64)[VOTES[CHEAT, 3]]
        votes = coordinator.votes.copy()
        votes[CHEAT, 3] = plus(votes[CHEAT, 3], from_integers(np.array(vector) - honest))
        return replace(coordinator, votes=votes), guardian

    return change


def with_squares(amount, queries=slice(None)):
    def change(coordinator, guardian):
        squares = coordinator.squares.copy()
        squares[CHEAT, queries] = plus(squares[CHEAT, queries], np.full(1, amount, dtype=np.uint32))
        return replace(coordinator, squares=squares), guardian

    return change


def with_other_seed(coordinator, guardian):
    seeds = coordinator.seeds.copy()
    seeds[CHEAT, 15] ^= 128
    return replace(coordinator, seeds=seeds), guardian


def with_guardians_seed(coordinator, guardian):
    seeds = guardian.seeds.copy()
    seeds[CHEAT, 0] ^= 1
    return coordinator, replace(guardian, seeds=seeds)


def with_replay_of_another_batch(coordinator, guardian):
    """Both shares are those of an earlier batch."""
    old, old_seeds = shared(context=b"before", seed=9)
    votes, squares, seeds = (array.copy() for array in coordinator.arrays())
    masks = guardian.seeds.copy()
    votes[CHEAT], squares[CHEAT], seeds[CHEAT] = old.votes[CHEAT], old.squares[CHEAT], old.seeds[CHEAT]
    masks[CHEAT] = old_seeds.seeds[CHEAT]
    return CoordinatorShare(votes, squares, seeds), GuardianShare(masks)


def with_replay_of_one_share(coordinator, guardian):
    """The coordinator's share of the same votes, from other randomness."""
    other = shared(seed=9)[0]
    votes, squares, seeds = (array.copy() for array in coordinator.arrays())
    votes[CHEAT], squares[CHEAT], seeds[CHEAT] = other.votes[CHEAT], other.squares[CHEAT], other.seeds[CHEAT]
    return CoordinatorShare(votes, squares, seeds), guardian


def with_queries_swapped(coordinator, guardian):
    votes = coordinator.votes.copy()
    votes[CHEAT, [0, 1]] = votes[CHEAT, [1, 0]]
    return replace(coordinator, votes=votes), guardian


CHEATS = {
    "1,000 votes for one class": with_votes([0, 1000, 0, 0]),
    "two votes for one class": with_votes([0, 0, 2, 0]),
    "two-hot": with_votes([1, 1, 0, 0]),
    "all-hot": with_votes([1, 1, 1, 1]),
    "a negative vote": with_votes([0, 0, 0, -1]),
    "a vote taken from another class": with_votes([2, -1, 0, 0]),
    "sum one, not one-hot": with_votes([1, 1, -1, 0]),
    "two half votes": with_votes([HALF, HALF, 0, 0]),
    "half a vote": with_votes([0, HALF, 0, 0]),
    "an imaginary vote": with_votes([0, 0, 0, pow(5, (P - 1) // 4, P)]),
    "a malformed square": with_squares(1),
    "a malformed square of one query": with_squares(P - 1, queries=2),
    "two votes with a square moved to match": lambda c, g: with_squares(P - 2)(*with_votes([2, 0, 0, 0])(c, g)),
    "other points": with_other_seed,
    "another mask": with_guardians_seed,
    "a replay of another batch": with_replay_of_another_batch,
    "a replay of one share": with_replay_of_one_share,
    "shares of two queries swapped": with_queries_swapped,
}
