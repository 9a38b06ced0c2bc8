"""What a guardian takes from a party and a coordinator: submissions, sealed shares, and what it signs."""

import json
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.crypto.channel import pair
from protocols.errors import ConclaveError, InvalidInput, MalformedMessage, Refused
from protocols.labelling.guardian import Guardian
from protocols.ledger.audit_log import EMPTY, Head
from protocols.ledger.ledger import Ledger
from protocols.levels.two_server.conversation import Submission, seal, send_arrays, unseal
from protocols.study.queries import QueryBatch
from protocols.wire.messages import ConcealedVotes, Outcome, Refusal, VoteRequest
from tests.harness.guardian_attempts import POOL, STUDY, World
from tests.harness.levels import SEALING_KEY, GuardianHere
from tests.harness.refusals import refuses
from tests.harness.seeded import seeded_source
from tests.harness.signed import told


def replaced(change):
    """A world in which p2's reply is changed by `change(arrays)`."""

    def tamper(name, reply):
        if name != "p2" or not isinstance(reply, ConcealedVotes):
            return reply
        return ConcealedVotes(reply.batch_digest, change(reply.arrays))

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
        if isinstance(reply, ConcealedVotes):
            taken[name] = reply
            return taken["p1"] if name == "p2" else reply
        return reply

    made = World(tamper=swap)
    assert made.label().refusals == {"p2": "bad_seal"}
    made.close()


def test_below_the_quorum_nothing_is_released_and_the_batch_may_be_submitted_again():
    tampers = [flipped_seal]

    def tamper(name, reply):
        if name == "p2" and tampers and isinstance(reply, ConcealedVotes):
            return ConcealedVotes(reply.batch_digest, tampers[0](reply.arrays))
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
    reply = world.parties["p0"].handle(request)
    assert isinstance(reply, ConcealedVotes)
    reserved = world.ledgers["p0"].balance("p0").spent
    answered = np.zeros(5, dtype=bool)
    stranger = Ed25519PrivateKey.generate()
    about = (STUDY, "p0", request.digest)
    forged = told(*about, answered, reply=reply, key=stranger).guardian
    other = told(*about, ~answered, reply=reply).guardian
    for word in (
        b"",
        bytes(64),
        b"x" * 400,
        forged,
        other,
        told(STUDY, "p1", request.digest, answered, reply=reply).guardian,
    ):
        refusal = world.parties["p0"].handle(Outcome(STUDY.digest, request.digest, answered, word))
        assert isinstance(refusal, Refusal)
        assert refusal.code == "unsigned_outcome"
    assert world.ledgers["p0"].balance("p0").spent == reserved
    assert not isinstance(world.parties["p0"].handle(told(*about, answered, reply=reply)), Refusal)
    # Answered or not, a query has one price.
    assert world.ledgers["p0"].balance("p0").spent == reserved


def test_a_share_opens_for_its_own_seat_request_and_key_alone():
    public = SEALING_KEY.public_key().public_bytes_raw()
    sealed = seal((np.arange(3),), key=public, study=bytes(32), request=bytes(32), seat="p0")
    about = {"key": SEALING_KEY, "study": bytes(32), "request": bytes(32), "seat": "p0"}
    np.testing.assert_array_equal(unseal(sealed, **about)[0], np.arange(3))
    for other in ({"seat": "p1"}, {"request": bytes(31) + b"\1"}, {"study": bytes(31) + b"\1"}):
        with pytest.raises(MalformedMessage, match="not sealed to this"):
            unseal(sealed, **(about | other))


def test_keys_that_are_not_the_studys_are_refused():
    with refuses(InvalidInput, "keys", "study"):
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
    send_arrays(here, submission(**changes).arrays())
    with pytest.raises((Refused, MalformedMessage), match=fault):
        guardian.serve(there)
    assert here.recv(1000)[0] > 0
    assert all(balance.spent == 0 for balance in world.guardians.balances().values())


@settings(deadline=None, max_examples=20)
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


def test_a_batch_that_was_reserved_for_less_is_refused(world):
    guardian = GuardianHere(STUDY, world.guardians, seeded_source(1)).guardian
    for changes, fault in (
        ({"ids": np.arange(1), "members": np.arange(1), "seats": np.arange(1), "sealed": (b"broken",)}, None),
        ({}, "other_submission"),
    ):
        here, there = pair(wait_s=2.0)
        send_arrays(here, submission(**changes).arrays())
        if fault is None:
            guardian.serve(there)  # below the quorum
        else:
            with pytest.raises(Refused, match=fault):
                guardian.serve(there)
