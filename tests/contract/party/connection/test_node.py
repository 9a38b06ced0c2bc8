"""The node against frames that an honest coordinator would not send: each is refused, and none costs budget."""

import datetime
import os
import time
from types import SimpleNamespace

import numpy as np
import pytest

from party.connection import node as node_module
from party.connection import seat as outgoing_module
from party.connection.node import Node, _Session
from party.connection.seat import Outgoing, ServedSeat, seat_heads
from party.party import Party
from protocols.crypto.identity import identify, issue, new_authority, new_key, to_pem
from protocols.errors import Refused
from protocols.ledger.audit_log import EMPTY, Head
from protocols.ledger.ledger import Ledger
from protocols.study.queries import QueryBatch
from protocols.wire.frames import NONCE_BYTES, Ask, Goodbye, Renewed, Welcome
from protocols.wire.messages import Outcome, Refusal, Settled, VoteReply, VoteRequest, decode, encode
from tests.harness.refusals import refused_for
from tests.harness.studies import deployed_study, pool_of, voter

NOW = datetime.datetime.now(datetime.UTC)
ROOT_KEY, KEY = new_key(), new_key()
ROOT = new_authority(ROOT_KEY, name="test", now=NOW, days=99)
STUDY = deployed_study(2)
NAME = "hospital-0"


def certificate(key=KEY, name=NAME, role="party"):
    return issue(
        authority=ROOT, authority_key=ROOT_KEY, public_key=key.public_key(), name=name, role=role, now=NOW, days=9
    )


class At:
    """One node, its session and its ledger; asks are made as a coordinator would."""

    def __init__(self, study=STUDY, sender="centre"):
        self.study, self.events, self.saved = study, [], []
        self.ledger = Ledger(":memory:")
        party = Party(NAME, study=study, ledger=self.ledger, voter=voter(NAME), coins_from=None)
        self.seats = {(study.digest, NAME): ServedSeat(study, party, self.ledger, anchor=lambda: None)}
        self.sender = identify(
            certificate(new_key(), sender, "coordinator"), authority=ROOT, now=NOW, role="coordinator"
        )
        self.node = Node(
            key=KEY,
            certificate=certificate(),
            authority=ROOT,
            address="nowhere:1",
            seats=lambda: list(self.seats.values()),
            save_certificate=self.saved.append,
            on_event=lambda event, fields: self.events.append((event, fields)),
            renew_days_left=0,
        )
        self.session = _Session(welcomed_at=0.0)

    def ask(self, *, number=0, round=None, session=None, own=None, seen=EMPTY, study=None, envelope=None):
        ids = np.arange(number * 5, number * 5 + 5)
        request = VoteRequest(self.study.digest, b"run", QueryBatch(number, ids, pool_of(60, 4)[ids]))
        ask = Ask(
            session or self.session.nonce,
            self.session.round + 1 if round is None else round,
            os.urandom(NONCE_BYTES),
            study or self.study.digest,
            NAME,
            own or Head(number + 1, bytes([number]) * 32),
            seen,
            encode(request) if envelope is None else envelope,
        )
        return decode(self.node._answer(ask, b"signed", self.sender, self.session, self.seats).envelope)

    def spent(self):
        return self.ledger.balance(NAME).spent


@pytest.fixture
def at():
    made = At()
    yield made
    made.ledger.close()


def test_an_honest_question_is_answered_and_charged(at):
    assert isinstance(at.ask(), VoteReply)
    assert at.spent() > 0
    assert [kind for _, _, kind, _ in at.ledger.log.evidence()] == ["request"]


@pytest.mark.parametrize("how", [{"session": b"x" * NONCE_BYTES}, {"round": 0}])
def test_a_question_of_another_session_or_an_old_round_is_a_replay(at, how):
    with refused_for("replayed"):
        at.ask(**how)
    assert at.spent() == 0


