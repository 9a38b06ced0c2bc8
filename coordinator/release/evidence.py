"""The evidence of a release: the coordinator's charges, its audit log, and signed outcomes and receipts.

It depends on votes only through what was released: amounts follow from which queries were answered. A frame that holds
anything but an outcome or a receipt is never written, and is a failed check if found.
"""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any  # parsed JSON, checked below

from cryptography import x509

from protocols.crypto.identity import Identity
from protocols.errors import ConclaveError, DataCorrupt, DataUnavailable, MalformedMessage
from protocols.ledger.audit_log import AuditLog, Entry, Head
from protocols.ledger.database import Database
from protocols.ledger.ledger import Ledger
from protocols.ranges import check, whole
from protocols.reading import parse_json, read_text
from protocols.wire.frames import Answer, Ask, begins, read_frame
from protocols.wire.messages import Outcome, Settled, decode, kind_of_message

LEDGER_FILE, AUDIT_FILE, FRAMES_FILE = "evidence/ledger.json", "evidence/audit.jsonl", "evidence/frames.jsonl"
_KINDS = ("outcome", "settled")
_EVIDENCE_BYTES = 2**28


@dataclass(frozen=True)
class Charge:
    """One batch in the coordinator's ledger, amounts per seat; settled: None while reservations stand."""

    number: int
    request: str
    queries: tuple[int, ...]
    reserved: Mapping[str, int]
    settled: Mapping[str, int] | None

    def spent(self, seat: str) -> int:
        """What counts against the seat's cap."""
        return (self.reserved if self.settled is None else self.settled).get(seat, 0)


@dataclass(frozen=True)
class KeptFrame:
    """A stored signed frame: batch number, seat, kind ("outcome" or "settled"), its bytes."""

    number: int
    seat: str
    kind: str
    signed: bytes = field(repr=False)


@dataclass(frozen=True, eq=False)
class ReleaseEvidence:
    """All evidence of a release. caps: per seat; entries: the audit log from its first entry."""

    caps: Mapping[str, int]
    charges: tuple[Charge, ...]
    entries: tuple[Entry, ...]
    kept: tuple[KeptFrame, ...]

    def spent(self, seat: str) -> int:
        """What the coordinator's ledger counts against a seat's cap."""
        return sum(charge.spent(seat) for charge in self.charges)

    @cached_property
    def given_up(self) -> frozenset[int]:
        """The batches that the log says were given up: they stay charged as reserved, and unreleased."""
        numbers = (entry.fields.get("batch") for entry in self.entries if entry.event == "given_up")
        return frozenset(each for each in numbers if type(each) is int and 0 <= each < len(self.charges))


@dataclass(frozen=True, eq=False)
class Receipt:
    """An outcome that was sent to a seat, and the receipt that the seat's party signed for it.

    spent: what the party says that its ledger holds; 0 if the receipt cannot be read. flaw: what is wrong with
    the party's receipt, "" if nothing is; a flawed receipt proves nothing, see charges.refused_receipts.
    """

    number: int
    seat: str
    ask: Ask
    outcome: Outcome
    told_by: Identity
    answer: Answer
    spent: int
    signed_by: Identity
    flaw: str


def collect(path: Path, *, study: bytes) -> ReleaseEvidence:
    """The evidence in a coordinator's ledger. Raises DataUnavailable, StorageFailed, DataCorrupt, InvalidInput."""
    if not path.is_file():
        raise DataUnavailable(f"{path} does not exist; label the study first")
    with Ledger(path) as ledger:
        ledger.bind(study=study, run=b"")
        charges: list[Charge] = []
        while (stored := ledger.stored(len(charges))) is not None:
            number = stored.number
            charges.append(
                Charge(
                    number,
                    stored.digest.hex(),
                    tuple(ledger.queries(number)),
                    _plain(ledger.charged(number)),
                    _plain(ledger.settled(number)) if stored.settled else None,
                )
            )
        caps = _plain({seat: balance.cap for seat, balance in ledger.balances().items()})
        kept = tuple(KeptFrame(*row) for row in ledger.log.evidence() if row[2] in _KINDS)
        return ReleaseEvidence(caps, tuple(charges), tuple(ledger.log.entries()), kept)


def _plain(amounts: Mapping[str, int]) -> dict[str, int]:
    """Amounts by seat as the release states them, whose unit stands once in its statement."""
    return {seat: int(amount) for seat, amount in sorted(amounts.items())}


