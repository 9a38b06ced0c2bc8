"""How often a guardian refused a seat's votes where queries are hidden: after three batches it takes no more of them.

A hospital whose votes are refused cheats, or its software is broken, or else the querying party spoilt them: inside
private inference it can make a vote malformed or not by what the vote is, so that each refusal tells it a bit without
noise. Nobody but the hospital can tell these apart, and all three end here. At `two_server` a refusal tells nothing
of a vote, and a bar would let one server shut a hospital out: none is kept there.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from jaxtyping import Bool
from numpy import ndarray

from protocols.ledger.ledger import Ledger

# An accident of the line or the disk refuses no votes, so an honest pair never comes this far.
MOST_REFUSED = 3


class RefusedVotes:
    """Counts in the ledger, under the study, the batches in which each seat's votes were refused.

    hidden: whether queries are; otherwise nothing is counted, and nobody barred.
    """

    def __init__(self, ledger: Ledger, study: bytes, *, hidden: bool) -> None:
        self._ledger, self._study, self._hidden = ledger, study, hidden

    def count(self, seats: Iterable[str], request: bytes) -> None:
        """Counts one batch, by its request, for each of these seats; again changes nothing."""
        with self._ledger.log.together():
            for seat in seats if self._hidden else ():
                for at in range(MOST_REFUSED):
                    if self._ledger.note(self._study, _kind(seat, at), request) == request:
                        break

    def barred(self, seats: Iterable[str]) -> Bool[ndarray, " seats"]:
        """Of which seats no further batch takes votes: those of as many batches were refused."""
        kept = [[self._ledger.noted(self._study, _kind(seat, at)) for at in range(MOST_REFUSED)] for seat in seats]
        return np.array([None not in each for each in kept], dtype=np.bool_)


def _kind(seat: str, at: int) -> str:
    return f"refused {at} {seat}"
