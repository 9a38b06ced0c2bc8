"""Asking late seats again: a round by hand, and a clock that moves when somebody waits."""

import numpy as np
import pytest

from coordinator.connection.sessions import Silences
from coordinator.labelling.late_seats import LateSeats
from protocols.study.queries import QueryBatch
from protocols.wire.messages import Refusal, VoteReply, VoteRequest
from tests.harness.studies import deployed_study

# Every seat is needed; or the others are a quorum.
STUDY = deployed_study(3, deadline_s=30.0, quorum=3)
SPARED = deployed_study(3, deadline_s=30.0, quorum=2)
SEATS = [seat.party for seat in STUDY.roster]
VOTES = VoteReply(bytes(32), np.zeros((1, 5), np.int64))
LATE = Refusal("teachers_late", "teachers_late: predicting 5 queries has taken 25 s and continues")


def request(number=0):
    ids = np.arange(5) + 5 * number
    return dict.fromkeys(SEATS, VoteRequest(STUDY.digest, b"r", QueryBatch(number, ids, np.zeros((5, 4), np.float32))))


class Rounds:
    """Each round takes the deadline. said: seat to what it says, round after round; votes at the end of the list."""

    def __init__(self, said, *, patience_s=10_000.0, study=STUDY):
        self.said, self.now, self.rounds, self.waits, self.told, self.events = said, 0.0, [], [], [], []
        self.late = LateSeats(
            study,
            patience_s=patience_s,
            wait=self.wait,
            on_event=lambda event, fields: self.events.append((event, fields)),
            clock=lambda: self.now,
        )

    def wait(self, wait_s):
        self.waits.append(wait_s)
        self.told.append(self.late.waiting)
        self.now += wait_s

    def send(self, requests):
        self.now += 30.0
        self.rounds.append(requests)
        return {seat: self.said[seat].pop(0) if self.said.get(seat) else VOTES for seat in requests}

    def ask(self, requests):
        return self.late.ask(self.send, requests)


@pytest.mark.parametrize("late", [LATE, Refusal("late", "no answer yet after 30 s, the study's deadline")])
def test_a_late_seat_alone_is_asked_the_very_same_until_it_answers(late):
    rounds = Rounds({SEATS[1]: [late, late]})
    asked = request()
    assert rounds.ask(asked) == dict.fromkeys(SEATS, VOTES)
    assert rounds.rounds == [asked, {SEATS[1]: asked[SEATS[1]]}, {SEATS[1]: asked[SEATS[1]]}]
    assert rounds.late.waiting == ""
    assert rounds.told[0] == f"waiting for late seats: {SEATS[1]} ({late.reason.removeprefix('teachers_late: ')})"
    ((event, fields),) = rounds.events
    assert event == "answered_late"
    assert fields["reason"] == "answered after 99.3 s; the study's deadline is 30 s"
    assert f"{SEATS[1]} (1 batch, up to 99.3 s); a longer deadline_s or a smaller batch_limit" in rounds.late.summary()


@pytest.mark.parametrize("other", [None, Refusal("withdrawn", "withdrawn: no"), Refusal("teachers_failed", "no")])
def test_a_seat_that_is_absent_or_refuses_is_not_asked_again(other):
    rounds = Rounds({SEATS[1]: [other]})
    assert rounds.ask(request())[SEATS[1]] is other
    assert len(rounds.rounds) == 1
    assert rounds.late.summary() == ""


def test_a_seat_that_is_late_for_ever_costs_the_patience_once_and_not_for_each_batch():
    rounds = Rounds({SEATS[1]: [LATE] * 1000}, patience_s=600.0)
    replies = rounds.ask(request())
    assert replies[SEATS[1]] is LATE
    assert replies[SEATS[0]] is replies[SEATS[2]] is VOTES
    assert 600.0 <= rounds.now - 30.0 < 600.0 + 30.0 + 60.0
    for number in range(1, 5):
        before = len(rounds.rounds)
        assert rounds.ask(request(number))[SEATS[1]] is LATE
        assert len(rounds.rounds) == before + 1
    # Another seat's patience is its own.
    rounds.said[SEATS[2]] = [LATE]
    assert rounds.ask(request(5))[SEATS[2]] is VOTES