def chained(entries: Sequence[Entry]) -> tuple[AuditLog, list[Head]]:
    """The log that consists of these entries, with its hash chain recomputed, and its head after each of them."""
    times = iter(entry.time_ns for entry in entries)
    log = AuditLog(Database(":memory:", ""), clock=lambda: next(times))
    with log.together():
        return log, [log.append(entry.event, **entry.fields) for entry in entries]


def receipts(evidence: ReleaseEvidence, *, authority: x509.Certificate) -> list[Receipt]:
    """Every outcome with its receipt; signatures and certificates are checked as of the time of signing.

    That is when the log entry was written that the outcome names, or later: the log does not grow while nobody is
    asked, so a certificate that is newer than the entry was renewed in between. Raises DataCorrupt, naming the batch
    and the seat, for an invalid frame, and for an outcome or receipt without its counterpart.
    """
    log, _ = chained(evidence.entries)
    ends = ("settled", "given_up")
    settled_at = {entry.fields.get("batch"): entry.count for entry in evidence.entries if entry.event in ends}
    frames = {(kept.number, kept.seat, kept.kind): kept.signed for kept in evidence.kept}
    if len(frames) != len(evidence.kept) or {kept.kind for kept in evidence.kept} - set(_KINDS):
        raise DataCorrupt("a frame occurs twice in the evidence, or is neither an outcome nor a receipt")
    opened = []
    for number, seat in sorted({(number, seat) for number, seat, _ in frames}):
        where = f"batch {number}, seat {seat!r}"
        halves = [frames.get((number, seat, kind)) for kind in _KINDS]
        if halves[0] is None or halves[1] is None:
            raise DataCorrupt(f"{where}: an outcome without its receipt, or a receipt without its outcome")
        try:
            if number not in settled_at:
                raise DataCorrupt("the outcome belongs to a batch that the log neither settled nor gave up")
            ask, told_by = _asked(evidence.entries[settled_at[number] - 1], halves[0], authority)
            opened.append(_answered(evidence, log, authority, number, seat, ask, told_by, halves[1]))
        except ConclaveError as error:
            raise DataCorrupt(f"{where}: {error}") from error
    return opened


def _asked(settled: Entry, frame: bytes, authority: x509.Certificate) -> tuple[Ask, Identity]:
    """The outcome's frame and signer. settled: the entry that settled its batch, before which nobody was told.

    Only the opened frame says which entry it names; that one's time is then compared with its certificate.
    """
    ask, told_by = read_frame(frame, authority=authority, now=max(time_of(settled), begins(frame)), role="coordinator")
    if not isinstance(ask, Ask):
        raise DataCorrupt(f"a {type(ask).__name__} frame is in the place of an outcome")
    return ask, told_by


def _answered(
    evidence: ReleaseEvidence,
    log: AuditLog,
    authority: x509.Certificate,
    number: int,
    seat: str,
    ask: Ask,
    told_by: Identity,
    settled_frame: bytes,
) -> Receipt:
    if not 1 <= ask.own.count <= len(evidence.entries) or not log.contains(ask.own):
        raise DataCorrupt("the outcome names a head of the coordinator's log that the log does not contain")
    signed_at = time_of(evidence.entries[ask.own.count - 1])
    if signed_at > told_by.certificate.not_valid_after_utc:
        raise DataCorrupt(f"the outcome was signed at {signed_at} or later, when its certificate had expired")
    since = max(signed_at, begins(settled_frame))
    answer, signed_by = read_frame(settled_frame, authority=authority, now=since, role="party")
    if not isinstance(answer, Answer):
        raise DataCorrupt(f"a {type(answer).__name__} frame is in the place of a receipt")
    outcome = decode(ask.envelope)
    if not isinstance(outcome, Outcome) or kind_of_message(answer.envelope) != "settled":
        raise DataCorrupt(
            "a frame carries a message that is neither an outcome nor a receipt; it must not be published"
        )
    if (answer.nonce, answer.round, answer.study, answer.seat) != (ask.nonce, ask.round, ask.study, ask.seat):
        raise DataCorrupt("the receipt answers another request")
    if ask.seat != seat:
        raise DataCorrupt("outcome and receipt belong to another seat")
    spent, flaw = 0, ""
    try:
        settled = decode(answer.envelope)
    except MalformedMessage as error:
        flaw = f"it cannot be read: {error}"
    else:
        assert isinstance(settled, Settled)
        spent = settled.spent
        if outcome.batch_digest != settled.batch_digest:
            flaw = "it is for another batch than the outcome that the party was told"
        elif not log.contains(answer.seen):
            flaw = "it names a head of the coordinator's log that the log does not contain"
    return Receipt(number, seat, ask, outcome, told_by, answer, spent, signed_by, flaw)


