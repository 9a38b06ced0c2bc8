"""The guardian in faults: nothing charged twice, nothing released twice, noise never drawn again, cheats named."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.in_process import InProcessTransport
from party.party import Party
from protocols.crypto.channel import pair
from protocols.errors import ChannelClosed, ConclaveError, InvalidInput, MalformedMessage, Refused
from protocols.labelling.coordinator import Coordinator
from protocols.ledger.audit_log import EMPTY, Head
from protocols.ledger.ledger import Ledger
from protocols.levels.guardian import Guardian
from protocols.levels.two_server.aggregation import SharedAggregation, SharedBallot
from protocols.levels.two_server.conversation import Submission, check_outcome, outcome_statement, seal, send, unseal
from protocols.study.queries import QueryBatch
from protocols.wire.messages import HiddenVotes, Outcome, Refusal, VoteRequest
from tests.harness.levels import SEALING_KEY, SIGNING_KEY, GuardianHere, lattice_study, rng_votes, two_server
from tests.harness.seeded import seeded_source

STUDY = lattice_study(two_server(), batch_limit=40)
NAMES = [seat.party for seat in STUDY.roster]
VOTES = rng_votes(6, 1, 40, 5, 3)
POOL = np.zeros((40, 2), np.float32)


class Breaking:
    """A channel that is gone after so many messages, sent and received."""

    def __init__(self, channel, left):
        self.channel, self.left = channel, left

    def _step(self):
        self.left -= 1
        if self.left < 0:
            raise ChannelClosed("cut")

    def send(self, data):
        self._step()
        self.channel.send(data)

    def recv(self, limit):
        self._step()
        return self.channel.recv(limit)


class World:
    """Six parties, a coordinator and a guardian in one process; seeds say what noise there is."""

    def __init__(self, study=STUDY, tamper=lambda name, reply: reply):
        self.study = study
        self.ledgers = {name: Ledger(":memory:") for name in NAMES}
        self.own, self.guardians = Ledger(":memory:"), Ledger(":memory:")
        self.parties = {
            name: Party(
                name,
                study=study,
                ledger=self.ledgers[name],
                voter=lambda batch, i=i: VOTES[i][:, batch.ids],
                coins_from=None,
                ballot=SharedBallot(study, name, source=seeded_source(i)),
            )
            for i, name in enumerate(NAMES)
        }
        handlers = {name: lambda request, name=name: tamper(name, self.parties[name].handle(request)) for name in NAMES}
        self.exchange = InProcessTransport(handlers)
        self.wrap = lambda channel: channel

    def close(self):
        for ledger in (*self.ledgers.values(), self.own, self.guardians):
            ledger.close()

    def label(self, *, source=7):
        """One run of a fresh coordinator and a fresh guardian on the same ledgers."""
        self.here = GuardianHere(self.study, self.guardians, seeded_source(source, 1), wrap=lambda c: self.wrap(c))
        coordinator = Coordinator(
            self.study,
            ledger=self.own,
            aggregation=SharedAggregation(self.here.dial, source=seeded_source(source)),
            exchange=self.exchange,
            run=b"run",
        )
        return coordinator.label(POOL)

    def spent(self):
        """Of everybody, by whoever keeps it."""
        return [[ledger.balance(name).spent for name in NAMES] for ledger in (self.own, self.guardians)] + [
            [self.ledgers[name].balance(name).spent for name in NAMES]
        ]


@pytest.fixture
def world():
    made = World()
    yield made
    made.close()


def messages_of_a_batch():
    made = World()
    counted = []

    def count(channel):
        breaking = Breaking(channel, 10**9)
        counted.append(breaking)
        return breaking

    made.wrap = count
    result = made.label()
    made.close()
    return 10**9 - counted[0].left, result


MESSAGES, UNBROKEN = messages_of_a_batch()


@pytest.mark.parametrize("cut", range(MESSAGES))
def test_a_guardian_that_stops_at_any_message_and_starts_again_gives_the_labels_that_were_under_way(cut):
    made = World()
    made.wrap = lambda channel: Breaking(channel, cut)
    first = made.label()
    made.wrap = lambda channel: channel
    # Another source: what decides labels was drawn, and kept, before the stop, or was not drawn yet.
    again = made.label() if cut == 0 else made.label(source=8)
    assert first.stop.reason == "guardian_lost" or cut == MESSAGES
    size = UNBROKEN.batches[0][0]
    if cut > 0:
        np.testing.assert_array_equal(again.labels[:size], UNBROKEN.labels[:size])
    own, guardians, parties = made.spent()
    assert own == guardians == parties == again.spent.tolist()
    made.close()


def test_a_guardian_without_its_ledger_is_not_believed(world):
    world.wrap = lambda channel: Breaking(channel, 6)
    assert world.label().stop.reason == "guardian_lost"
    world.guardians.close()
    world.guardians = Ledger(":memory:")
    world.wrap = lambda channel: channel
    with pytest.raises(Refused, match="ledger_rolled_back"):
        world.label()
    assert isinstance(world.here.faults[0], Refused)


def test_the_same_batch_with_other_shares_is_refused_by_the_guardian(world):
    world.wrap = lambda channel: Breaking(channel, 12)
    world.label()
    digest = world.own.stored(0).digest
    world.own.forget(digest, "submitted")
    world.exchange = InProcessTransport(
        {name: world.parties[name].handle for name in NAMES}, absent=lambda _: frozenset({"p5"})
    )
    world.wrap = lambda channel: channel
    with pytest.raises(Refused, match="other_submission"):
        world.label()


def replaced(change):
    """A world in which p2's reply is changed by `change(arrays)`."""

    def tamper(name, reply):
        if name != "p2" or not isinstance(reply, HiddenVotes):
            return reply
        return HiddenVotes(reply.batch_digest, change(reply.arrays))

    return World(tamper=tamper)


