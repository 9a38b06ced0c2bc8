"""Where records vote: all that one server sees of a whole batch is distributed the same for contributions of one sum.

As test_two_server_joint_view.py does for votes, with the same bound and the same rate of false alarms: shares, what a
seal would show if it were none, both attempts' messages and what a server works out of them are taken together, and
compared by the frequencies of their bits. Both servers' noise is zero, so that nothing but shares hides what a party
contributed. The same comparison is made of protocols broken on purpose, and must tell.
"""

from contextlib import suppress
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from coordinator.in_process import InProcessTransport
from protocols.crypto.field import plus
from protocols.errors import MalformedMessage
from protocols.labelling import guardian as guardian_module
from protocols.levels.two_server import aggregation as shared_votes
from protocols.levels.two_server import ballot as ballots
from protocols.levels.two_server import shared_sums
from protocols.levels.two_server.ballot import SharedBallot
from protocols.wire.messages import ConcealedVotes, decode_arrays, encode_arrays
from tests.contract.protocols.levels.two_server.test_two_server_joint_view import furthest
from tests.harness.guardian_attempts import World
from tests.harness.kept_messages import Breaking
from tests.harness.levels import SEALING_KEY, SEAT_KEYS, two_server
from tests.harness.record_votes import NAMES, UNITS, study_of
from tests.harness.seeded import seeded_source

COPIES, KINDS, CLASSES = 256, 2, 3
QUERIES = COPIES * KINDS
_SMALL = study_of(two_server(units=UNITS), quorum=2)
# Of patients: their sums are of any size, as those here are, where records' are whole votes in all cells together.
_VOTES = replace(_SMALL.votes, queries=QUERIES, population=100_000, partitions=())
STUDY = replace(_SMALL, classes=CLASSES, unit="patient", votes=_VOTES)
# Of each party, kind of query and class. Both add up to the same.
APART = np.array([[[900, 0, 0], [0, 0, 0]], [[0, 900, 0], [70, 0, 0]], [[0, 0, 900], [0, 70, 0]]])
MIXED = np.array([[[0, 900, 0], [70, 70, 0]], [[0, 0, 900], [0, 0, 0]], [[900, 0, 0], [0, 0, 0]]])
_RANDOM_PAIRS = 300
# Of the guardian's messages in a conversation: it stops before it answers.
_BEFORE_THE_ANSWER = 7


class Watched(Breaking):
    """A guardian's end that keeps what arrives and what is sent, as arrays."""

    def __init__(self, channel, left, kept, sent):
        super().__init__(channel, left)
        self.kept, self.sent = kept, sent

    def send(self, data):
        super().send(data)
        self.keep(self.sent, data)

    def recv(self, limit):
        data = super().recv(limit)
        self.keep(self.kept, data)
        return data

    @staticmethod
    def keep(where, data):
        with suppress(MalformedMessage):  # the check of sums has messages of its own
            where.append(decode_arrays(data[1:]))


def batch(contributions, *, party_seed=lambda at: at, between=lambda world: None):
    """(the coordinator's view, the guardian's) of one batch that is held twice: words, a row per copy."""
    replies, to_guardian, to_coordinator = {}, [], []

    def keep(name, reply):
        if isinstance(reply, ConcealedVotes):
            replies[name] = reply.arrays
        return reply

    tiled = np.tile(contributions, (1, COPIES, 1))
    world = World(study=STUDY, vote=lambda at, _: tiled[at], tamper=keep)
    for at, name in enumerate(NAMES):
        world.parties[name]._ballot = SharedBallot(STUDY, name, key=SEAT_KEYS[at], source=seeded_source(party_seed(at)))
    with pytest.MonkeyPatch.context() as silent:
        silent.setattr(shared_sums, "server_noise", lambda study, *_, queries: np.zeros((queries, CLASSES), int))
        for left in (_BEFORE_THE_ANSWER, 10**9):
            world.wrap = lambda channel, left=left: Watched(channel, left, to_guardian, to_coordinator)
            got = world.label()
            if left == _BEFORE_THE_ANSWER:
                assert got.stop.reason == "guardian_lost"
                between(world)
    digest = world.own.stored(0).digest
    world.close()
    about = {"key": SEALING_KEY, "study": STUDY.digest, "request": digest}
    sealed = [replies[name][0] for name in NAMES]
    seeds = [
        guardian_module.unseal(each.tobytes(), seat=name, **about)[0] for each, name in zip(sealed, NAMES, strict=True)
    ]
    proofs = shared_sums.proofs_of(STUDY, NAMES, np.arange(QUERIES))
    numbers = [replies[name][1] for name in NAMES]

    def sums(shares, *, leads):
        pairs = zip(proofs, shares, strict=True)
        return [each.sums(each.layout.parts(share).bits, leads=leads) for each, share in pairs]

    # What the coordinator would have if the seal were none: the last bytes before the tag are those of the seed.
    unsealed = [
        plus(own, shared_sums._expanded(seal[-32:-16], each, digest))
        for own, seal, each in zip(numbers, sealed, proofs, strict=True)
    ]
    expanded = [shared_sums._expanded(seed[0], each, digest) for seed, each in zip(seeds, proofs, strict=True)]
    words, masks = sums(numbers, leads=True), sums(expanded, leads=False)
    unsealed = sums(unsealed, leads=True)
    opened_to_guardian = [arrays[0] for arrays in to_guardian if len(arrays) == 1]
    opened_to_coordinator = [arrays[0] for arrays in to_coordinator if len(arrays) == 4]
    assert len(opened_to_guardian) == 2
    return rows([*words, *unsealed, *opened_to_coordinator]), rows([*masks, *opened_to_guardian])


