"""Asking late seats again: a round by hand, and a clock that moves when somebody waits."""

import numpy as np
import pytest

from coordinator.labelling.late_seats import LateSeats
from protocols.study.queries import QueryBatch
from protocols.wire.messages import Outcome, Refusal, VoteReply, VoteRequest
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


def test_an_outcome_that_a_seat_did_not_answer_is_not_sent_again_at_once():
    rounds = Rounds({SEATS[1]: [LATE]})
    assert rounds.ask(dict.fromkeys(SEATS, Outcome(STUDY.digest, bytes(32), np.ones(5, bool))))[SEATS[1]] is LATE
    assert len(rounds.rounds) == 1


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


def test_waits_between_rounds_grow_within_bounds():
    rounds = Rounds({SEATS[1]: [LATE] * 40})
    rounds.ask(request())
    assert rounds.waits == sorted(rounds.waits)
    assert 1.0 <= rounds.waits[0] < rounds.waits[-1] == 60.0


def test_one_liar_holds_no_batch_up_for_long_where_the_others_are_a_quorum():
    rounds = Rounds({SEATS[1]: [LATE] * 1000}, patience_s=86_400.0, study=SPARED)
    assert rounds.ask(request()) == {SEATS[0]: VOTES, SEATS[1]: LATE, SEATS[2]: VOTES}
    assert rounds.now <= 8 * 30.0
    for number in range(1, 5):  # asked once in each batch, as every seat is
        before = len(rounds.rounds)
        assert rounds.ask(request(number))[SEATS[1]] is LATE
        assert len(rounds.rounds) == before + 1


def test_a_slow_seat_that_votes_each_time_is_in_every_batch_though_the_others_are_a_quorum():
    rounds = Rounds({}, patience_s=86_400.0, study=SPARED)
    for number in range(20):
        rounds.said[SEATS[1]] = [LATE, LATE]
        assert rounds.ask(request(number))[SEATS[1]] is VOTES


def test_a_late_seat_is_waited_for_where_too_few_of_the_others_voted():
    rounds = Rounds({SEATS[1]: [LATE] * 30, SEATS[2]: [Refusal("withdrawn", "no")]}, study=SPARED)
    assert rounds.ask(request())[SEATS[1]] is VOTES
