"""Who may hold conversations with a guardian, how many at once, and how often it is logged that one is turned away.

Every hospital of the consortium has a certificate that TLS accepts. None of them may keep those out that a study names,
nor fill the log. Memory is bounded by the number of certificates: names come only from these.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from protocols.crypto.identity import Identity
from protocols.errors import Refused
from protocols.refusals.code import Code

# Conversations at once: of everybody, and of one caller, who has one a study and checks besides.
CONVERSATIONS, _EACH = 64, 16


class Callers:
    """asks(name): whether an approved study names this party as the one that asks. From any thread."""

    def __init__(self, *, asks: Callable[[str], bool]) -> None:
        self._asks = asks
        self._lock = threading.Lock()
        self._open: Counter[str] = Counter()
        self._turned_away: Counter[tuple[str, str]] = Counter()

    @contextmanager
    def conversation(self, caller: Identity) -> Iterator[None]:
        """Counts a conversation while it lasts. Raises Refused before anything of it is read: "not_querier", "busy"."""
        if caller.role == "party" and not self._asks(caller.name):
            raise Refused(
                Code.NOT_QUERIER, f"{caller.name!r} asks; allowed: the querier of a study that this guardian approved"
            )
        with self._lock:
            if self._open[caller.name] >= _EACH:
                raise Refused(
                    Code.BUSY, f"{caller.name!r} has {_EACH} conversations open; allowed: so many; ask again later"
                )
            self._open[caller.name] += 1
        try:
            yield
        finally:
            with self._lock:
                self._open[caller.name] -= 1

    def turned_away(self, name: str, code: str) -> int:
        """Counts that a caller was turned away ("" for one without a valid certificate); returns how often that
        happened, or 0 where it need not be logged: only the 1st, 2nd, 4th, 8th ... time."""
        with self._lock:
            self._turned_away[name, code] += 1
            times = self._turned_away[name, code]
        return 0 if times & (times - 1) else times