def rows(words):
    """All bits of the words, of their differences, and of sums and differences of some at random."""
    held = [each.reshape(COPIES, -1).astype("<u4") for each in words]
    between = [one - other for one, other in combinations(held, 2)]
    several = [one - other - third for one, other in combinations(held, 2) for third in held]
    flat = np.concatenate([*held, *between], axis=1)
    left, right = np.random.default_rng(0).integers(0, flat.shape[1], (2, _RANDOM_PAIRS))
    everything = np.concatenate(
        [flat, *several, flat[:, left] + flat[:, right], flat[:, left] - flat[:, right]], axis=1
    )
    return np.unpackbits(np.ascontiguousarray(everything).view(np.uint8), axis=1).astype(bool)


def compared(**how):
    """{server: whether its view tells the two sets of contributions apart}."""
    seen = [
        batch(each, party_seed=lambda at, number=number: how.get("party_seed", lambda at: at)(at) + 100 * number,
              **{key: value for key, value in how.items() if key != "party_seed"})
        for number, each in enumerate((APART, MIXED))
    ]  # fmt: skip
    told = {}
    for at, server in enumerate(("coordinator", "guardian")):
        largest, allowed = furthest(seen[0][at], seen[1][at])
        told[server] = largest > allowed
    return told


def test_neither_server_can_tell_contributions_apart_by_all_that_it_sees_of_a_batch() -> None:
    assert APART.sum(axis=0).tolist() == MIXED.sum(axis=0).tolist()
    assert compared() == {"coordinator": False, "guardian": False}


def test_shares_under_a_mask_that_is_known_would_be_told_by_the_coordinator(monkeypatch) -> None:
    monkeypatch.setattr(shared_sums, "_expanded", lambda seed, proof, _: np.full(proof.layout.size, 5, "<u4"))
    assert compared() == {"coordinator": True, "guardian": False}


def test_parties_that_draw_the_same_seeds_would_be_told_by_the_coordinator() -> None:
    """Every share is uniform; the differences between parties are those of their contributions."""
    assert compared(party_seed=lambda at: 0) == {"coordinator": True, "guardian": False}


def test_seals_that_anyone_can_open_would_be_told_by_the_coordinator_alone(monkeypatch) -> None:
    monkeypatch.setattr(ballots, "seal", lambda share, **_: bytes(32) + encode_arrays(share) + bytes(16))
    monkeypatch.setattr(guardian_module, "unseal", lambda sealed, **_: decode_arrays(sealed[32:-16]))
    assert compared() == {"coordinator": True, "guardian": False}


def test_sums_of_two_sets_of_parties_under_the_same_noise_would_be_told_by_the_guardian(monkeypatch) -> None:
    """The difference of the coordinator's two shares is its share of what one party sent."""
    kept = {}

    def forgetful(ledger, request, words, *, own):
        kept[own] = words

    for module in (shared_votes, guardian_module):
        monkeypatch.setattr(module, "pin_share", forgetful)

    def without_one(world):
        digest = world.own.stored(0).digest
        for kind in ("submitted", "check voters", "check coin", "check opened proofs"):
            world.own.forget(digest, kind)
        for kind in ("submission", "check voters", "check coin", "check opened proofs"):
            world.guardians.forget(digest, kind)
        world.exchange = InProcessTransport(
            {name: world.parties[name].handle for name in NAMES}, absent=lambda _: frozenset({"b"})
        )

    assert compared(between=without_one)["guardian"]
