"""Receipts that cannot be true: what a party signed about its own ledger, and what the coordinator's ledger knows.

One liar does not stop a release. Its receipt proves nothing: it is left out of all that receipts prove, and the release
says whose it is, of which batch, and what is wrong with it. Whether the party did not tell the truth, lost its ledger,
or was told another outcome than the one that is shown, nobody can tell from here.
"""

from __future__ import annotations

from collections.abc import Collection

from coordinator.connection.receipts import RECEIPT_REFUSED
from coordinator.release.evidence import Receipt, ReleaseEvidence
from protocols.study.study import Study


def refused_receipts(study: Study, evidence: ReleaseEvidence, receipts: list[Receipt]) -> dict[str, dict[int, str]]:
    """For each seat the batches whose receipt was refused, when it came or since, and why."""
    found: dict[str, dict[int, str]] = {}
    for (seat, number), flaw in _flaws(study, evidence, receipts).items():
        found.setdefault(seat, {})[number] = flaw
    for entry in evidence.entries:
        if entry.event == RECEIPT_REFUSED:
            batch = entry.fields.get("batch")
            told = found.setdefault(str(entry.fields.get("seat", "")), {})
            told.setdefault(batch if isinstance(batch, int) else -1, str(entry.fields.get("reason", "")))
    return {seat: dict(sorted(batches.items())) for seat, batches in sorted(found.items())}


def confirmed(study: Study, evidence: ReleaseEvidence, receipts: list[Receipt]) -> list[Receipt]:
    """The receipts that may be true."""
    flaws = _flaws(study, evidence, receipts)
    return [each for each in receipts if (each.seat, each.number) not in flaws]


def in_order(receipts: list[Receipt]) -> list[Receipt]:
    """As each party signed them, by the length of its own log."""
    return sorted(receipts, key=lambda each: (each.seat, each.answer.own.count, each.number))


def charged_up_to(evidence: ReleaseEvidence, seat: str, number: int, told: Collection[tuple[str, int]]) -> int:
    """What the coordinator's ledger holds against a seat's cap for the batches up to `number`.

    A batch that was given up counts where the seat gave a receipt for it: whether another seat was ever charged for it
    the coordinator cannot know, and counts it in its own ledger all the same.
    """
    given_up = evidence.given_up
    return sum(
        charge.spent(seat)
        for charge in evidence.charges[: number + 1]
        if charge.number not in given_up or (seat, charge.number) in told
    )


def _flaws(study: Study, evidence: ReleaseEvidence, receipts: list[Receipt]) -> dict[tuple[str, int], str]:
    """What is wrong with each receipt that cannot be true.

    A receipt says what the party's own ledger holds in all. It is never below what the coordinator's ledger holds for
    the batches up to the latest it knew of: a party that was told that answered queries were refused shows up here.
    """
    told = {(each.seat, each.number) for each in receipts if not each.flaw}
    flaws: dict[tuple[str, int], str] = {}
    newest: dict[str, tuple[int, bytes, int]] = {}
    for receipt in in_order(receipts):
        seat, own, spent = receipt.seat, receipt.answer.own, receipt.spent
        count, head, latest = newest.get(seat, (0, b"", 0))
        latest = max(latest, receipt.number)
        if receipt.flaw or seat not in study.seats:
            flaws[seat, receipt.number] = receipt.flaw or "there is no such seat"
            continue
        least, cap = charged_up_to(evidence, seat, latest, told), int(study.budgets.cap[study.seats[seat]])
        if own.count < 1:
            flaws[seat, receipt.number] = "it is of a log without an entry"
        elif own.count == count and own.hash != head:
            flaws[seat, receipt.number] = f"the party's log has two entries {count}: a copy of its ledger was in use"
        elif spent < least:
            flaws[seat, receipt.number] = (
                f"the party's ledger stands at {spent} nano-units, below the {least} that these labels cost it: it was "
                "told another outcome, lost its ledger, or does not tell the truth"
            )
        elif spent > cap:
            flaws[seat, receipt.number] = f"the party's ledger stands at {spent} nano-units, above its cap of {cap}"
        else:
            newest[seat] = (own.count, own.hash, latest)
    return flaws
