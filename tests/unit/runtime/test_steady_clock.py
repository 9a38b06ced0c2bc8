"""A jump of the clock is seen against one that only goes on; a correction that holds is taken."""

import pytest

from runtime.steady_clock import SteadyClock
from tests.harness.refusals import refused_for


class Clocks:
    """The time of day, which is set, and seconds that only go on."""

    def __init__(self):
        self.day, self.passed = 1e9, 0.0
        self.clock = SteadyClock(wall=lambda: self.day + self.passed, monotonic=lambda: self.passed)


@pytest.mark.parametrize("jump_s", [100 * 86_400.0, -86_400.0, 301.0])
def test_a_jump_of_seconds_is_seen_and_over_when_the_clock_is_back(jump_s):
    made = Clocks()
    made.passed += 5000
    made.clock.check()
    made.day += jump_s
    assert made.clock.jumped_s() == pytest.approx(jump_s)
    with refused_for("clock_jumped"):
        made.clock.check()
    made.passed += 60
    assert made.clock.jumped_s()
    made.day -= jump_s
    made.clock.check()
    made.day += jump_s
    assert made.clock.jumped_s()


def test_a_clock_that_is_set_right_is_trusted_once_it_has_held():
    made = Clocks()
    made.day += 86_400
    assert made.clock.jumped_s()
    made.passed += 599
    assert made.clock.jumped_s()
    made.passed += 2
    assert made.clock.jumped_s() == 0.0
    made.day -= 86_400
    assert made.clock.jumped_s()


def test_a_clock_that_jumps_again_and_again_has_not_held():
    made = Clocks()
    for _ in range(10):
        made.day += 86_400
        made.passed += 300
        assert made.clock.jumped_s()


def test_a_clock_that_drifts_or_is_corrected_by_a_little_is_trusted():
    made = Clocks()
    for _ in range(100):
        made.day += 60
        made.passed += 3600
        assert made.clock.jumped_s() == 0.0