def time_of(entry: Entry) -> datetime.datetime:
    """When an entry was written, in UTC."""
    return datetime.datetime.fromtimestamp(entry.time_ns / 1e9, datetime.UTC)


def files_of(evidence: ReleaseEvidence) -> dict[str, str]:
    """The evidence's files, as name to content; evidence_in reads them back."""
    ledger = {"caps": dict(evidence.caps), "batches": [asdict(charge) for charge in evidence.charges]}
    _, heads = chained(evidence.entries)
    audit = [{**asdict(entry), "hash": head.hash.hex()} for entry, head in zip(evidence.entries, heads, strict=True)]
    frames = [{**asdict(kept), "signed": base64.b64encode(kept.signed).decode()} for kept in evidence.kept]
    return {
        LEDGER_FILE: json.dumps(ledger, indent=1, sort_keys=True) + "\n",
        AUDIT_FILE: "".join(json.dumps(line, sort_keys=True) + "\n" for line in audit),
        FRAMES_FILE: "".join(json.dumps(line, sort_keys=True) + "\n" for line in frames),
    }


def evidence_in(folder: Path) -> ReleaseEvidence:
    """The evidence in a release's folder, with the chain of the audit log checked. Raises DataCorrupt."""
    try:
        names = (LEDGER_FILE, AUDIT_FILE, FRAMES_FILE)
        texts = {name: read_text(folder / name, most=_EVIDENCE_BYTES) for name in names}
        ledger = parse_json(texts[LEDGER_FILE], where=LEDGER_FILE)
        audit = [parse_json(line, where=AUDIT_FILE) for line in texts[AUDIT_FILE].splitlines()]
        frames = [parse_json(line, where=FRAMES_FILE) for line in texts[FRAMES_FILE].splitlines()]
        charges = tuple(_charge(batch) for batch in ledger["batches"])
        entries = tuple(
            Entry(
                whole(AUDIT_FILE, "count", line["count"]),
                whole(AUDIT_FILE, "time_ns", line["time_ns"]),
                str(line["event"]),
                _fields(line["fields"]),
            )
            for line in audit
        )
        kept = tuple(
            KeptFrame(
                whole(FRAMES_FILE, "number", line["number"]),
                str(line["seat"]),
                str(line["kind"]),
                base64.b64decode(line["signed"], validate=True),
            )
            for line in frames
        )
        evidence = ReleaseEvidence(_amounts("caps", ledger["caps"]), charges, entries, kept)
        hashes = [str(line["hash"]) for line in audit]
    except (DataUnavailable, DataCorrupt, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataCorrupt(f"the evidence cannot be read: {type(error).__name__}: {str(error)[:200]}") from None
    for position, (head, stated, entry) in enumerate(zip(chained(entries)[1], hashes, entries, strict=True), start=1):
        if entry.count != position or head.hash.hex() != stated:
            raise DataCorrupt(f"audit log: entry {position} was changed or removed; the chain ends before it")
    different = next((name for name, text in files_of(evidence).items() if text != texts[name]), None)
    if different is not None:
        raise DataCorrupt(f"{different} differs from the form in which a release is written")
    return evidence


def _charge(batch: dict[str, Any]) -> Charge:
    settled = batch["settled"]
    return Charge(
        whole(LEDGER_FILE, "batches.number", batch["number"]),
        str(batch["request"]),
        tuple(whole(LEDGER_FILE, "batches.queries", query) for query in batch["queries"]),
        _amounts("batches.reserved", batch["reserved"]),
        None if settled is None else _amounts("batches.settled", settled),
    )


def _amounts(field: str, table: dict[str, Any]) -> dict[str, int]:
    return {seat: whole(LEDGER_FILE, field, amount) for seat, amount in table.items()}


def _fields(table: dict[str, Any]) -> dict[str, str | int]:
    if not all(isinstance(value, str | int) for value in table.values()) or {"self", "event", "time_ns"} & set(table):
        raise TypeError("a field of the audit log is neither a string nor an integer, or has a reserved name")
    for value in table.values():
        if isinstance(value, int):
            check(AUDIT_FILE, "fields", value)
    return dict(table)
