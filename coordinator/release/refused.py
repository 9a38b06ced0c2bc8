"""Receipts that cannot be true: a party's signed statement of its ledger contradicts the coordinator's ledger.

A false receipt does not stop a release. It proves nothing, and the release says whose it is, for which batch, and what
is wrong with it. It does not show whether the party lied, lost its ledger, or was told another outcome than the one in
the release.
"""

from __future__ import annotations

from collections.abc import Collection

from coordinator.connection.receipts import RECEIPT_REFUSED
from coordinator.release.evidence import Receipt, ReleaseEvidence
from protocols.study.study import Study


def refused_receipts(study: Study, evidence: ReleaseEvidence, receipts: list[Receipt]) -> dict[str, dict[int, str]]:
    """For each seat, the batches whose receipt was refused, on arrival or later, and why."""
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
    """The receipts that can be true."""
    flaws = _flaws(study, evidence, receipts)
    return [each for each in receipts if (each.seat, each.number) not in flaws]


def in_order(receipts: list[Receipt]) -> list[Receipt]:
    """The receipts of each party, by the length of its own log."""
    return sorted(receipts, key=lambda each: (each.seat, each.answer.own.count, each.number))


def charged_up_to(evidence: ReleaseEvidence, seat: str, number: int, told: Collection[tuple[str, int]]) -> int:
    """The nano-units that the coordinator's ledger counts against a seat's cap for the batches up to `number`.

    A batch that was given up counts only if the seat signed a receipt for it: the coordinator cannot know whether other
    seats were ever charged for it, though its own ledger counts it.
    """
    given_up = evidence.given_up
    return sum(
        charge.spent(seat)
        for charge in evidence.charges[: number + 1]
        if charge.number not in given_up or (seat, charge.number) in told
    )


def _flaws(study: Study, evidence: ReleaseEvidence, receipts: list[Receipt]) -> dict[tuple[str, int], str]:
    """What is wrong with each receipt that cannot be true.

    A receipt states the total of the party's own ledger. That is never below what the coordinator's ledger holds for
    the batches up to the latest that the party knew. So a party that was told that answered queries were refused is
    detected here.
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
            flaws[seat, receipt.number] = "it refers to an empty log"
        elif own.count == count and own.hash != head:
            flaws[seat, receipt.number] = (
                f"the party signed two different entries {count} of its log: a copy of its ledger was in use"
            )
        elif spent < least:
            flaws[seat, receipt.number] = (
                f"the party's ledger holds {spent} units of account, less than the {least} that these labels cost "
                "it: it was told another outcome, lost its ledger, or does not tell the truth"
            )
        elif spent > cap:
            flaws[seat, receipt.number] = f"the party's ledger holds {spent} units of account, above its cap of {cap}"
        else:
            newest[seat] = (own.count, own.hash, latest)
    return flaws
