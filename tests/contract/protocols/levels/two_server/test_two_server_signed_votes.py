"""Nobody votes in a hospital's name or changes what it sent unnoticed, and each hospital learns what became of it."""

from dataclasses import replace

import numpy as np
import pytest

from protocols.crypto.channel import pair
from protocols.crypto.identity import new_key
from protocols.errors import InvalidInput, MalformedMessage
from protocols.labelling import guardian as guardian_module
from protocols.levels.two_server import aggregation
from protocols.levels.two_server.ballot import SharedBallot
from protocols.levels.two_server.conversation import Submission, receive_arrays, send_arrays
from protocols.levels.two_server.signed_votes import SignedVotes, own_digest
from protocols.levels.two_server.statement import Fate, Statement
from protocols.study.queries import QueryBatch
from protocols.wire.messages import ConcealedVotes, Refusal, VoteRequest
from tests.harness import guardian_attempts
from tests.harness.guardian_attempts import NAMES, POOL, VOTES, World
from tests.harness.levels import SEAT_KEYS
from tests.harness.refusals import refuses
from tests.harness.seeded import seeded_source
from tests.harness.signed import signed_again, told

STUDY = guardian_attempts.STUDY.voting(query_limit=10, batch_limit=10)
QUORUM_OF_FOUR = replace(STUDY, quorum=4)


@pytest.fixture
def world():
    made = World(study=STUDY)
    yield made
    made.close()


def events(ledger, name):
    """The fields of a ledger's entries of one kind."""
    return [dict(entry.fields) for entry in ledger.log.entries() if entry.event == name]


def fate_of(world, name):
    """What a hospital's log says became of its votes."""
    counted, not_counted = (events(world.ledgers[name], kind) for kind in ("votes_counted", "votes_not_counted"))
    return [each["code"] for each in (*counted, *not_counted)]


def absent(name, *names):
    """A world in which these hospitals vote, and their replies do not arrive."""
    return World(study=QUORUM_OF_FOUR, tamper=lambda seat, reply: None if seat in (name, *names) else reply)


class MakingUp(aggregation.SharedAggregation):
    """A coordinator that votes in the name of whoever is absent. key: with which it signs; None: copies another's."""

    def __init__(self, *args, key, **how):
        super().__init__(*args, **how)
        self.key = key

    def _collect(self, reserved, left_out):
        received = super()._collect(reserved, left_out)
        digest = reserved.request.digest
        for name in sorted(left_out):
            made_up = _shares(reserved.study, name, reserved.request)
            queries = reserved.request.batch.ids.tolist()
            signed = signed_again(reserved.study, name, made_up, key=self.key or new_key(), queries=queries)
            sealed, *own, signature = signed.arrays
            share = aggregation._share(tuple(own), reserved, name)
            votes = SignedVotes(sealed.tobytes(), own_digest(tuple(own)), signature.tobytes())
            if self.key is None:  # the signature of a hospital that did vote
                votes = replace(votes, signature=SignedVotes.read(received["p0"][0]).signature)
            assert digest == made_up.batch_digest
            received[name] = (votes.encode(), share)
            left_out.pop(name)
        return received


def _shares(study, name, request):
    """Well-formed shares of votes for class 0, sealed for a seat, without its signature."""
    key = SEAT_KEYS[study.seats[name]]
    ballot = SharedBallot(study, name, key=key, source=seeded_source(99))
    reply = ballot.cast(request, lambda _: np.zeros((study.votes.voters, len(request.batch.ids)), np.int64))
    return ConcealedVotes(reply.batch_digest, reply.arrays[:-1])


