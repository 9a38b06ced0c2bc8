"""The coordinator's charges: that they follow from the study, which receipts confirm them, and whose votes are missing.

Who was asked when, and what each batch cost, follow from the study and from which queries were answered, which is
public. A false receipt, in which a party's signed statement of its ledger contradicts the coordinator's, does not stop
a release. It proves nothing, and the release says whose it is, for which batch, and what is wrong with it. It does not
show whether the party lied, lost its ledger, or was told another outcome than the one in the release.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from typing import Any  # values of JSON

import numpy as np
from jaxtyping import Bool, Int64
from numpy import ndarray

from coordinator.connection.open_study import RECEIPT_REFUSED
from coordinator.release.evidence import Charge, Receipt, ReleaseEvidence
from protocols.errors import DataCorrupt, InvalidInput, Refused
from protocols.labelling.coordinator import AGAIN
from protocols.labelling.schedule import Batch, next_of
from protocols.levels.table import check_believable
from protocols.levels.two_server.statement import Fate
from protocols.refusals.code import Code
from protocols.study.chosen import GIVEN
from protocols.study.deployed import DeployedStudy
from protocols.study.study import Study, party_of
from protocols.votes import NOT_ASKED

_NOT_KNOWN, _ASKED_NO_MORE, _USED_UP = "not_known", "asked_no_more", "budget_used_up"


def check_charges(study: DeployedStudy, labels: Int64[ndarray, " queries"], evidence: ReleaseEvidence) -> None:
    """Raises DataCorrupt unless every amount, batch and cap can be recomputed.

    A seat whose vote was not counted in a batch is settled at 0. Only its receipts show whether a counted vote was
    charged (check_receipts).
    """
    caps = dict(zip(study.seats, study.budgets.cap.tolist(), strict=True))
    if dict(evidence.caps) != caps:
        raise DataCorrupt("the ledger's caps are not those of the study")
    spent, given_up = dict.fromkeys(study.seats, 0), evidence.given_up
    asked, known, expected = 0, np.full(len(labels), False), np.full(len(labels), False)
    for position, charge in enumerate(evidence.charges):
        where = f"batch {position}"
        if charge.settled is not None and position in given_up:
            raise DataCorrupt(f"{where} is settled, but the log says that it was given up")
        if charge.settled is None and position < len(evidence.charges) - 1 and position not in given_up:
            raise DataCorrupt(f"{where} is neither settled nor given up, but later ones were asked")
        size = len(charge.queries)
        if study.votes.again(np.array(charge.queries or [0])):
            _check_judges(study, evidence, position)
            continue
        if charge.number != position or not _follows(study, charge.queries, known):
            raise DataCorrupt(f"{where} does not ask the queries that follow the previous batch")
        ids = np.array(charge.queries, dtype=np.int64)
        known[ids] = True
        later = {seat for each in evidence.charges[position:] for seat in each.reserved}
        gone = set() if study.votes.once else study.seats.keys() - later
        _check_schedule(study, spent, charge.reserved.keys(), gone, asked=asked, size=size, queries=len(labels))
        takes_part = study.participation.votes(ids)
        answered = labels[ids] >= 0
        worst = study.budgets.amount(takes_part.sum(axis=1), takes_part.sum(axis=1))
        final = study.budgets.amount(takes_part.sum(axis=1), (takes_part & answered).sum(axis=1))
        for seat, amount in charge.reserved.items():
            if amount != worst[study.seats[seat]]:
                raise DataCorrupt(
                    f"{where} reserved {amount} of {seat!r}, not {worst[study.seats[seat]]} {study.budgets.unit}"
                )
        if charge.settled is not None:
            if charge.settled.keys() != charge.reserved.keys():
                raise DataCorrupt(f"{where} is settled for other seats than it was reserved for")
            for seat, amount in charge.settled.items():
                if amount not in (0, final[study.seats[seat]]):
                    raise DataCorrupt(
                        f"{where} cost {seat!r} {amount}, not {final[study.seats[seat]]} {study.budgets.unit}"
                    )
            voted = sum(amount > 0 for amount in charge.settled.values())
            if voted < study.quorum and not (final == 0).any():
                raise DataCorrupt(f"{where} was released with the votes of {voted} seats; the quorum is {study.quorum}")
            expected[ids] = True
        for seat in charge.reserved:
            spent[seat] += charge.spent(seat)
        asked += size
    if ((labels != NOT_ASKED) != expected).any():
        raise DataCorrupt(
            "labels are released for queries that no settled batch asked, or are missing for queries that one asked"
        )
    for seat, amount in spent.items():
        if amount > caps[seat]:
            raise DataCorrupt(f"{seat!r} is charged {amount}, above its cap of {caps[seat]} {study.budgets.unit}")


def _check_judges(study: DeployedStudy, evidence: ReleaseEvidence, position: int) -> None:
    """Raises DataCorrupt unless judges were asked once, after votes that were released, of the seats that gave them,
    for nothing more."""
    charge, votes = evidence.charges[position], evidence.charges[0]
    ids = tuple(range(study.query_limit - study.votes.rows_again, study.query_limit))
    voted = {seat for seat, amount in (votes.settled or {}).items() if amount > 0}
    amounts = {*charge.reserved.values(), *(charge.settled or {}).values()}
    if position != AGAIN or charge.number != position or charge.queries != ids:
        raise DataCorrupt(f"batch {position} asks judges otherwise than once, after the votes, in all of their rows")
    if set(charge.reserved) != voted or amounts != {0}:
        raise DataCorrupt(f"batch {position} asks judges of other seats than voted, or charges them")


def _follows(study: DeployedStudy, queries: tuple[int, ...], known: Bool[ndarray, " queries"]) -> bool:
    """Whether these can be the next batch: the next of the pool, or any ascending ones that were not asked yet where
    they are chosen by the labels before. known: those that were asked.

    Which are chosen is not computed again: another machine's arithmetic may choose otherwise, and no charge depends on
    it.
    """
    if not queries:
        return False
    if study.votes.questions == GIVEN:
        start = int(known.sum())
        return queries == tuple(range(start, start + len(queries))) and queries[-1] < len(known)
    ids = np.array(queries, dtype=np.int64)
    in_pool = bool((ids >= 0).all() and (ids < len(known)).all())
    return in_pool and bool((np.diff(ids) > 0).all()) and not known[ids].any()


def _check_schedule(
    study: DeployedStudy, spent: dict[str, int], seats: Set[str], gone: Set[str], *, asked: int, size: int, queries: int
) -> None:
    """Raises DataCorrupt unless exactly these seats had to be asked this many queries next (schedule.next_batch). gone:
    those that are asked no more: the operator does without them, or budgets are spent."""
    paid = np.array([spent[seat] for seat in study.seats], dtype=np.int64)
    left_out = np.array([seat in gone for seat in study.seats])
    step = next_of(study, paid, asked=asked, queries=queries, without=left_out)
    planned = {seat for seat, active in zip(study.seats, getattr(step, "active", ()), strict=False) if active}
    if not (isinstance(step, Batch) and step.size == size and planned == seats):
        raise DataCorrupt(f"from query {asked} on, {size} queries were asked; budgets and schedule require other "
                          "seats or another number")  # fmt: skip


def check_receipts(
    study: DeployedStudy, labels: Int64[ndarray, " queries"], evidence: ReleaseEvidence, receipts: list[Receipt]
) -> None:
    """Raises DataCorrupt unless every outcome that was sent agrees with the labels and the charges.

    evidence: its charges are already checked. This is about what the coordinator signed; a party's receipt that cannot
    be true is not a fault of the release.
    """
    terms = study.terms
    for receipt in _in_order(receipts):
        where = f"batch {receipt.number}, seat {receipt.seat!r}"
        if receipt.seat not in study.seats or not 0 <= receipt.number < len(evidence.charges):
            raise DataCorrupt(f"{where}: there is no such batch or seat")
        charge = evidence.charges[receipt.number]
        if (receipt.told_by.name, receipt.signed_by.name) != (terms.coordinator, party_of(receipt.seat)):
            raise DataCorrupt(
                f"{where}: signed by {receipt.told_by.name!r} and {receipt.signed_by.name!r}; allowed: "
                f"{terms.coordinator!r} and {party_of(receipt.seat)!r}"
            )
        if {receipt.ask.study, receipt.outcome.study} != {study.digest}:
            raise DataCorrupt(f"{where}: it belongs to another study")
        if receipt.outcome.batch_digest.hex() != charge.request:
            raise DataCorrupt(f"{where}: it belongs to another request than the one that was charged")
        if charge.settled is None and receipt.number not in evidence.given_up:
            raise DataCorrupt(f"{where}: it is the outcome of a batch that was never released")
        counted = guardian_counted(study, receipt, where)
        # No query of a batch that was given up was answered.
        if study.votes.again(np.array(charge.queries)):
            released = np.full(len(charge.queries), charge.settled is not None)
        else:
            released = labels[list(charge.queries)] >= 0
        if not np.array_equal(receipt.outcome.answered, released):
            raise DataCorrupt(f"{where}: the party was told an outcome that differs from the released labels")
        takes_part = study.participation.of(study.seats[receipt.seat]).votes(np.array(charge.queries)).any()
        if takes_part and counted is not False and charge.spent(receipt.seat) == 0:
            raise DataCorrupt(f"{where}: the party was told an outcome, but is charged nothing")
        if counted is False and charge.spent(receipt.seat) > 0:
            raise DataCorrupt(f"{where}: the party is charged, but the guardian did not count its votes")


def guardian_counted(study: DeployedStudy, receipt: Receipt, where: str) -> bool | None:
    """Whether the guardian counted the seat's votes; None in a study without one.

    Raises DataCorrupt unless the outcome bears the guardian's signature, in a study that has one.
    """
    try:
        told = check_believable(study, receipt.outcome, receipt.seat)
        return None if told is None else told.fate is Fate.COUNTED
    except Refused:
        raise DataCorrupt(f"{where}: the outcome does not bear the guardian's signature") from None


def uncovered(study: DeployedStudy, evidence: ReleaseEvidence, receipts: list[Receipt]) -> dict[str, list[int]]:
    """Seats with charges that no receipt covers, and the numbers of those batches.

    A receipt that can be true covers the batches up to the latest that its party knew when it signed: its total is
    compared with all of them. Only the party knows what it was told about later batches, and whether it charged itself.
    """
    latest: dict[str, int] = {}
    for receipt in confirmed(study, evidence, receipts):
        latest[receipt.seat] = max(receipt.number, latest.get(receipt.seat, -1))
    open_ = {
        seat: [
            charge.number
            for charge in evidence.charges[latest.get(seat, -1) + 1 :]
            if charge.settled is not None and charge.settled.get(seat, 0) > 0
        ]
        for seat in study.seats
    }
    return {seat: numbers for seat, numbers in open_.items() if numbers}


def check_covered(
    study: DeployedStudy, evidence: ReleaseEvidence, receipts: list[Receipt], *, unproven: Collection[str]
) -> dict[str, list[int]]:
    """The seats with charges that no receipt covers, with their batches. Raises Refused("unproven_charges").

    unproven: the seats for which the operator states that no receipt can be obtained: all that need it, and no others.
    A seat may be left out if its receipt for the last of these batches came and was refused: a receipt covers all
    earlier batches, so no other is to be expected.
    """
    found = uncovered(study, evidence, receipts)
    refused = refused_receipts(study, evidence, receipts)
    silent = {
        seat: numbers
        for seat, numbers in found.items()
        if seat not in unproven and numbers[-1] not in refused.get(seat, ())
    }
    if silent:
        said = f"{charges_in_words(silent)}: no signed receipt covers the charges of these seats"
        raise Refused(Code.UNPROVEN_CHARGES, said)
    needless = [seat for seat in unproven if seat not in found]
    if needless:
        raise InvalidInput(
            f"unproven is {needless}; allowed: seats with a charge that no receipt covers: {', '.join(found) or 'none'}"
        )
    return found


def charges_in_words(batches: Mapping[str, list[int]]) -> str:
    """Seats and their batches, as text."""
    return "; ".join(f"{seat} (batches {', '.join(map(str, numbers))})" for seat, numbers in batches.items())


def charges_by_seat(
    study: DeployedStudy, evidence: ReleaseEvidence, receipts: list[Receipt]
) -> dict[str, dict[str, int | None]]:
    """For each seat: what the ledger charged, what its last receipt says, the difference, and missing receipts.

    The difference is relative to the charges of the batches up to the latest with a receipt; batches_unproven: see
    `uncovered`. Refused receipts do not count.
    """
    unproven = uncovered(study, evidence, receipts)
    receipts = confirmed(study, evidence, receipts)
    told = {(each.seat, each.number) for each in receipts}
    mine: dict[str, list[Receipt]] = {seat: [] for seat in study.seats}
    for receipt in _in_order(receipts):
        mine[receipt.seat].append(receipt)
    result: dict[str, dict[str, int | None]] = {}
    for seat, given in mine.items():
        due = [each.number for each in evidence.charges if each.settled is not None and each.settled.get(seat, 0) > 0]
        have = {each.number for each in given}
        last = given[-1].spent if given else None
        result[seat] = {
            "charged": evidence.spent(seat),
            "last_receipt": last,
            "difference": None if last is None else last - charged_up_to(evidence, seat, max(have), told),
            "batches_charged": len(due),
            "receipts_missing": sum(number not in have for number in due),
            "batches_unproven": len(unproven.get(seat, ())),
        }
    return result


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


def _in_order(receipts: list[Receipt]) -> list[Receipt]:
    """The receipts of each party, by the length of its own log."""
    return sorted(receipts, key=lambda each: (each.seat, each.answer.own.count, each.number))


def charged_up_to(evidence: ReleaseEvidence, seat: str, number: int, told: Collection[tuple[str, int]]) -> int:
    """What the coordinator's ledger counts against a seat's cap for the batches up to `number`.

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
    for receipt in _in_order(receipts):
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
                f"the party's ledger holds {spent}, less than the {least} {study.budgets.unit} that these labels cost "
                "it: it was told another outcome, lost its ledger, or does not tell the truth"
            )
        elif spent > cap:
            unit = study.budgets.unit
            flaws[seat, receipt.number] = f"the party's ledger holds {spent}, above its cap of {cap} {unit}"
        else:
            newest[seat] = (own.count, own.hash, latest)
    return flaws


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


