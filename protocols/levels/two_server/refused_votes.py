"""How often a guardian refused a seat's votes: after three batches it takes no more of them in the study.

A hospital whose votes are refused cheats, or its software is broken, or else, where queries are hidden, the querying
party spoilt them: inside private inference it can make a vote malformed or not by what the vote is, so that each
refusal tells it a bit without noise. Nobody but the hospital can tell these apart, and all three end here.
"""

from __future__ import annotations

from collections.abc import Iterable

from protocols.ledger.ledger import Ledger

# An accident of the line or the disk refuses no votes, so an honest pair never comes this far.
MOST_REFUSED = 3


class RefusedVotes:
    """Counts in the ledger, under the study, the batches in which each seat's votes were refused."""

    def __init__(self, ledger: Ledger, study: bytes) -> None:
        self._ledger, self._study = ledger, study

    def count(self, seats: Iterable[str], request: bytes) -> None:
        """Counts one batch, by its request, for each of these seats; again changes nothing."""
        with self._ledger.log.together():
            for seat in seats:
                for at in range(MOST_REFUSED):
                    if self._ledger.note(self._study, _kind(seat, at), request) == request:
                        break

    def bars(self, seat: str, request: bytes) -> bool:
        """Whether a seat's votes are no longer taken in a batch: those of as many other batches were refused."""
        noted = (self._ledger.noted(self._study, _kind(seat, at)) for at in range(MOST_REFUSED))
        return all(each is not None and each != request for each in noted)


def _kind(seat: str, at: int) -> str:
    return f"refused {at} {seat}"