def one_more(arrays):
    shares = arrays[1].copy()
    shares[0, 0, 1] = (shares[0, 0, 1] + 1) % (2**31 - 1)
    return (arrays[0], shares, *arrays[2:])


def flipped_seal(arrays):
    sealed = arrays[0].copy()
    sealed[40] ^= 1
    return (sealed, *arrays[1:])


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (one_more, "bad_votes"),
        (flipped_seal, "bad_seal"),
        (lambda arrays: (arrays[0][:20], *arrays[1:]), "bad_seal"),
        (lambda arrays: (arrays[0], arrays[1][:, :-1], *arrays[2:]), "bad_votes"),
        (lambda arrays: (arrays[0], arrays[1].astype("<i8"), *arrays[2:]), "bad_votes"),
        (lambda arrays: arrays[:2], "bad_votes"),
        (lambda arrays: (), "bad_votes"),
    ],
)
def test_a_party_that_sends_anything_but_one_vote_is_named_and_the_rest_goes_on(change, code):
    made = replaced(change)
    got = made.label()
    assert got.refusals == {"p2": code}
    assert (got.labels >= 0).any()
    own, guardians, _ = made.spent()
    assert own == guardians
    assert own[2] == 0
    made.close()


def test_shares_of_another_seat_are_refused():
    taken = {}

    def swap(name, reply):
        if isinstance(reply, HiddenVotes):
            taken[name] = reply
            return taken["p1"] if name == "p2" else reply
        return reply

    made = World(tamper=swap)
    assert made.label().refusals == {"p2": "bad_seal"}
    made.close()


def test_below_the_quorum_nothing_is_released_and_the_batch_may_be_submitted_again():
    tampers = [flipped_seal]

    def tamper(name, reply):
        if name == "p2" and tampers and isinstance(reply, HiddenVotes):
            return HiddenVotes(reply.batch_digest, tampers[0](reply.arrays))
        return reply

    made = World(study=replace(STUDY, quorum=6), tamper=tamper)
    got = made.label()
    assert got.stop.reason == "quorum_lost"
    assert got.refusals == {"p2": "bad_seal"}
    tampers.clear()
    assert (made.label().labels >= 0).any()
    made.close()