def left_out(
    study: Study, evidence: ReleaseEvidence, stated: Mapping[str, Mapping[str, str]]
) -> dict[str, list[dict[str, Any]]]:
    """Seat to the batches that lack its vote, each with the stated reason; and the first since which it was not asked,
    with whether its budget could not pay for one more query, or the operator does without it.

    Raises DataCorrupt if a reason is stated where the seat voted, or was not asked.
    """
    rows: dict[str, list[dict[str, Any]]] = {}
    for charge in evidence.charges:
        for seat in charge.reserved:
            why = stated.get(seat, {}).get(str(charge.number))
            if _missing(charge, seat) or (why is not None and charge.settled is None):
                rows.setdefault(seat, []).append({"batch": charge.number, "why": why or _NOT_KNOWN})
    named = {(seat, str(row["batch"])) for seat, each in rows.items() for row in each}
    spent = np.array([evidence.spent(seat) for seat in study.seats], dtype=np.int64)
    used_up = dict(zip(study.seats, study.budgets.affordable(spent, limit=1) < 1, strict=True))
    for seat in evidence.caps:
        after = 1 + max((charge.number for charge in evidence.charges if seat in charge.reserved), default=-1)
        if after < len(evidence.charges):
            why = _USED_UP if used_up[seat] and not study.votes.once else _ASKED_NO_MORE
            rows.setdefault(seat, []).append({"batch": after, "why": why})
    for seat, batches in stated.items():
        for number in batches:
            if (seat, number) not in named:
                raise DataCorrupt(f"{seat!r} is stated to be left out of batch {number}, in which it voted")
    return dict(sorted(rows.items()))


def voted(evidence: ReleaseEvidence, seat: str) -> bool:
    """Whether the seat's vote is in any batch that was released."""
    return any(_voted(charge, seat) for charge in evidence.charges if charge.reserved.get(seat, 0) > 0)


def _missing(charge: Charge, seat: str) -> bool:
    """Whether the batch was settled without the seat's vote: what it was reserved came to nothing."""
    return charge.settled is not None and charge.reserved[seat] > 0 and charge.settled.get(seat, 0) == 0


def _voted(charge: Charge, seat: str) -> bool:
    return charge.settled is not None and not _missing(charge, seat)