def test_a_round_that_does_not_rise_is_a_replay(at):
    at.ask(round=7)
    for old in (7, 6):
        with refused_for("replayed"):
            at.ask(number=1, round=old)


def refusal(reply):
    assert isinstance(reply, Refusal)
    return reply.code


def test_another_coordinator_is_refused():
    made = At(sender="elsewhere")
    assert refusal(made.ask()) == "other_coordinator"
    assert made.spent() == 0
    made.ledger.close()


def test_after_its_last_day_a_study_is_answered_no_more(at, monkeypatch):
    late = datetime.datetime(3000, 1, 1, tzinfo=datetime.UTC)
    monkeypatch.setattr(node_module, "_now", lambda: late)
    assert refusal(at.ask()) == "study_ended"
    assert at.spent() == 0
    assert [entry.event for entry in at.ledger.log.entries()] == ["refused"]


@pytest.mark.parametrize("envelope", [b"", b"\xff", encode(Refusal("a", "b"))])
def test_what_is_no_request_is_malformed(at, envelope):
    assert refusal(at.ask(envelope=envelope)) == "malformed"


def test_queries_of_another_shape_are_refused(at):
    ids = np.arange(5)
    request = VoteRequest(at.study.digest, b"run", QueryBatch(0, ids, np.zeros((5, 3), np.float32)))
    assert refusal(at.ask(envelope=encode(request))) == "other_shape"


def test_a_study_that_is_not_approved_is_unknown(at):
    assert refusal(at.ask(study=b"o" * 32)) == "unknown_study"


def test_a_coordinator_that_knows_more_of_this_log_than_it_holds_stops_the_node(at):
    with refused_for("ledger_rolled_back"):
        at.ask(seen=Head(9, b"x" * 32))
    assert at.spent() == 0


def test_a_coordinator_whose_log_went_back_is_refused_and_charges_nothing(at):
    at.ask(own=Head(5, b"a" * 32))
    spent = at.spent()
    for own in (Head(4, b"a" * 32), Head(5, b"b" * 32)):
        with refused_for("peer_rolled_back"):
            at.ask(number=1, own=own)
    assert at.spent() == spent


def test_a_coordinator_that_only_sends_what_must_be_refused_is_left_in_whatever_session(monkeypatch):
    monkeypatch.setattr(node_module, "_REFUSALS", 3)
    at = At()
    for _ in range(3):
        at.session = _Session(welcomed_at=0.0)
        at.ask(envelope=b"")
    at.session = _Session(welcomed_at=0.0)
    with refused_for("too_many_refusals"):
        at.ask(envelope=b"")
    at.ledger.close()


def test_asking_late_teachers_again_and_again_is_no_fault_of_the_coordinator(at, monkeypatch):
    monkeypatch.setattr(node_module, "_REFUSALS", 3)
    votes = at.seats[STUDY.digest, NAME].party._voter

    def late(batch):
        raise Refused("teachers_late", "predicting 5 queries has taken 25 s and continues")

    at.seats[STUDY.digest, NAME].party._voter = late
    for _ in range(10):
        assert refusal(at.ask(own=Head(1, b"a" * 32))) == "teachers_late"
    assert at.spent() == 0
    at.seats[STUDY.digest, NAME].party._voter = votes
    assert isinstance(at.ask(own=Head(1, b"a" * 32)), VoteReply)
    assert at.spent() > 0


def test_a_welcome_of_another_session_is_a_replay(at):
    with refused_for("replayed"):
        at.node._welcome(Welcome(1, b"y" * NONCE_BYTES, 0, ()), at.session, {})


def test_a_clock_that_is_off_is_said(at):
    at.node._welcome(Welcome(1, at.session.nonce, 0, ()), at.session, {})
    (said,) = [fields["reason"] for event, fields in at.events if event == "clock_skew"]
    assert "NTP" in said


