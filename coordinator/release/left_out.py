"""Hospitals without a vote in a batch: which batches follows from the charges, why is the coordinator's word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any  # values of JSON

from coordinator.release.evidence import Charge, ReleaseEvidence
from protocols.errors import DataCorrupt

_NOT_KNOWN = "not_known"


def missing_votes(evidence: ReleaseEvidence, faults: Mapping[int, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """Seat to batch, as text, to the reason; only where the seat's vote is missing in the end.

    faults: batch to seat to the reason why it was left out of an attempt. Of a batch that was never released nobody
    knows who voted, so all faults of it are kept.
    """
    found: dict[str, dict[str, str]] = {}
    for charge in evidence.charges:
        for seat, why in faults.get(charge.number, {}).items():
            if seat in charge.reserved and not _voted(charge, seat):
                found.setdefault(seat, {})[str(charge.number)] = why
    return found


def left_out(evidence: ReleaseEvidence, stated: Mapping[str, Mapping[str, str]]) -> dict[str, list[dict[str, Any]]]:
    """Seat to the batches that lack its vote, each with the stated reason.

    Raises DataCorrupt if a reason is stated where the seat voted, or was not asked.
    """
    rows: dict[str, list[dict[str, Any]]] = {}
    for charge in evidence.charges:
        for seat in charge.reserved:
            why = stated.get(seat, {}).get(str(charge.number))
            if _missing(charge, seat) or (why is not None and charge.settled is None):
                rows.setdefault(seat, []).append({"batch": charge.number, "why": why or _NOT_KNOWN})
    named = {(seat, str(row["batch"])) for seat, each in rows.items() for row in each}
    for seat, batches in stated.items():
        for number in batches:
            if (seat, number) not in named:
                raise DataCorrupt(f"{seat!r} is stated to be left out of batch {number}, in which it voted")
    return dict(sorted(rows.items()))


def _missing(charge: Charge, seat: str) -> bool:
    """Whether the batch was settled without the seat's vote: what it was reserved came to nothing."""
    return charge.settled is not None and charge.reserved[seat] > 0 and charge.settled.get(seat, 0) == 0


def _voted(charge: Charge, seat: str) -> bool:
    return charge.settled is not None and not _missing(charge, seat)