@pytest.mark.parametrize("key", [None, new_key(), SEAT_KEYS[0]], ids=["a copy", "a new key", "another hospital's"])
def test_a_coordinator_that_votes_in_the_name_of_the_absent_gets_no_vote_of_them_in(key):
    made, honest = absent("p1", "p4"), absent("p1", "p4")
    made.coordinator()
    attacker = MakingUp(made.here.dial, source=seeded_source(7), key=key)
    coordinator = made.coordinator()
    coordinator._aggregation = attacker
    got = coordinator.label(made.pool)
    assert got.refusals == {"p1": "bad_seal", "p4": "bad_seal"}
    assert {each["seat"] for each in events(made.guardians, "unsigned_votes")} == {"p1", "p4"}
    np.testing.assert_array_equal(got.labels, honest.label().labels)
    charged = [made.guardians.balance(name).spent for name in NAMES]
    assert charged[1] == charged[4] == 0 < charged[0]
    # The hospital that voted and whose reply was dropped learns from the guardian that others' words came in its name.
    stored = made.own.stored(0)
    statement = Statement.read(made.own.noted(stored.digest, "guardian"), seats=6)
    assert [Fate(int(each)) for each in statement.fates] == [1, 3, 1, 1, 3, 1]
    assert set(fate_of(made, "p1")) == {"altered"}
    made.close()
    honest.close()


@pytest.mark.parametrize("part", ["sealed", "own", "signature"])
def test_a_coordinator_that_alters_any_part_of_a_submission_loses_that_seat_and_is_found(part, monkeypatch):
    made = World(study=QUORUM_OF_FOUR)
    real = Submission.arrays

    def altered(submission):
        votes = SignedVotes.read(submission.sealed[2])
        other = bytes([getattr(votes, part)[-1] ^ 1])
        changed = replace(votes, **{part: getattr(votes, part)[:-1] + other})
        sealed = (*submission.sealed[:2], changed.encode(), *submission.sealed[3:])
        return real(replace(submission, sealed=sealed))

    monkeypatch.setattr(Submission, "arrays", altered)
    got = made.label()
    assert got.refusals == {"p2": "bad_seal"}
    assert events(made.guardians, "unsigned_votes")[0] == {"batch": 0, "seat": "p2"}
    # A changed signature leaves the votes as they were, so the digest of them is the hospital's own.
    assert set(fate_of(made, "p2")) == {"bad_seal" if part == "signature" else "altered"}
    assert all(set(fate_of(made, name)) == {"counted"} for name in NAMES if name != "p2")
    made.close()


def test_a_coordinator_that_drops_votes_which_came_is_contradicted_when_the_hospital_connects():
    made = absent("p3")
    got = made.label()
    assert got.refusals == {"p3": "absent"}
    assert fate_of(made, "p3") == []
    outcome = made.coordinator().outcome_for("p3", made.own.stored(0).digest)
    made.parties["p3"].handle(outcome)
    assert fate_of(made, "p3") == ["not_submitted"]
    made.parties["p3"].handle(outcome)
    assert fate_of(made, "p3") == ["not_submitted"], "told again, it says nothing new"
    made.close()


def test_malformed_votes_are_named_to_the_hospital_that_sent_them():
    def tamper(name, reply):
        if name != "p5" or not isinstance(reply, ConcealedVotes):
            return reply
        share = reply.arrays[1].copy()
        share[0, 0, 0] ^= 1
        return ConcealedVotes(reply.batch_digest, (reply.arrays[0], share, *reply.arrays[2:]))

    made = World(study=QUORUM_OF_FOUR, tamper=tamper)
    assert made.label().refusals == {"p5": "bad_votes"}
    stored = made.own.stored(0)
    statement = Statement.read(made.own.noted(stored.digest, "guardian"), seats=6)
    assert [Fate(int(each)).word for each in statement.fates] == ["counted"] * 5 + ["bad_votes"]
    made.close()


def test_a_hospital_whose_seat_voted_otherwise_than_its_ledger_says_settles_nothing(world):
    """Somebody else has its key, or a copy of its node: the guardian's statement is of other votes."""
    request = VoteRequest(STUDY.digest, b"run", QueryBatch(0, np.arange(5), POOL[:5]))
    world.parties["p0"].handle(request)
    reserved = world.ledgers["p0"].balance("p0")
    other = SharedBallot(STUDY, "p0", key=SEAT_KEYS[0], source=seeded_source(55))
    theirs = other.cast(request, lambda _: VOTES[0][:, :5])
    refusal = world.parties["p0"].handle(told(STUDY, "p0", request.digest, np.ones(5, bool), reply=theirs))
    assert isinstance(refusal, Refusal)
    assert refusal.code == "other_votes"
    assert world.ledgers["p0"].balance("p0") == reserved
    assert fate_of(world, "p0") == []


