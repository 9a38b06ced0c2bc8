"""Whether a clock jumped: the time of day is held against a clock that only goes on.

What is dated by a clock that is wrong for seconds may be wrong for years: a certificate, above all. So nothing of that
kind is decided while the time of day is not where it would be, had it gone on steadily. A clock that was wrong and is
set right jumps too: its new course is taken once it has held for a while.
"""

from __future__ import annotations

from collections.abc import Callable

from protocols.errors import Refused
from protocols.refusals.code import Code

TOLERANCE_S = 300.0
_HELD_S = 600.0


class SteadyClock:
    """wall: seconds since 1970; monotonic: seconds of a clock that nobody sets. Trusted as it is when this is made."""

    def __init__(self, *, wall: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._trusted = wall() - monotonic()
        # Another course than the trusted one, and since when.
        self._other: tuple[float, float] | None = None

    def jumped_s(self) -> float:
        """By how much the time of day is ahead of its steady course, in seconds; 0 within TOLERANCE_S of it.

        Another course is trusted when it has held for ten minutes, looked at now and then.
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
        """Raises Refused("clock_jumped") while nothing is to be dated by this clock."""
        jumped_s = self.jumped_s()
        if jumped_s:
            raise Refused(
                Code.CLOCK_JUMPED,
                f"this machine's clock jumped by {jumped_s:+.0f} s; allowed: {TOLERANCE_S:g} s: certificates are "
                "issued again once it is set right, or has held its new course for ten minutes",
            )
