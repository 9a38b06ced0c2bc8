"""How long the teachers take for a whole batch, measured before anything is asked."""

import threading

import pytest

from tests.harness.clocks import wait_until
from tests.harness.teacher_children import REASONS, batch

# Teachers run in a process: one for nearly every test.
pytestmark = pytest.mark.usefixtures("forked")


def test_the_time_of_a_whole_batch_is_measured_and_its_votes_are_dropped(gated):
    ticks = iter(range(0, 1000, 7))
    child, events = gated.make(clock=lambda: float(next(ticks)))
    child.warm()
    gated.let(2)
    assert child.measure(batch()) >= 7.0
    assert child._kept == {}
    assert events == ["teachers_started", "teachers_ready"]
    child.rest()  # a trial is no question
    assert events[-1] == "teachers_ended"


def test_a_deadline_that_is_too_short_for_this_machine_is_said_with_the_time_before_anything_is_asked(gated):
    now = [0.0]
    child, events = gated.make(deadline_s=0.05, clock=lambda: now[0])
    child.warm()
    assert child.measure(batch()) == 0.0
    assert events[-1] == "deadline_short"
    assert (
        "predicting 5 queries takes 0 s here and more; the study's deadline is 0.05 s: ask the operator" in REASONS[-1]
    )
    # It was given up: what is asked next is predicted by the same process.
    child._deadline_s = 60.0
    gated.let(1 + 2)
    assert child(batch(number=1)).shape == (2, 5)
    assert events.count("teachers_started") == 1


def test_a_question_that_comes_during_the_measuring_takes_its_place(gated):
    child, events = gated.make(deadline_s=600.0, stalled_s=600.0)
    child.warm()
    measured = []
    measuring = threading.Thread(target=lambda: measured.append(child.measure(batch())))
    measuring.start()
    wait_until(lambda: child._wishes.task is not None)
    votes = []
    asking = threading.Thread(target=lambda: votes.append(child(batch(number=1))))
    asking.start()
    wait_until(lambda: child._wishes.task.digest == batch(number=1).digest)
    gated.let(1 + 2)
    asking.join()
    assert votes[0].shape == (2, 5)
    measuring.join()
    assert "deadline_short" not in events
    assert measured == [None]
