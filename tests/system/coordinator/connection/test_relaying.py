"""A study that a hospital asks in: created without a pool, opened to be relayed, and never labelled by the operator."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from coordinator.connection import relaying
from coordinator.connection.open_study import Answered, OpenStudy
from coordinator.connection.relaying import Relay, RelayedStudy, relayed_seat
from coordinator.labelling.study_creation import create_study, write_pool
from coordinator.store.store import Store
from party.connection import node
from protocols.crypto.identity import identify, issue, new_authority, new_key
from protocols.errors import InvalidInput
from protocols.ledger.audit_log import EMPTY, Head
from protocols.ledger.ledger import Ledger
from protocols.study.file import read_study, write_study
from protocols.study.levels import Clear
from protocols.study.queries import QueryBatch
from protocols.wire.frames import NONCE_BYTES, Answer, Ask, sign_frame
from protocols.wire.messages import Outcome, Refusal, Settled, VoteRequest, encode
from protocols.wire.relay import read_passed_back
from tests.harness.askers import asked_study
from tests.harness.operators import SETTINGS, make_home
from tests.harness.refusals import refused_for, refuses
from tests.harness.signed import told
from tests.harness.studies import NOW

STUDY = asked_study()


@pytest.fixture
def home(tmp_path):
    return make_home(tmp_path)


def create(home, folder, *, pool=None, study=STUDY):
    (folder / "study.toml").write_text(write_study(study))
    with Store(home) as store:
        return create_study(store, SETTINGS, file=folder / "study.toml", pool_file=pool, today=NOW.date())


def test_it_is_created_without_a_pool_and_refused_with_one(home, tmp_path):
    write_pool(tmp_path / "pool.npy", np.zeros((20, 4), np.float32))
    with refuses(InvalidInput, "asker"):
        create(home, tmp_path, pool=tmp_path / "pool.npy")
    assert create(home, tmp_path) == STUDY
    assert read_study(home.study("heart") / "study.toml") == STUDY
    assert not (home.study("heart") / "pool.npy").exists()


def test_public_queries_still_need_a_pool(home, tmp_path):
    level = Clear(units=64)
    with refuses(InvalidInput, "--pool", "FILE"):
        create(home, tmp_path, study=replace(STUDY, confidentiality=level))


def test_a_job_of_it_ends_at_once_and_says_who_asks(home, tmp_path):
    create(home, tmp_path)
    with Store(home) as store:
        job = store.ask_job("heart", student=None)
        opened = []
        study = RelayedStudy(store, "heart", lambda *what, **how: opened.append((what, how)))
        study.run(job, patience_s=1.0)
        ended = store.job("heart")
        assert ended.state == "failed"
        assert "'asker' asks in this study, with conclave-party ask" in ended.message
        study.close()
    ((what, how),) = opened
    assert what[0] == STUDY
    assert set(how) == {"outcome_for", "on_told"}


def test_the_outcome_that_passed_is_told_again_to_that_seat_alone(home, tmp_path):
    create(home, tmp_path)
    outcome = Outcome(STUDY.digest, bytes(32), np.array([True, False]), bytes(64))
    with Store(home) as store:
        opened = []
        study = RelayedStudy(store, "heart", lambda *what, **how: opened.append((what, how)))
        ledger, tell = opened[0][0][1], opened[0][1]["outcome_for"]
        ledger.note(bytes(32), "relayed_outcome hospital-1", encode(outcome))
        assert encode(tell("hospital-1", bytes(32))) == encode(outcome)
        assert tell("hospital-0", bytes(32)) is None
        assert tell("hospital-1", bytes(range(32))) is None
        study.close()


def signed(answered, request=bytes(32)):
    """An outcome with the guardian's signature."""
    return told(STUDY, "hospital-1", request, answered)


class Passing:
    """What passes for one seat: sent by the querying party, then answered by the seat."""

    def __init__(self):
        self.ledger = Ledger(":memory:")
        self.ledger.note(bytes(32), "relayed_number", (3).to_bytes(8, "big"))
        self.opened = OpenStudy(STUDY, self.ledger, None)
        self.under_way = set()

    def send(self, outcome):
        relaying._note_sent(self.opened, "hospital-1", outcome, self.under_way)

    def ask(self, number, *ids):
        """The request, and its tick; it is under way until its tick is taken off."""
        batch = QueryBatch(number, np.array(ids), np.zeros((len(ids), 0), np.float32))
        made = VoteRequest(STUDY.digest, b"run", batch)
        return made, relaying._note_asked(self.opened, "hospital-1", made, self.under_way)

    def told(self, outcome, reply, *, entries=1):
        answer = Answer(b"", 1, STUDY.digest, "hospital-1", Head(entries, bytes(32)), EMPTY, b"")
        relaying.note_told(self.ledger, STUDY, "hospital-1", outcome, Answered(b"asked", b"signed", answer), reply)

    @property
    def at_most(self):
        return relayed_seat(self.ledger, STUDY, "hospital-1").at_most

    def again(self):
        """What the seat is told when it connects."""
        outcome = relaying.relayed_outcome(self.ledger, "hospital-1", bytes(32))
        return None if outcome is None else outcome.answered.tolist()


