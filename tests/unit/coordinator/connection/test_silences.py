"""Rounds do not wait again for a party that did not answer; it is asked all the same, and waited for when back."""

import asyncio

import pytest

from coordinator.connection.open_study import OpenStudy
from coordinator.connection.sessions import Session, Sessions, Silences
from protocols.crypto.identity import Identity, new_authority, new_key
from protocols.ledger.audit_log import EMPTY
from protocols.ledger.ledger import Ledger
from protocols.wire.frames import NONCE_BYTES, Answer
from protocols.wire.messages import Settled, StepRequest, encode
from tests.harness.clocks import idle_loop
from tests.harness.studies import NOW, deployed_study

STUDY = deployed_study(4, quorum=2, deadline_s=64.0)
SEATS = [seat.party for seat in STUDY.roster]
CERTIFICATE = new_authority(new_key(), name="test", now=NOW, days=9)
REQUEST = StepRequest(STUDY.digest, bytes(32), "step", ())
# Of deadlines of 64 s: what a connected party has in any case.
IN_ANY_CASE_S = 2.0


class Rounds:
    """A coordinator whose time passes only where it waits. after_s: seconds until a connected party answers, if it
    does; 0 if it is not named."""

    def __init__(self, ledger):
        self.sessions = Sessions(seal=lambda frame: frame, on_event=lambda *_: None)
        self.opened = OpenStudy(STUDY, ledger, None)
        self.after_s, self.asked = {}, []

    async def connect(self, name):
        async def send(ask):
            self.asked.append(name)
            frame = Answer(ask.nonce, ask.round, ask.study, ask.seat, EMPTY, EMPTY, encode(Settled(bytes(32), 0)))
            later_s = self.after_s.get(name, 0.0)
            asyncio.get_running_loop().call_later(later_s, session.answered, frame, b"signed")

        session = Session(Identity(name, "party", CERTIFICATE), bytes(NONCE_BYTES), send, "", "", 1, serves=True)
        session.told.set()
        await self.sessions.add(session)
        return session

    async def round(self, *, seats=SEATS, relayed=False):
        """Who answered a round, and the seconds that it took."""
        now = asyncio.get_running_loop().time
        began = now()
        found = await self.sessions.ask_all(self.opened, dict.fromkeys(seats, REQUEST), relayed=relayed)
        return {seat for seat, answer in found.items() if hasattr(answer, "answer")}, now() - began

    def run(self, scenario):
        with asyncio.Runner(loop_factory=idle_loop) as runner:
            runner.run(scenario())


@pytest.fixture
def rounds():
    with Ledger(":memory:") as ledger:
        yield Rounds(ledger)


def test_a_run_with_absent_hospitals_waits_the_deadline_once_and_waits_again_when_one_connects(rounds):
    async def scenario():
        for name in SEATS[:2]:
            await rounds.connect(name)
        assert await rounds.round() == (set(SEATS[:2]), 64.0)
        for _ in range(20):
            assert await rounds.round() == (set(SEATS[:2]), 0.0)
        assert set(rounds.sessions.silences.of) == set(SEATS[2:])
        await rounds.connect(SEATS[2])
        rounds.after_s[SEATS[2]] = 60.0
        assert await rounds.round() == (set(SEATS[:3]), 60.0)
        assert rounds.sessions.silences.of[SEATS[2]].answered
        assert not rounds.sessions.silences.of[SEATS[3]].answered

    rounds.run(scenario)


def test_a_connected_hospital_that_says_nothing_is_asked_in_every_round_and_waited_for_ever_more_rarely(rounds):
    async def scenario():
        for name in SEATS:
            await rounds.connect(name)
        rounds.after_s = {SEATS[3]: 1e9}
        took_s = []
        for _ in range(500):
            voted, each_s = await rounds.round()
            assert voted == set(SEATS[:3])
            took_s.append(each_s)
        waited = [number for number, each_s in enumerate(took_s) if each_s == 64.0]
        assert took_s.count(IN_ANY_CASE_S) + len(waited) == 500
        # After 2, 4, 8 and 16 deadlines of 64 s, in rounds of 2 s.
        assert waited == [0, 65, 194, 451]
        assert rounds.asked.count(SEATS[3]) == 500
        rounds.after_s.clear()
        assert await rounds.round() == (set(SEATS), 0.0)

    rounds.run(scenario)


@pytest.mark.parametrize("answers", [1, 17])
@pytest.mark.parametrize("relayed", [False, True])
def test_a_hospital_that_answers_between_its_silences_costs_a_small_part_of_the_time(rounds, answers, relayed):
    """Rounds take 10 s, and it is silent whenever it is waited for and has answered so many times before."""

    async def scenario():
        for name in SEATS:
            await rounds.connect(name)
        others, lost_s, answered, count = SEATS[:3], 0.0, 0, 300
        for _ in range(count):
            rounds.after_s = dict.fromkeys(others, 10.0)
            now_s = asyncio.get_running_loop().time()
            mute = answered >= answers and rounds.sessions.silences.expected(SEATS[3], SEATS, now_s=now_s)
            rounds.after_s[SEATS[3]] = 1e9 if mute else 0.0
            if relayed:
                voted, took_s = await rounds.round(seats=SEATS[3:], relayed=True)
                lost_s += took_s
                await asyncio.sleep(10.0)
            else:
                voted, took_s = await rounds.round()
                lost_s += took_s - 10.0
            assert (SEATS[3] in voted) == (not mute)
            answered = 0 if mute else answered + 1
        assert 0.0 < lost_s <= 4 * 64.0 + 10.0 * count / 16

    rounds.run(scenario)


def test_a_round_that_needs_a_silent_hospital_waits_for_it_if_it_is_connected(rounds):
    async def scenario():
        for name in SEATS[:2]:
            await rounds.connect(name)
        rounds.after_s = {SEATS[1]: 1e9}
        assert await rounds.round() == ({SEATS[0]}, 64.0)
        # One of four answers, and two are needed.
        assert await rounds.round() == ({SEATS[0]}, 64.0)
        assert await rounds.round(seats=SEATS[1:2]) == (set(), 64.0)
        assert await rounds.round(seats=SEATS[1:2], relayed=True) == (set(), 64.0)
        assert await rounds.round(seats=SEATS[2:3]) == (set(), 0.0), "it is not connected"

    rounds.run(scenario)


def test_one_that_connects_and_never_answers_delays_no_more_than_one_that_stays_silent():
    silences, now_s, waited = Silences(clock=lambda: 5.0), 0.0, 0
    for _ in range(100):
        silences.connected("a")
        if not silences.spared({"a", "b", "c"}, {"a", "b", "c"}, others=0, needed=2, now_s=now_s):
            now_s += 64.0
            silences.missed("a", deadline_s=64.0, now_s=now_s)
            waited += 1
        now_s += 1.0
    assert waited <= 4
    assert silences.of["a"].since_s == 5.0


def test_who_is_waited_for_follows_from_who_answered_alone():
    """Not from names, requests or replies: the state of a party is a function of its own times of answering."""
    one, other = Silences(clock=lambda: 1.0), Silences(clock=lambda: 1.0)
    for silences, name in ((one, "a"), (other, "b")):
        silences.missed(name, deadline_s=64.0, now_s=70.0)
        silences.missed(name, deadline_s=64.0, now_s=150.0)
        silences.connected(name)
    assert one.of["a"] == other.of["b"]
    one.answered("a", now_s=150.0 + 64 * 64.0)
    assert one.of == {}
