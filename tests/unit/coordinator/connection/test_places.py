"""One seat that is away, or does not read, does not starve the others of a round, however large its requests are."""

import asyncio

import numpy as np
import pytest

from coordinator.connection import sessions
from coordinator.connection.open_study import OpenStudy
from coordinator.connection.sessions import UNASKED, Session, SessionEnded, Sessions
from protocols.crypto.identity import Identity, new_authority, new_key
from protocols.errors import MalformedMessage
from protocols.ledger.audit_log import EMPTY
from protocols.ledger.ledger import Ledger
from protocols.study.queries import QueryBatch
from protocols.wire.frames import NONCE_BYTES, Answer, Ask
from protocols.wire.messages import Refusal, VoteRequest, encode
from tests.harness.clocks import idle_loop
from tests.harness.refusals import refused_for
from tests.harness.studies import NOW, deployed_study, pool_of

STUDY = deployed_study(4)
CERTIFICATE = new_authority(new_key(), name="test", now=NOW, days=9)
SEATS = [seat.party for seat in STUDY.roster]
REPLY = encode(Refusal("withdrawn", "no"))


@pytest.fixture(autouse=True)
def one_place(monkeypatch):
    """As for requests of 160 MiB: one at a time."""
    monkeypatch.setattr(sessions, "_AT_ONCE_BYTES", 1)


@pytest.fixture
def opened():
    with Ledger(":memory:") as ledger:
        yield OpenStudy(STUDY, ledger, None)


def session_of(name, *, reads=True):
    """A session whose node answers at once; or does not read what is sent."""

    async def send(ask):
        if not reads:
            await asyncio.Event().wait()
        made.answered(Answer(ask.nonce, ask.round, ask.study, ask.seat, EMPTY, EMPTY, REPLY), b"signed")

    made = Session(Identity(name, "party", CERTIFICATE), bytes(NONCE_BYTES), send, "", "", 1, serves=True)
    made.told.set()
    return made


def ask_all(opened, sessions):
    """Who answered, and what happened. A frame is not sealed here."""
    events = []

    async def run():
        made = Sessions(seal=lambda frame: frame, on_event=lambda event, fields: events.append((event, fields)))
        for session in sessions:
            await made.add(session)
        batch = QueryBatch(0, np.arange(3), pool_of(60, 4)[:3])
        request = VoteRequest(STUDY.digest, b"run", batch)
        return await made.ask_all(opened, dict.fromkeys(SEATS, request))

    with asyncio.Runner(loop_factory=idle_loop) as runner:
        answers = runner.run(run())
    return {seat for seat, answered in answers.items() if answered is not None}, events


def test_a_seat_that_is_away_holds_no_place(opened):
    answered, events = ask_all(opened, [session_of(seat) for seat in SEATS[1:]])
    assert answered == set(SEATS[1:])
    assert events == [("absent", {"seat": SEATS[0]})]


def test_seats_that_do_not_read_hold_a_place_for_their_share_of_the_time_and_are_cut_off(opened):
    answered, events = ask_all(opened, [session_of(seat, reads=seat in SEATS[2:]) for seat in SEATS])
    assert answered == set(SEATS[2:])
    assert [fields["seat"] for event, fields in events if event == "not_read"] == SEATS[:2]


def test_frames_that_nobody_asked_for_end_a_session_and_late_answers_do_not():
    session = session_of("hospital-0")
    answer = Answer(b"n" * NONCE_BYTES, 1, STUDY.digest, SEATS[0], EMPTY, EMPTY, REPLY)
    session.late = 3
    for _ in range(3 + UNASKED):
        session.answered(answer, b"signed")
    with refused_for("unasked_frames"):
        session.answered(answer, b"signed")


def test_an_answer_about_another_seat_than_was_asked_ends_the_session(opened):
    async def run():
        session = session_of("hospital-0")

        async def send(ask: Ask):
            with pytest.raises(MalformedMessage, match="as was asked"):
                session.answered(Answer(ask.nonce, ask.round, ask.study, "other", EMPTY, EMPTY, REPLY), b"signed")
            session.end()

        session.send = send
        sessions = Sessions(seal=lambda frame: frame, on_event=lambda event, fields: None)
        request = VoteRequest(STUDY.digest, b"run", QueryBatch(0, np.arange(3), pool_of(60, 4)[:3]))
        with pytest.raises(SessionEnded):
            await sessions.ask(session, opened, SEATS[0], request, encode(request), None)

    asyncio.run(run())


def shares_of(made, turns):
    """The seconds that each of so many turns may last while another waits for a place."""
    shares = []

    async def run():
        for _ in range(turns):
            async with made.taken():
                (ends,) = made._held.values()
                shares.append(ends - asyncio.get_running_loop().time())

    return run, shares


def test_a_seat_that_was_sent_its_request_leaves_its_share_to_the_others():
    async def run():
        made = sessions.Places(seats=4, largest=1, deadline=asyncio.get_running_loop().time() + 1200)
        turns, shares = shares_of(made, 4)
        await turns()
        return shares

    assert np.rint(np.array(asyncio.run(run())) / 100).tolist() == [3, 4, 6, 12]


@pytest.mark.parametrize("waits", [False, True])
def test_a_share_that_is_over_ends_a_turn_only_where_another_waits(waits):
    async def run():
        loop = asyncio.get_running_loop()
        made = sessions.Places(seats=2, largest=1, deadline=loop.time() + 60)
        reads, others = asyncio.Event(), []

        async def slow():
            async with made.taken():
                made._held = dict.fromkeys(made._held, loop.time() - 1)  # its share is over
                await reads.wait()
            return "read"

        async def other():
            async with made.taken():
                others.append("sent")

        task = asyncio.ensure_future(slow())
        await asyncio.sleep(0)
        if waits:
            await other()
        reads.set()
        try:
            return await task, others
        except TimeoutError:
            return "cut off", others

    assert asyncio.run(run()) == (("cut off", ["sent"]) if waits else ("read", []))


@pytest.mark.parametrize("at_once", [1, 2**30])
def test_a_seat_that_never_reads_is_named_so_however_many_places_there_are(opened, monkeypatch, at_once):
    monkeypatch.setattr(sessions, "_AT_ONCE_BYTES", at_once)
    answered, events = ask_all(opened, [session_of(seat, reads=seat != SEATS[3]) for seat in SEATS])
    assert answered >= set(SEATS[:3])
    assert [event for event in events if event[1]["seat"] == SEATS[3]] == [("not_read", {"seat": SEATS[3]})]