@pytest.fixture
def passing():
    made = Passing()
    yield made
    made.ledger.close()


def test_an_outcome_that_a_seat_refused_for_good_is_not_told_again_and_the_right_one_follows(passing):
    wrong, right = signed([True]), signed([True, False])
    passing.send(wrong)
    assert passing.again() == [True]
    passing.told(wrong, Refusal("bad_outcome", "outcome of 1 queries; allowed: 2"))
    assert passing.again() is None
    passing.send(right)
    assert passing.again() == [True, False]
    passing.told(right, Settled(bytes(32), 5))
    assert passing.again() == [True, False]


def test_the_first_that_was_settled_by_stands_whatever_is_sent_after_it(passing):
    first, later = signed([True, False]), signed([False, False])
    passing.send(first)
    passing.told(first, Settled(bytes(32), 5))
    passing.send(later)
    assert passing.again() == [True, False]
    passing.told(later, Refusal("settled_otherwise", "no"))
    passing.told(later, Settled(bytes(32), 4))
    assert passing.again() == [True, False]
    assert [each[:3] for each in passing.ledger.log.evidence()] == [
        (3, "hospital-1", "outcome"),
        (3, "hospital-1", "settled"),
    ]


def test_one_that_was_not_settled_by_makes_room_for_the_next(passing):
    passing.send(signed([True]))
    passing.send(signed([False]))
    assert passing.again() == [False]
    # A refusal of the one before is of no other.
    passing.told(signed([True]), Refusal("bad_outcome", "no"))
    assert passing.again() == [False]


@pytest.mark.parametrize("reply", [None, Refusal("storage_failed", "disk"), Refusal("unknown_study", "not approved")])
def test_one_that_did_not_reach_the_seat_is_told_again(passing, reply):
    outcome = signed([True, False])
    passing.send(outcome)
    passing.told(outcome, reply)
    assert passing.again() == [True, False]


@pytest.mark.parametrize("signature", [b"", bytes(64)])
def test_without_the_guardians_signature_it_is_neither_kept_nor_in_the_way(passing, signature):
    with refused_for("unsigned_outcome"):
        passing.send(Outcome(STUDY.digest, bytes(32), np.array([True]), signature))
    assert passing.again() is None
    passing.send(signed([False]))
    with refused_for("unsigned_outcome"):
        passing.send(Outcome(STUDY.digest, bytes(32), np.array([True]), signature))
    assert passing.again() == [False]


def test_a_batch_on_its_way_when_an_outcome_is_sent_stays_counted_after_the_receipt(passing):
    nine, tick = passing.ask(9, 0, 1, 2)
    passing.under_way.discard(tick)
    only_nine = passing.at_most
    _, tick = passing.ask(5, 3, 4, 5)
    both = passing.at_most
    outcome = signed([True, False, True], nine.digest)
    passing.send(outcome)
    passing.told(outcome, Settled(nine.digest, 7))
    assert passing.at_most == 7 + both - only_nine
    # One that had come back by then is in the party's figure.
    passing.under_way.discard(tick)
    ten, tick = passing.ask(10, 6)
    passing.under_way.discard(tick)
    outcome = signed([True], ten.digest)
    passing.send(outcome)
    passing.told(outcome, Settled(ten.digest, 30), entries=4)
    assert passing.at_most == 30


def test_a_request_that_every_party_refuses_leaves_nothing_here(passing):
    before = passing.ledger._rows("SELECT count(*) FROM note", ())
    for number in range(3):
        with refused_for("query_limit"):
            passing.ask(number, STUDY.query_limit)
        with refused_for("batch_too_large"):
            passing.ask(number, *range(STUDY.batch_limit + 1))
    assert passing.ledger._rows("SELECT count(*) FROM note", ()) == before
    assert not passing.under_way


def test_requests_without_end_fill_no_ledger(passing, monkeypatch):
    monkeypatch.setattr(relaying, "_TIDY_EACH", 4)
    for number in range(3 * STUDY.query_limit):
        newest, _ = passing.ask(number, number % STUDY.query_limit)
    ((kept,),) = passing.ledger._rows("SELECT count(*) FROM note WHERE kind = 'relayed_number'", ())
    assert kept < STUDY.query_limit + 4
    assert passing.ledger.noted(newest.digest, "relayed_number") is not None