def test_a_party_settles_on_no_outcome_without_the_guardians_signature(world):
    request = VoteRequest(STUDY.digest, b"run", QueryBatch(0, np.arange(5), POOL[:5]))
    assert isinstance(world.parties["p0"].handle(request), HiddenVotes)
    reserved = world.ledgers["p0"].balance("p0").spent
    answered = np.zeros(5, dtype=bool)
    stranger = Ed25519PrivateKey.generate()
    forged = stranger.sign(outcome_statement(STUDY.digest, request.digest, answered))
    other = SIGNING_KEY.sign(outcome_statement(STUDY.digest, request.digest, ~answered))
    for signature in (b"", bytes(64), forged, other):
        reply = world.parties["p0"].handle(Outcome(STUDY.digest, request.digest, answered, signature))
        assert isinstance(reply, Refusal)
        assert reply.code == "unsigned_outcome"
    assert world.ledgers["p0"].balance("p0").spent == reserved
    right = SIGNING_KEY.sign(outcome_statement(STUDY.digest, request.digest, answered))
    believed = Outcome(STUDY.digest, request.digest, answered, right)
    check_outcome(believed, key=SIGNING_KEY.public_key().public_bytes_raw())
    world.parties["p0"].handle(believed)
    assert world.ledgers["p0"].balance("p0").spent < reserved


def test_a_share_opens_for_its_own_seat_request_and_key_alone():
    public = SEALING_KEY.public_key().public_bytes_raw()
    sealed = seal((np.arange(3),), key=public, study=bytes(32), request=bytes(32), seat="p0")
    about = {"key": SEALING_KEY, "study": bytes(32), "request": bytes(32), "seat": "p0"}
    np.testing.assert_array_equal(unseal(sealed, **about)[0], np.arange(3))
    for other in ({"seat": "p1"}, {"request": bytes(31) + b"\1"}, {"study": bytes(31) + b"\1"}):
        with pytest.raises(MalformedMessage, match="not sealed to this"):
            unseal(sealed, **(about | other))


def test_keys_that_are_not_the_studys_are_refused():
    with pytest.raises(InvalidInput, match="keys are not those of study"):
        Guardian(
            STUDY,
            ledger=Ledger(":memory:"),
            sealing_key=SEALING_KEY,
            signing_key=Ed25519PrivateKey.generate(),
            source=seeded_source(1),
        )


def test_a_teacher_that_abstains_where_the_study_does_not_allow_it_is_refused(world):
    world.parties["p0"]._voter = lambda batch: np.full((1, len(batch.ids)), -1)
    request = VoteRequest(STUDY.digest, b"run", QueryBatch(0, np.arange(5), POOL[:5]))
    told = []
    world.parties["p0"]._on_failure = told.append
    refusal = world.parties["p0"].handle(request)
    assert refusal.code == "could_not_vote"
    assert "abstain" not in refusal.reason
    assert "abstains" in told[0]
    assert world.ledgers["p0"].balance("p0").spent == 0


def test_logs_hold_no_label_share_mask_or_seed(world):
    got = world.label()
    allowed = {"event", "time_ns", "batch", "request", "accounts", "total", "amounts", "code"}
    for ledger in (world.own, world.guardians, *world.ledgers.values()):
        for entry in ledger.log.entries():
            assert set(entry.fields) <= allowed
    assert b"labels" not in json.dumps([entry.fields for entry in world.own.log.entries()]).encode()
    assert (got.labels >= 0).any()


def submission(**changes):
    values = {
        "study": STUDY.digest,
        "request": bytes(32),
        "number": 0,
        "second_round": False,
        "ids": np.arange(5),
        "members": np.arange(6),
        "seats": np.arange(6),
        "sealed": tuple(b"sealed" for _ in range(6)),
        "own": EMPTY,
        "seen": EMPTY,
    }
    return Submission(**(values | changes))


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"study": bytes(32)}, "unknown_study"),
        ({"ids": np.arange(30, 50)}, "query_limit"),
        ({"members": np.arange(8)}, "query_limit"),
        ({"seats": np.array([0, 0, 1, 2, 3, 4])}, "seats repeat"),
        ({"ids": np.array([3, 2])}, "ids repeat"),
        ({"members": np.arange(3)}, "was not asked"),
        ({"number": -1}, "number is -1"),
        ({"own": Head(2**63, bytes(32))}, "count is 9223372036854775808"),
        ({"seen": Head(2**64 - 1, bytes(32))}, "count is"),
    ],
)
def test_a_submission_that_cannot_be_is_refused_before_anything_is_charged(world, changes, fault):
    guardian = GuardianHere(STUDY, world.guardians, seeded_source(1)).guardian
    here, there = pair(wait_s=2.0)
    send(here, submission(**changes).arrays())
    with pytest.raises((Refused, MalformedMessage), match=fault):
        guardian.serve(there)
    assert here.recv(1000)[0] > 0
    assert all(balance.spent == 0 for balance in world.guardians.balances().values())


