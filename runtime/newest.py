"""The newest of a value that may take long to make: whoever asks waits a moment, and otherwise gets the one before."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Newest(Generic[T]):
    """Calls `make` on a thread of its own, at most one at a time, from any number of threads."""

    def __init__(self, make: Callable[[], T], *, patience_s: float) -> None:
        """patience_s: how long a caller waits for a new value, once there is one before it."""
        self._make = make
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._making: threading.Thread | None = None
        self._made: list[T] = []
        self._failed: list[BaseException] = []

    def __call__(self) -> T:
        """The newest value. Raises what `make` raised where there is none yet, or it failed just now."""
        with self._lock:
            if self._making is None or not self._making.is_alive():
                self._failed.clear()
                self._making = threading.Thread(target=self._run, name="newest", daemon=True)
                self._making.start()
            making = self._making
        making.join(self._patience_s if self._made else None)
        if self._failed:
            raise self._failed[-1]
        return self._made[-1]

    def _run(self) -> None:
        try:
            self._made = [self._make()]
        except BaseException as error:  # noqa: BLE001  # it is raised again by the thread that waits
            self._failed.append(error)
