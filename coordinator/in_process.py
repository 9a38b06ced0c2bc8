"""The transport of one process: parties are objects that handle messages directly."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from protocols.messages import Reply, Request


class InProcess:
    """exchange({party: request}) by calling each party's handler; no bytes are made.

    `absent`: which parties do not answer one message round, given the round's requests (drop-outs of a
    simulation); None for nobody.
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
