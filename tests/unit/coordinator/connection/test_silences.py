"""Rounds do not wait again for a party that did not answer; it is asked all the same, and waited for when back."""

import asyncio

import pytest

from coordinator.connection.open_study import OpenStudy
from coordinator.connection.session import Session
from coordinator.connection.sessions import Sessions
from coordinator.connection.silences import Silences
from protocols.crypto.identity import Identity, new_authority, new_key
from protocols.ledger.audit_log import EMPTY
from protocols.ledger.ledger import Ledger
from protocols.wire.frames import NONCE_BYTES, Answer
from protocols.wire.messages import Settled, StepRequest, encode
from tests.harness.clocks import LoopClock
from tests.harness.studies import NOW, deployed_study

STUDY = deployed_study(4, quorum=2)
SEATS = [seat.party for seat in STUDY.roster]
CERTIFICATE = new_authority(new_key(), name="test", now=NOW, days=9)
REQUEST = StepRequest(STUDY.digest, bytes(32), "step", ())


class Rounds:
    """A coordinator whose deadline passes only where the test says so. mute: who is connected and says nothing."""

    def __init__(self, ledger):
        self.sessions = Sessions(seal=lambda frame: frame, on_event=lambda *_: None)
        self.opened = OpenStudy(STUDY, ledger, None)
        self.mute, self.asked = set(), []

    async def connect(self, name):
        async def send(ask):
            self.asked.append(name)
            if name not in self.mute:
                reply = encode(Settled(bytes(32), 0))
                session.answered(Answer(ask.nonce, ask.round, ask.study, ask.seat, EMPTY, EMPTY, reply), b"signed")

        session = Session(Identity(name, "party", CERTIFICATE), bytes(NONCE_BYTES), send, "", "", 1, serves=True)
        session.told.set()
        await self.sessions.add(session)
        return session

    async def round(self, *, waits, seats=SEATS):
        """Who answered a round; waits: for how many of the seats until the deadline."""
        asking = asyncio.ensure_future(self.sessions.ask_all(self.opened, dict.fromkeys(seats, REQUEST)))
        for _ in range(50):
            await asyncio.sleep(0)
        assert asking.done() == (waits == 0)
        if waits:
            before = sum(each.times for each in self.sessions.silences.of.values())
            self.clock.put_forward(STUDY.terms.deadline_s)
            await asking
            assert sum(each.times for each in self.sessions.silences.of.values()) == before + waits
        return {seat for seat, answer in asking.result().items() if hasattr(answer, "answer")}

    def run(self, scenario):
        async def whole():
            self.clock = LoopClock(asyncio.get_running_loop())
            await scenario()

        asyncio.run(whole())


@pytest.fixture
def rounds():
    with Ledger(":memory:") as ledger:
        yield Rounds(ledger)


def test_a_run_with_absent_hospitals_waits_the_deadline_once_and_waits_again_when_one_connects(rounds):
    async def scenario():
        for name in SEATS[:2]:
            await rounds.connect(name)
        assert await rounds.round(waits=2) == set(SEATS[:2])
        for _ in range(20):
            assert await rounds.round(waits=0) == set(SEATS[:2])
        assert set(rounds.sessions.silences.of) == set(SEATS[2:])
        await rounds.connect(SEATS[2])
        assert await rounds.round(waits=0) == set(SEATS[:3])
        assert set(rounds.sessions.silences.of) == {SEATS[3]}

    rounds.run(scenario)


def test_a_connected_hospital_that_says_nothing_is_asked_in_every_round_and_waited_for_ever_more_rarely(rounds):
    async def scenario():
        for name in SEATS:
            await rounds.connect(name)
        rounds.mute.add(SEATS[3])
        waited = []
        for number in range(40):
            known = rounds.sessions.silences.of.get(SEATS[3])
            due = known is None or known.rounds == 0
            assert await rounds.round(waits=int(due)) == set(SEATS[:3])
            if due:
                waited.append(number)
        assert waited == [0, 2, 5, 10, 19, 36]
        assert rounds.asked.count(SEATS[3]) == 40
        rounds.mute.clear()
        assert await rounds.round(waits=0) == set(SEATS)
        assert not rounds.sessions.silences.of

    rounds.run(scenario)


def test_a_round_that_needs_a_silent_hospital_waits_for_it_if_it_is_connected(rounds):
    async def scenario():
        for name in SEATS[:2]:
            await rounds.connect(name)
        rounds.mute.add(SEATS[1])
        assert await rounds.round(waits=3) == {SEATS[0]}
        # One of four answers, and two are needed.
        assert await rounds.round(waits=1) == {SEATS[0]}
        assert await rounds.round(waits=1, seats=SEATS[1:2]) == set()
        assert await rounds.round(waits=0, seats=SEATS[2:3]) == set(), "it is not connected"

    rounds.run(scenario)


def test_one_that_connects_and_never_answers_delays_no_more_than_one_that_stays_silent():
    silences = Silences(clock=lambda: 5.0)
    waited = 0
    for _ in range(100):
        silences.connected("a")
        if not silences.spared({"a", "b", "c"}, {"a", "b", "c"}, needed=2):
            silences.missed("a")
            waited += 1
    assert waited <= 9
    assert silences.of["a"].since_s == 5.0


def test_who_is_waited_for_follows_from_who_answered_alone():
    """Not from names, requests or replies: the state of a party is a function of its own times of answering."""
    one, other = Silences(clock=lambda: 1.0), Silences(clock=lambda: 1.0)
    for silences, name in ((one, "a"), (other, "b")):
        silences.missed(name)
        silences.missed(name)
        silences.connected(name)
    assert one.of["a"] == other.of["b"]
    one.answered("a")
    assert one.of == {}
