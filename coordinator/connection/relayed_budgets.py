"""What a relay knows about the budgets of a querying hospital's study: an upper bound on each seat's spend.

The querying hospital has the ledger; the relay sees which queries it sends to whom, and what each party says it has
spent after an outcome. Every request is counted at its worst case before it is relayed, until a receipt says less.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import numpy as np

from protocols.errors import Refused
from protocols.ledger.ledger import Ledger
from protocols.reading import parse_json
from protocols.refusals.code import Code
from protocols.study.study import Study
from protocols.wire.messages import VoteRequest

_KIND = "relayed_standing "
# Batches of a seat that are counted one by one; an honest querying party has one in flight.
_MOST_OPEN = 64
# Stands in for a batch number if there are more: all of them are counted together.
_MERGED = -1


@dataclass(frozen=True)
class Open:
    """What may have been charged for a batch since the newest receipt. tick: the request count at its newest
    request.
    """

    amount: int
    tick: int


@dataclass(frozen=True)
class RelayedSeat:
    """One seat. asked: queries before this position were asked; batches: batch numbers below this were used; spent:
    nano-units by the newest receipt, made when the seat's log had `entries` entries; ticks: requests counted."""

    asked: int = 0
    batches: int = 0
    spent: int = 0
    open: dict[int, Open] = field(default_factory=dict)
    entries: int = 0
    ticks: int = 0

    @property
    def at_most(self) -> int:
        """The most that the seat can have spent, in nano-units, if its receipt is true; ignores its own cap."""
        return self.spent + sum(each.amount for each in self.open.values())


def relayed_seat(ledger: Ledger, study: Study, seat: str) -> RelayedSeat:
    """What is known about a seat; all 0 if nothing was relayed to it."""
    noted = ledger.noted(study.digest, _KIND + seat)
    if noted is None:
        return RelayedSeat()
    asked, batches, spent, pending, entries, ticks = parse_json(noted, where=f"the ledger: what is known of {seat}")
    opened = {int(number): Open(*each) for number, each in pending.items()}
    return RelayedSeat(asked, batches, spent, opened, entries, ticks)


def count_request(ledger: Ledger, study: Study, seat: str, request: VoteRequest) -> int:
    """Counts a batch at its worst case, on disk before the batch is relayed. A repeated batch counts once.

    Returns the tick of this request: its position among those to this seat. Raises Refused("batch_too_large"),
    ("query_limit") for a request that every party would refuse without charge: then nothing is counted.
    """
    ids, at = request.batch.ids, study.seats[seat]
    if len(ids) > study.batch_limit:
        raise Refused(Code.BATCH_TOO_LARGE, f"{len(ids)} queries asked; allowed: at most {study.batch_limit}")
    if int(ids.max()) >= study.query_limit:
        raise Refused(Code.QUERY_LIMIT, f"query {ids.max()} asked; allowed: 0 to {study.query_limit - 1}")
    takes_part = int(study.participation.of(at).votes(ids)[0].sum())
    worst, number = int(study.budgets.amount(takes_part, takes_part)[at]), request.batch.number
    with ledger.log.together():
        known = relayed_seat(ledger, study, seat)
        tick, before = known.ticks, known.open.get(number)
        pending = {**known.open, number: Open(worst if before is None else max(worst, before.amount), tick)}
        if len(pending) > _MOST_OPEN:
            whole = sum(each.amount for each in pending.values())
            pending = {_MERGED: Open(min(whole, int(study.budgets.cap[at])), tick)}
        asked, batches = max(known.asked, int(ids.max()) + 1), max(known.batches, number + 1)
        _write(ledger, study, seat, RelayedSeat(asked, batches, known.spent, pending, known.entries, tick + 1))
    return tick


def count_receipt(
    ledger: Ledger, study: Study, seat: str, number: int, spent: int, *, entries: int, before_tick: int
) -> None:
    """Records what a party says it has spent in total after it settled a batch.

    entries: the length of its log at its answer, so that an older receipt that arrives late does not replace a newer
    one. before_tick: its total includes this batch and the requests before this tick; others may have come later.
    """
    with ledger.log.together():
        known = relayed_seat(ledger, study, seat)
        pending = {batch: each for batch, each in known.open.items() if batch != number and each.tick >= before_tick}
        if entries == known.entries:
            spent = max(spent, known.spent)
        elif entries < known.entries:
            spent = known.spent
        entries = max(entries, known.entries)
        _write(ledger, study, seat, RelayedSeat(known.asked, known.batches, spent, pending, entries, known.ticks))


def at_most(ledger: Ledger, study: Study) -> tuple[np.ndarray, int, int]:
    """The most that each seat can have spent, in nano-units; and the numbers of queries and batches asked."""
    known = [relayed_seat(ledger, study, seat.party) for seat in study.roster]
    spent = np.minimum(np.array([min(each.at_most, 2**62) for each in known], np.int64), study.budgets.cap)
    return spent, max(each.asked for each in known), max(each.batches for each in known)


def _write(ledger: Ledger, study: Study, seat: str, known: RelayedSeat) -> None:
    pending = {number: (each.amount, each.tick) for number, each in known.open.items()}
    value = json.dumps([known.asked, known.batches, known.spent, pending, known.entries, known.ticks]).encode()
    ledger.forget(study.digest, _KIND + seat)
    ledger.note(study.digest, _KIND + seat, value)
