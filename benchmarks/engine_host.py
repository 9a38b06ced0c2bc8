"""The Host of benchmarks/engines.py: replies with as many bytes as a vote on 1,000 queries, no more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

VOTE_BYTES = 2 * 1_000


class IdleHost:
    """A party's reply is its request repeated to the length of a vote."""

    def handle(self, requests: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        for party, request in requests.items():
            yield party, (request * VOTE_BYTES)[:VOTE_BYTES]


def open_host() -> IdleHost:
    """The factory that HostSpec names."""
    return IdleHost()
