"""Whether the clock jumped, and how many faults the other side may commit over time.

A certificate dated by a clock that is wrong for seconds may be wrong for years. So none is issued while the time of day
disagrees with the monotonic clock. Correcting a wrong clock is a jump too: the new time is trusted once it has held for
a while. Faults are allowed per party, not per connection, so reconnecting does not refill an allowance.
"""

from __future__ import annotations

from collections.abc import Callable

from protocols.errors import Refused
from protocols.refusals.code import Code

TOLERANCE_S = 300.0
_HELD_S = 600.0


class SteadyClock:
    """wall: seconds since 1970; monotonic: seconds of a monotonic clock. The time at creation is trusted."""

    def __init__(self, *, wall: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._trusted = wall() - monotonic()
        # How far an untrusted time differs from the trusted one, and since when.
        self._other: tuple[float, float] | None = None

    def jumped_s(self) -> float:
        """How far the time of day is ahead of the monotonic clock, in seconds; 0 within TOLERANCE_S.

        A new time is trusted once it has held for ten minutes, as seen by repeated calls.
        """
        now = self._monotonic()
        course = self._wall() - now
        if abs(course - self._trusted) <= TOLERANCE_S:
            self._trusted, self._other = course, None
            return 0.0
        if self._other is None or abs(course - self._other[0]) > TOLERANCE_S:
            self._other = (course, now)
        elif now - self._other[1] >= _HELD_S:
            self._trusted, self._other = course, None
            return 0.0
        return course - self._trusted

    def check(self) -> None:
        """Raises Refused("clock_jumped") while this clock should date nothing."""
        jumped_s = self.jumped_s()
        if jumped_s:
            raise Refused(
                Code.CLOCK_JUMPED,
                f"this machine's clock jumped by {jumped_s:+.0f} s; allowed: {TOLERANCE_S:g} s: certificates are "
                "issued again once it is corrected, or has kept its new time for ten minutes",
            )


class Allowance:
    """`most` in a burst, and one more every `each_s` seconds up to `most`. Times are those of a monotonic clock."""

    def __init__(self, *, most: int, each_s: float) -> None:
        self._most = most
        self._each_s = each_s
        self._left = float(most)
        self._since_s: float | None = None

    def take(self, now_s: float) -> bool:
        """Uses one; returns whether one was available."""
        if not self.remains(now_s):
            return False
        self._left -= 1
        return True

    def remains(self, now_s: float) -> bool:
        """Whether one is available."""
        if self._since_s is not None:
            self._left = min(self._most, self._left + max(0.0, now_s - self._since_s) / self._each_s)
        self._since_s = now_s
        return self._left >= 1