@settings(deadline=None, max_examples=60)
@given(st.lists(st.binary(max_size=400), min_size=1, max_size=3))
def test_arbitrary_bytes_end_a_conversation_and_charge_nothing(messages):
    with Ledger(":memory:") as ledger:
        guardian = GuardianHere(STUDY, ledger, seeded_source(1)).guardian
        here, there = pair(wait_s=0.05)
        for message in messages:
            here.send(message)
        with pytest.raises(ConclaveError):
            guardian.serve(there)
        assert all(balance.spent == 0 for balance in ledger.balances().values())


class Recorded:
    """A guardian's end that keeps what arrives."""

    def __init__(self, channel, kept):
        self.channel, self.kept = channel, kept

    def send(self, data):
        self.channel.send(data)

    def recv(self, limit):
        self.kept.append(self.channel.recv(limit))
        return self.kept[-1]


def test_what_the_guardian_sees_of_the_votes_is_the_same_in_every_attempt(world):
    attempts = []
    for cut in (6, 8, 10, None):
        kept = []
        attempts.append(kept)
        world.wrap = lambda channel, cut=cut, kept=kept: Recorded(
            channel if cut is None else Breaking(channel, cut), kept
        )
        world.label(source=10 + len(attempts))
    # Submission, commitment, number, elements: heads in the first differ, the rest is that of the first attempt.
    whole = attempts[-1]
    for kept in attempts[:-1]:
        assert len(kept) >= 3
        assert kept[1:4] == whole[1 : len(kept[1:4]) + 1]


def test_a_coordinator_that_comes_with_another_coin_is_refused(world):
    world.wrap = lambda channel: Breaking(channel, 12)
    assert world.label().stop.reason == "guardian_lost"
    digest = world.own.stored(0).digest
    assert world.guardians.noted(digest, "coin") is not None
    for kind in ("coin_seed", "coin"):
        world.own.forget(digest, kind)
    world.wrap = lambda channel: channel
    assert world.label(source=9).stop.reason == "guardian_lost"
    assert "other_coin" in str(world.here.faults[0])


def test_before_labels_are_computed_other_shares_may_take_the_place_of_the_first(world):
    world.exchange = InProcessTransport(
        {name: world.parties[name].handle for name in NAMES}, absent=lambda _: frozenset({"p5"})
    )
    world.wrap = lambda channel: Breaking(channel, 4)
    assert world.label().stop.reason == "guardian_lost"
    world.own.forget(world.own.stored(0).digest, "submitted")
    world.exchange = InProcessTransport({name: world.parties[name].handle for name in NAMES})
    world.wrap = lambda channel: channel
    got = world.label()
    assert (got.labels >= 0).any()
    own, guardians, parties = world.spent()
    assert own == guardians == parties


def test_a_batch_that_was_reserved_for_less_is_refused(world):
    guardian = GuardianHere(STUDY, world.guardians, seeded_source(1)).guardian
    for changes, fault in (
        ({"ids": np.arange(1), "members": np.arange(1), "seats": np.arange(1), "sealed": (b"broken",)}, None),
        ({}, "other_submission"),
    ):
        here, there = pair(wait_s=2.0)
        send(here, submission(**changes).arrays())
        if fault is None:
            guardian.serve(there)  # below the quorum
        else:
            with pytest.raises(Refused, match=fault):
                guardian.serve(there)


def test_labels_of_one_batch_are_computed_so_often_and_no_more(world):
    world.wrap = lambda channel: Breaking(channel, 12)
    for _ in range(16):
        assert world.label().stop.reason == "guardian_lost"
    world.wrap = lambda channel: channel
    with pytest.raises(Refused, match="too_many_attempts"):
        world.label()