def test_votes_of_another_batch_or_seat_do_not_pass_for_these(world):
    """A signature is bound to study, request and seat: recorded votes cannot be submitted again."""
    request = VoteRequest(STUDY.digest, b"run", QueryBatch(0, np.arange(5), POOL[:5]))
    reply = world.parties["p0"].handle(request)
    sealed, *own, signature = reply.arrays
    votes = SignedVotes(sealed.tobytes(), own_digest(tuple(own)), signature.tobytes())
    verify = guardian_module.roster_verifier(STUDY)
    asked = {"queries": [0, 1, 2, 3, 4]}
    assert votes.holds(verify, STUDY.digest, request.digest, "p0", **asked)
    assert not votes.holds(verify, STUDY.digest, request.digest, "p0", queries=[0, 1, 2, 3, 5])
    assert not votes.holds(verify, STUDY.digest, request.digest, "p0", queries=[0, 1, 2, 3])
    assert not votes.holds(verify, STUDY.digest, request.digest, "p1", **asked)
    assert not votes.holds(verify, STUDY.digest, bytes(32), "p0", **asked)
    assert not votes.holds(verify, bytes(32), request.digest, "p0", **asked)
    assert not replace(votes, signature=bytes(64)).holds(verify, STUDY.digest, request.digest, "p0", **asked)


def test_a_guardian_counts_no_votes_of_other_queries_than_their_hospitals_voted_on(monkeypatch):
    """Who takes part, the round, the price and the signature of labels follow from the positions that it is told."""
    made, real = World(), Submission.arrays
    monkeypatch.setattr(Submission, "arrays", lambda told: real(replace(told, ids=told.ids + 1)))
    got = made.label()
    assert set(got.refusals.values()) == {"bad_seal"}
    assert not (got.labels >= 0).any()
    assert {each["seat"] for each in events(made.guardians, "unsigned_votes")} == set(NAMES)
    made.close()


def test_a_statement_that_counts_other_seats_than_the_coordinator_did_is_refused(world, monkeypatch):
    real = Statement.signed

    def lying(key, *, fates, **about):
        fates[1] = Fate.BAD_VOTES
        return real(key, fates=fates, **about)

    monkeypatch.setattr(guardian_module.Statement, "signed", lying)
    with refuses(MalformedMessage, "seats"):
        world.label()


def test_a_seat_whose_node_has_another_key_than_the_study_names_does_not_open():
    with refuses(InvalidInput, "p0", "test"):
        SharedBallot(STUDY, "p0", key=SEAT_KEYS[1], source=seeded_source(1))


def test_unsigned_votes_are_named_by_an_honest_coordinator_before_the_guardian_is_told():
    made = World(study=QUORUM_OF_FOUR)
    exchange = made.exchange

    def unsigned(requests):
        replies = exchange(requests)
        reply = replies.get("p2")
        if isinstance(reply, ConcealedVotes):
            replies["p2"] = ConcealedVotes(reply.batch_digest, (*reply.arrays[:-1], np.zeros(64, np.uint8)))
        return replies

    made.exchange = unsigned
    assert made.label().refusals == {"p2": "unsigned_votes"}
    assert events(made.guardians, "unsigned_votes") == []
    made.close()


def test_the_guardian_takes_short_or_empty_votes_for_none(world):
    guardian = world.coordinator() and world.here.guardian
    here, there = pair(wait_s=2.0)
    values = {"request": bytes(32), "number": 0, "ids": np.arange(5)}
    sealed = (b"", b"x" * 95, b"x" * 96, b"y" * 97, b"z", b"z")
    seats = {"members": np.arange(6), "seats": np.arange(6), "sealed": sealed}
    head = world.guardians.log.head()
    send_arrays(here, Submission(study=STUDY.digest, **values, **seats, own=head, seen=head).arrays())
    guardian.serve(there)
    taken, _ = receive_arrays(here)
    assert (taken == Fate.BAD_SEAL).all()