@pytest.mark.parametrize("other", [{"key": new_key()}, {"name": "hospital-1"}])
def test_a_renewed_certificate_of_another_name_or_key_is_not_taken(at, other):
    with refused_for("bad_certificate"):
        at.node._renewal.take(Renewed(to_pem(certificate(**other))))
    assert at.saved == []


def test_a_renewed_certificate_that_is_not_valid_now_takes_the_place_of_none_that_is(at):
    """Its issuer's clock was 100 days ahead, for seconds."""
    before = at.node._renewal.certificate
    ahead = issue(
        authority=ROOT,
        authority_key=ROOT_KEY,
        public_key=KEY.public_key(),
        name=NAME,
        role="party",
        now=NOW + datetime.timedelta(days=100),
        days=90,
    )
    at.node._renewal.take(Renewed(to_pem(ahead)))
    assert at.saved == []
    assert at.node._renewal.certificate == before
    assert [event for event, _ in at.events] == ["renewal_not_valid"]


def test_a_node_whose_own_clock_jumps_waits_and_one_whose_certificate_ended_stops(at, monkeypatch):
    ended = {"now": datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=40)}
    monkeypatch.setattr("party.connection.dialling._now", lambda: ended["now"])
    with refused_for("certificate_expired"):
        at.node._certificate_holds()
    monkeypatch.setattr(node_module, "_now", lambda: ended["now"])  # against seconds that only go on: a jump
    assert not at.node._certificate_holds()
    assert [event for event, _ in at.events] == ["clock_jumped"]
    ended["now"] = datetime.datetime.now(datetime.UTC)
    assert at.node._certificate_holds()


def test_a_goodbye_that_comes_again_and_again_is_logged_ever_more_seldom_with_its_count(at):
    session = _Session()
    for _ in range(9):
        at.node._said_goodbye(Goodbye("another_node", "it is there"), session)
    assert [fields["times"] for _, fields in at.events] == [1, 2, 4, 8]


@pytest.mark.parametrize(("served", "longest"), [(True, 0.2), (False, 60.0)])
def test_a_coordinator_that_welcomes_and_parts_at_once_is_dialled_ever_more_seldom(at, monkeypatch, served, longest):
    session, waits = _Session(welcomed_at=time.monotonic(), round=int(served)), []
    monkeypatch.setattr(at.node, "_connect", lambda stop: session.served())
    at.node.run(SimpleNamespace(is_set=lambda: len(waits) == 12, wait=waits.append))
    assert longest / 2 <= max(waits) <= longest


@pytest.mark.parametrize("settles", [True, False])
def test_an_outcome_that_a_node_declined_to_settle_by_is_not_asked_for_again(settles):
    with Ledger(":memory:") as ledger:
        at = At()
        at.ledger.close()
        party = Party(NAME, study=STUDY, ledger=ledger, voter=voter(NAME), coins_from=None, settles=settles)
        at.ledger, seat = ledger, ServedSeat(STUDY, party, ledger, anchor=lambda: None)
        at.seats = {(STUDY.digest, NAME): seat}
        at.ask()
        assert len(seat_heads(seat).untold) == 1
        outcome = Outcome(STUDY.digest, seat_heads(seat).untold[0], np.ones(5, dtype=bool))
        assert isinstance(at.ask(own=Head(2, b"o" * 32), envelope=encode(outcome)), Settled)
        assert seat_heads(seat).untold == ()
        assert len(ledger.unsettled()) == (not settles)


def test_a_renewed_certificate_of_its_own_is_saved(at):
    at.node._renewal.take(Renewed(to_pem(certificate())))
    assert len(at.saved) == 1


def test_answers_that_nobody_reads_do_not_pile_up():
    outgoing = Outgoing()
    for _ in range(outgoing_module._UNSENT):
        outgoing.put(b"frame", waits=lambda: False)
    with refused_for("not_read"):
        outgoing.put(b"frame", waits=lambda: False)
