"""What a relay knows of the budgets of a study that a hospital asks in: at most so much is spent of each.

The asking hospital has the ledger; the relay sees which queries it asks of whom, and what each party says that it has
spent after an outcome. Whatever passes is counted at its worst case before it is passed on, until a receipt says less.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import numpy as np

from protocols.accounting.ledger import Ledger
from protocols.messages import VoteRequest
from protocols.study import Study

_KIND = "relayed_standing "
# Batches of a seat that are counted one by one; an honest querying party has one under way.
_MOST_OPEN = 64


@dataclass(frozen=True)
class Standing:
    """One seat. asked: positions up to which queries were asked; batches: numbers below which; spent: nano-units of the
    newest receipt; open: batch number to nano-units of what may have been charged since."""

    asked: int = 0
    batches: int = 0
    spent: int = 0
    open: dict[int, int] = field(default_factory=dict)

    @property
    def at_most(self) -> int:
        """Nano-units that the seat may have spent, if its receipt is true and its own cap does not stop it before."""
        return self.spent + sum(self.open.values())


def standing(ledger: Ledger, study: Study, seat: str) -> Standing:
    """What is known of a seat; all of it 0 where nothing was passed on to it."""
    noted = ledger.noted(study.digest, _KIND + seat)
    if noted is None:
        return Standing()
    asked, batches, spent, pending = json.loads(noted)
    return Standing(asked, batches, spent, {int(number): amount for number, amount in pending.items()})


def count_request(ledger: Ledger, study: Study, seat: str, request: VoteRequest) -> None:
    """Counts a batch at its worst case; it is on disk before the batch is passed on. Asked again, it counts once."""
    ids, at = request.batch.ids, study.seats[seat]
    if len(ids) > study.batch_limit or int(ids.max()) >= study.query_limit:
        return  # the party refuses it, and charges nothing
    takes_part = int(study.participation.of(at).votes(ids)[0].sum())
    worst, number = int(study.budgets.amount(takes_part, takes_part)[at]), request.batch.number
    with ledger.log.together():
        known = standing(ledger, study, seat)
        pending = {**known.open, number: max(worst, known.open.get(number, 0))}
        if len(pending) > _MOST_OPEN:
            pending = {max(pending): min(sum(pending.values()), int(study.budgets.cap[at]))}
        asked, batches = max(known.asked, int(ids.max()) + 1), max(known.batches, number + 1)
        _write(ledger, study, seat, Standing(asked, batches, known.spent, pending))


def count_receipt(ledger: Ledger, study: Study, seat: str, number: int, spent: int) -> None:
    """Counts what a party says that it has spent in all, after it settled a batch: that holds batches up to it."""
    with ledger.log.together():
        known = standing(ledger, study, seat)
        pending = {batch: amount for batch, amount in known.open.items() if batch > number}
        _write(ledger, study, seat, Standing(known.asked, known.batches, spent, pending))


def at_most(ledger: Ledger, study: Study) -> tuple[np.ndarray, int, int]:
    """Nano-units that each seat has spent at most; queries and batches that were asked."""
    known = [standing(ledger, study, seat.party) for seat in study.roster]
    spent = np.minimum(np.array([min(each.at_most, 2**62) for each in known], np.int64), study.budgets.cap)
    return spent, max(each.asked for each in known), max(each.batches for each in known)


def _write(ledger: Ledger, study: Study, seat: str, known: Standing) -> None:
    value = json.dumps([known.asked, known.batches, known.spent, known.open]).encode()
    ledger.forget(study.digest, _KIND + seat)
    ledger.note(study.digest, _KIND + seat, value)
