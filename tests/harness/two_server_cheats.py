"""A batch of shared votes, what the two servers find of it, and every way in which one voter cheats."""

from dataclasses import replace

import numpy as np

from protocols.crypto.field import P, from_integers, minus, plus, times
from protocols.levels.two_server.keyed_shares import KeyedShares, weighted_sums
from protocols.levels.two_server.shares import CoordinatorShare, GuardianShare, share_votes, vote_keys
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
            channel, coordinator, terms, secret=seeded_source(seed, 1)(32), pin=lambda step, value: None
        ),
        lambda channel: guardian_checks(
            channel, guardian, terms, secret=seeded_source(seed, 2)(32), pin=lambda step, value: None
        ),
    )
    np.testing.assert_array_equal(*found)
    return found[0]


def sums_of(coordinator, guardian, terms, weights):
    """The weighted sums of both servers, modulo p. weights: [voters, queries]."""
    shares = KeyedShares.of_coordinator(coordinator, terms), KeyedShares.of_guardian(guardian, terms)
    return plus(*(weighted_sums(each, weights) for each in shares))


HALF = (P + 1) // 2


def with_votes(vector):
    """The cheat's vector in query 3 instead of its vote."""

    def change(coordinator, guardian):
        honest = np.eye(CLASSES, dtype=np.int64)[VOTES[CHEAT, 3]]
        votes = coordinator.votes.copy()
        votes[CHEAT, 3] = plus(votes[CHEAT, 3], from_integers(np.array(vector) - honest))
        return replace(coordinator, votes=votes), guardian

    return change


def with_moved(what, amount, at=...):
    """The cheat's share of something moved: by default all of it."""

    def change(coordinator, guardian):
        values = getattr(coordinator, what).copy()
        values[CHEAT][at] = plus(values[CHEAT][at], np.array(amount, dtype=np.uint32))
        return replace(coordinator, **{what: values}), guardian

    return change


def with_vector_and_key(vector):
    """As with_votes, and the products with the keys are those of the vector: a cheat who follows the format."""

    def change(coordinator, guardian):
        keys = vote_keys(coordinator, guardian, queries=QUERIES, context=b"batch")[CHEAT, :, 3]
        moved = from_integers(np.array(vector) - np.eye(CLASSES, dtype=np.int64)[VOTES[CHEAT, 3]])
        keyed = coordinator.keyed.copy()
        keyed[CHEAT, :, 3] = plus(keyed[CHEAT, :, 3], times(keys[:, None], moved))
        return with_votes(vector)(replace(coordinator, keyed=keyed), guardian)

    return change


def with_vote_of_another_key(coordinator, guardian):
    """A single vote whose products are with other keys."""
    other = shared(seed=9)
    keys = (vote_keys(*shares, queries=QUERIES, context=b"batch")[CHEAT] for shares in (other, (coordinator, guardian)))
    difference = minus(*keys)
    one_hot = np.eye(CLASSES, dtype=np.uint32)[VOTES[CHEAT]]
    keyed = coordinator.keyed.copy()
    keyed[CHEAT] = plus(keyed[CHEAT], one_hot * difference[..., None])
    return replace(coordinator, keyed=keyed), guardian


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
    masks = guardian.seeds.copy()
    masks[CHEAT] = old_seeds.seeds[CHEAT]
    return _with_all_of(old, coordinator), GuardianShare(masks)


def with_replay_of_one_share(coordinator, guardian):
    """The coordinator's share of the same votes, from other randomness."""
    return _with_all_of(shared(seed=9)[0], coordinator), guardian


def _with_all_of(other, coordinator):
    arrays = [array.copy() for array in coordinator.arrays()]
    for array, theirs in zip(arrays, other.arrays(), strict=True):
        array[CHEAT] = theirs[CHEAT]
    return CoordinatorShare(*arrays)


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
    "two-hot with its key": with_vector_and_key([1, 1, 0, 0]),
    "two votes with their key": with_vector_and_key([0, 2, 0, 0]),
    "a negative vote with its key": with_vector_and_key([0, -1, 0, 0]),
    "sum one, not one-hot, with its key": with_vector_and_key([1, 1, -1, 0]),
    "half a vote twice with its key": with_vector_and_key([HALF, 0, HALF, 0]),
    "another key": with_vote_of_another_key,
    "a moved product with the key": with_moved("keyed", 1, (1, slice(2, 3), 0)),
    "moved constants": with_moved("constants", 1),
    "a moved constant of one query": with_moved("constants", P - 1, (0, 2)),
    "two votes with constants moved to match": lambda c, g: with_moved("constants", P - 2, (slice(None), 3))(
        *with_vector_and_key([2, 0, 0, 0])(c, g)
    ),
    "moved products of the factors": with_moved("products", 5),
    "two-hot with products of the factors moved": lambda c, g: with_moved("products", P - 3)(
        *with_vector_and_key([1, 0, 0, 1])(c, g)
    ),
    "other points": with_other_seed,
    "another mask": with_guardians_seed,
    "a replay of another batch": with_replay_of_another_batch,
    "a replay of one share": with_replay_of_one_share,
    "shares of two queries swapped": with_queries_swapped,
}
