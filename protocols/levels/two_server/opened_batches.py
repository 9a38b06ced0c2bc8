"""How many batches of a study a server opens that are never settled: three, then it opens no other.

Whether the servers' evaluations of a batch agree is a bit, and a malicious server may choose of what (agreement.py).
Where they differ, no label is signed and the batch is never settled; nor is it if that server leaves with its bit. An
honest pair repeats a batch that broke off until it is settled, and a settled batch is not counted. Giving a batch up
does not uncount it: the other server is not told, and would only have the first one's word.

What this bounds is wrong guesses. Evaluations that agree are settled, and leave no trace.
"""

from __future__ import annotations

from protocols.errors import Refused
from protocols.ledger.ledger import Ledger
from protocols.refusals.code import Code

# Honest servers leave a batch open only if it is given up between the opening and its settlement, or if a machine
# computes wrongly: three leave room for that.
MOST_OPENED = 3


class OpenedBatches:
    """Keeps in a server's ledger, under the study, the requests of batches that were opened and are not settled.

    other: the other server, as messages name it.
    """

    def __init__(self, ledger: Ledger, study: bytes, *, other: str) -> None:
        self._ledger, self._study, self._other = ledger, study, other

    def check(self, request: bytes | None = None) -> None:
        """Raises Refused("too_many_opened") if neither this batch, nor a new one if None, may be opened any more."""
        if self._settled(request) or request in (kept := [self._ledger.noted(self._study, kind) for kind in _KINDS]):
            return
        if all(each is not None and not self._settled(each) for each in kept):
            raise Refused(
                Code.TOO_MANY_OPENED,
                f"{MOST_OPENED} batches were opened with {self._other}, and not settled; allowed: these batches again",
            )

    def count(self, request: bytes) -> None:
        """Counts a batch before it is opened; again changes nothing. Raises as `check` does: then it is not counted."""
        with self._ledger.log.together():
            self.check(request)
            kept = {kind: self._ledger.noted(self._study, kind) for kind in _KINDS}
            if request in kept.values() or self._settled(request):
                return
            free = next(kind for kind, each in kept.items() if each is None or self._settled(each))
            self._ledger.forget(self._study, free)
            self._ledger.note(self._study, free, request)

    def _settled(self, request: bytes | None) -> bool:
        number = None if request is None else self._ledger.number_of(request)
        stored = None if number is None else self._ledger.stored(number)
        return stored is not None and stored.settled


_KINDS = tuple(f"opened {at}" for at in range(MOST_OPENED))
