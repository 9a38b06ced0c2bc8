"""A transport: one message out to each party, one message (or nothing) back from each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from protocols.wire.messages import Reply, Request


@runtime_checkable
class Transport(Protocol):
    """exchange({party: request}) -> {party: reply | None}; None for a party that did not answer in time.

    A transport never retries with another message and never drops a party from the result.
    """

    def __call__(self, requests: Mapping[str, Request]) -> dict[str, Reply | None]: ...
