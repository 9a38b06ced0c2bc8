"""An allowance: how many faults the other side may commit in a burst and over time (a token bucket).

It is kept per party, not per connection, so reconnecting does not refill it. It holds two numbers.
"""

from __future__ import annotations


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
