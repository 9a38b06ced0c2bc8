"""The frames that a node still has to send, with a limit on how many may wait."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator

from protocols.errors import Refused
from protocols.refusals.code import Code

_LAST_WORDS_S = 1.0
_LOOK_S = 0.1
_UNSENT = 4


class Outgoing:
    """The frames still to be sent: an iterator that ends when it is closed and empty."""

    def __init__(self) -> None:
        # A coordinator that asks but does not read gets no more answers: they would pile up.
        self._frames: queue.Queue[bytes | None] = queue.Queue(_UNSENT)
        self._drained = threading.Event()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        frame = self._frames.get()
        if frame is None:
            self._drained.set()
            raise StopIteration
        return frame

    def put(self, frame: bytes, *, waits: Callable[[], bool]) -> None:
        """Queues a frame. Waits for room while `waits()` is true; then raises Refused("not_read")."""
        while True:
            try:
                return self._frames.put(frame, timeout=_LOOK_S)
            except queue.Full:
                if not waits():
                    raise Refused(
                        Code.NOT_READ, "the coordinator does not read the answers that it asked for"
                    ) from None

    def close(self) -> None:
        """Ends the iterator; waits a moment until the last frames, such as a goodbye, are taken."""
        try:
            self._frames.put(None, timeout=_LAST_WORDS_S)
        except queue.Full:
            return
        self._drained.wait(_LAST_WORDS_S)