class Seats:
    """In place of the hub's sessions: every seat answers at once, with the same reply. asked: how often."""

    def __init__(self, reply):
        self.reply, self.asked = reply, 0

    async def ask_all(self, opened, requests, *, relayed):
        assert relayed
        self.asked += 1
        ((seat, _),) = requests.items()
        answer = Answer(b"", 1, STUDY.digest, seat, Head(1, bytes(32)), EMPTY, encode(self.reply))
        return {seat: Answered(b"", b"signed", answer)}


class Asker:
    """A querying party before a relay, with frames of its own key."""

    def __init__(self, ledger, reply):
        self.seats, self.key, authority_key = Seats(reply), new_key(), new_key()
        self.authority = new_authority(authority_key, name="test", now=NOW, days=9)
        self.certificate = issue(
            authority=self.authority,
            authority_key=authority_key,
            public_key=self.key.public_key(),
            name="asker",
            role="party",
            now=NOW,
            days=9,
        )
        self.peer = identify(self.certificate, authority=self.authority, now=NOW, role="party")
        studies = {STUDY.digest: OpenStudy(STUDY, ledger, None)}
        self.relay = Relay(self.seats, studies, authority=self.authority, aside=self.aside, on_event=lambda *_: None)

    async def aside(self, function, *args):
        return function(*args)

    def ask(self, *requests, seat="hospital-1"):
        """The code of each request in turn, "" for one that was answered."""

        async def pass_all():
            return [
                read_passed_back(await self.relay.answer(self.frame(each, seat), self.peer))[1] for each in requests
            ]

        return asyncio.run(pass_all())

    def frame(self, request, seat):
        ask = Ask(bytes(NONCE_BYTES), 1, bytes(NONCE_BYTES), STUDY.digest, seat, EMPTY, EMPTY, encode(request))
        return sign_frame(ask, key=self.key, certificate=self.certificate)


def votes(number, *ids):
    return VoteRequest(STUDY.digest, b"run", QueryBatch(number, np.array(ids), np.zeros((len(ids), 0), np.float32)))


def test_what_every_party_refuses_reaches_none(passing):
    asker = Asker(passing.ledger, Refusal("query_limit", "no"))
    beyond = [votes(number, STUDY.query_limit + 5) for number in range(3)]
    assert asker.ask(*beyond, votes(3, *range(STUDY.batch_limit + 1))) == ["query_limit"] * 3 + ["batch_too_large"]
    assert asker.seats.asked == 0


def test_a_querying_party_that_only_asks_what_is_refused_ends_no_hospitals_node(passing, monkeypatch):
    monkeypatch.setattr(relaying, "PER_SECOND", 1e6)
    asker = Asker(passing.ledger, Refusal("batch_reused", "no"))
    asked = [votes(number, 0) for number in range(relaying.REFUSALS + 20)]
    assert asker.ask(*asked) == [""] * relaying.REFUSALS + ["too_many_refusals"] * 20
    assert 10 * asker.seats.asked <= node._REFUSALS
    # Its outcome is kept all the same, and another seat is asked.
    assert asker.ask(signed([True, False])) == ["too_many_refusals"]
    assert passing.again() == [True, False]
    assert asker.ask(votes(0, 0), seat="hospital-0") == [""]


def test_a_party_of_many_seats_is_refused_for_once_and_not_for_each_seat(passing, monkeypatch):
    """A hospital with ten groups has ten seats: before, one querying party could make its node stop."""
    monkeypatch.setattr(relaying, "PER_SECOND", 1e6)
    monkeypatch.setattr(relaying, "party_of", lambda seat: seat.partition("-")[0])
    asker = Asker(passing.ledger, Refusal("batch_reused", "no"))
    each = [votes(number, 0) for number in range(relaying.REFUSALS // 2)]
    assert set(asker.ask(*each, seat="hospital-0") + asker.ask(*each, seat="hospital-1")) == {""}
    assert asker.ask(votes(999, 0), seat="hospital-2") == ["too_many_refusals"]


def test_late_teachers_are_no_refusal(passing, monkeypatch):
    monkeypatch.setattr(relaying, "PER_SECOND", 1e6)
    asker = Asker(passing.ledger, Refusal("teachers_late", "no votes yet"))
    assert set(asker.ask(*[votes(0, 0)] * (relaying.REFUSALS + 5))) == {""}


def test_each_request_waits_for_its_turn(monkeypatch):
    monkeypatch.setattr(relaying, "PER_SECOND", 0.5)
    waits = []

    async def note(wait_s):
        waits.append(wait_s)

    async def hurried():
        monkeypatch.setattr(relaying.asyncio, "sleep", note)
        relay = Relay(None, {}, authority=None, aside=None, on_event=lambda *event: None)
        for _ in range(4):
            await relay._pace()

    asyncio.run(hurried())
    assert np.rint(np.array(waits) / 2).tolist() == [0, 1, 2, 3]
