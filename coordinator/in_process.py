"""An in-process transport: parties are objects that handle messages directly, and a guardian is a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from protocols.crypto.channel import Channel, pair
from protocols.errors import ConclaveError
from protocols.labelling.guardian import Guardian
from protocols.wire.messages import Reply, Request


class InProcessTransport:
    """exchange({party: request}) by calling each party's handler; messages are not encoded.

    `absent`: returns the parties that do not answer a round, given its requests (a simulation's drop-outs); None if all
    answer.
    """

    def __init__(
        self,
        handlers: Mapping[str, Callable[[Request], Reply]],
        *,
        absent: Callable[[Mapping[str, Request]], frozenset[str]] | None = None,
    ) -> None:
        self._handlers = handlers
        self._absent = absent

    def __call__(self, requests: Mapping[str, Request]) -> dict[str, Reply | None]:
        missing = self._absent(requests) if self._absent else frozenset()
        return {
            party: None if party in missing else self._handlers[party](request) for party, request in requests.items()
        }


# One end computes while the other waits, both on one machine.
_WAIT_S = 300.0


class GuardianInProcess:
    """A guardian in threads of this process. dial: for an aggregation; faults: errors with which conversations ended.

    wrap: wraps the guardian's end of each channel, for tests.
    """

    def __init__(self, guardian: Guardian, *, wrap: Callable[[Channel], Channel] = lambda channel: channel) -> None:
        self.guardian = guardian
        self.faults: list[ConclaveError | None] = []
        self._wrap = wrap

    @contextmanager
    def dial(self) -> Iterator[Channel]:
        """A channel to the guardian for one conversation."""
        here, there = pair(wait_s=_WAIT_S)

        def serve() -> None:
            fault: ConclaveError | None = None
            try:
                self.guardian.serve(self._wrap(there))
            except ConclaveError as error:  # the other end is told, or notices the closed channel
                fault = error
            finally:
                there.close()
            self.faults.append(fault)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield here
        finally:
            here.close()
            thread.join()