class Slow:
    """A study of quorum 2 of 3 in which a seat has its votes so many seconds after it was first asked about a batch."""

    def __init__(self):
        self.now, self.late_s, self.events = 0.0, 0.0, []
        self.late = LateSeats(
            SPARED, patience_s=86_400.0, wait=self.wait, on_event=lambda *event: self.events.append(event),
            clock=lambda: self.now,
        )  # fmt: skip

    def wait(self, wait_s):
        assert wait_s >= 0.0
        self.now += wait_s

    def send(self, requests):
        """As a hub: the deadline is 30 s, and a node says that it is late at its end."""
        if SEATS[1] not in requests or self.asked_s + self.late_s <= self.now + 30.0:
            self.now = max(self.now, self.asked_s + self.late_s if SEATS[1] in requests else 0.0)
            return dict.fromkeys(requests, VOTES)
        self.now += 30.0
        return dict.fromkeys(requests, VOTES) | {SEATS[1]: LATE}

    def batch(self, number, late_s):
        """Whether the seat voted, and the seconds that the batch took."""
        self.asked_s, self.late_s = self.now, late_s
        replies = self.late.ask(self.send, request(number))
        assert replies[SEATS[0]] is replies[SEATS[2]] is VOTES
        return replies[SEATS[1]] is VOTES, self.now - self.asked_s


def test_one_liar_holds_no_batch_up_for_long_where_the_others_are_a_quorum():
    slow = Slow()
    voted, took_s = slow.batch(0, 1e9)
    assert not voted
    assert took_s <= 6 * 30.0
    assert [slow.batch(number, 1e9) for number in range(1, 5)] == [(False, 30.0)] * 4


@pytest.mark.parametrize("late_s", [31.0, 60.0, 100.0, 145.0])
def test_a_seat_that_is_always_late_and_then_votes_delays_a_whole_study_by_five_deadlines(late_s):
    slow = Slow()
    batches = [slow.batch(number, late_s) for number in range(300)]
    assert sum(took_s - 30.0 for _, took_s in batches) <= 5 * 30.0
    assert max(took_s for _, took_s in batches) <= 6 * 30.0
    assert batches[-1] == (False, 30.0)
    (event, fields) = slow.events[-1]
    assert event == "left_out_late"
    assert fields["seat"] == SEATS[1]
    assert fields["reason"].startswith("no votes after 30 s, and ")
    assert slow.late.left_out() == f"left out as late: {SEATS[1]} (no votes after 30 s)"
    assert f"left out as late: {SEATS[1]} (" in slow.late.summary()


def test_a_seat_that_votes_in_time_in_between_earns_a_twentieth_of_a_deadline_each_time():
    slow = Slow()
    in_time = 0
    extra_s = 0.0
    for number in range(1000):
        late = slow.late._left_s(SEATS[1]) >= 30.0  # the worst that it can do: late whenever that costs something
        voted, took_s = slow.batch(number, 59.9 if late else 0.0)
        assert voted
        in_time += not late
        extra_s += max(took_s - 30.0, 0.0)
    assert 0.0 < extra_s <= (5 + in_time / 20) * 30.0


def test_cold_teachers_get_their_time_and_a_seat_that_was_left_out_comes_back_when_it_is_quick():
    slow = Slow()
    assert slow.batch(0, 140.0)[0], "a hospital whose node was just started"
    assert [slow.batch(number, 5.0) for number in range(1, 4)] == [(True, 5.0)] * 3
    assert not slow.batch(4, 1e9)[0]
    assert SEATS[1] in slow.late.left_out()
    assert slow.batch(5, 5.0) == (True, 5.0)
    assert slow.late.left_out() == ""


class Hurried(Slow):
    """The others answer after 1 s, and the hub does not wait for a seat that was silent often."""

    def __init__(self):
        super().__init__()
        self.silences = Silences(clock=lambda: 0.0)

    def send(self, requests):
        began, slow = self.now, SEATS[1]
        spared = self.silences.spared(set(requests), set(SEATS), others=0, needed=2, now_s=began)
        voted = self.asked_s + self.late_s <= began + (1.0 if slow in spared else 30.0)
        self.now = max(began + 1.0, self.asked_s + self.late_s if voted else began if slow in spared else began + 30.0)
        if voted:
            self.silences.answered(slow, now_s=self.now)
        elif slow not in spared:
            self.silences.missed(slow, deadline_s=30.0, now_s=self.now)
        return dict.fromkeys(requests, VOTES) | ({} if voted else {slow: LATE})


def test_a_seat_that_was_silent_often_and_then_votes_within_the_deadline_is_left_out_of_nothing():
    hurried = Hurried()
    assert all(hurried.batch(number, 33.0)[0] for number in range(4))
    assert {hurried.batch(number, 10.0) for number in range(4, 60)} == {(True, 10.0)}
    assert len(hurried.events) == 4, "what was within the deadline is not said to be late"
    # One that never votes is left out for good after its extra time, as before.
    took_s = [hurried.batch(number, 1e9)[1] for number in range(60, 160)]
    assert sum(took_s) <= 5 * 30.0 + 3 * 30.0 + 2 * len(took_s)


def test_a_late_seat_is_waited_for_where_too_few_of_the_others_voted():
    rounds = Rounds({SEATS[1]: [LATE] * 30, SEATS[2]: [Refusal("withdrawn", "no")]}, study=SPARED)
    assert rounds.ask(request())[SEATS[1]] is VOTES
