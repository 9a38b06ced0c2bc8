"""What a node's live page shows, read from its policy and ledgers: nothing in it depends on a vote."""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from party.budget.lifetime_use import LifetimeUse
from party.budget.policy import Approval, Policy
from party.budget.spending import Bound, SeatSpent, code_of, spending, what_was_spent
from party.connection.seat import ServedSeat
from party.home import PartyHome
from party.live.recent import Recent
from party.settings import Invitation
from protocols.crypto.identity import PEM_BYTES, certificate_from_pem
from protocols.errors import DataUnavailable, StorageFailed
from protocols.ledger.audit_log import Entry
from protocols.ledger.ledger import Ledger
from protocols.reading import read_bytes, read_json
from protocols.refusals.table import meaning_of
from runtime.files import write_atomically

LAST_AUDIT = "last-audit.json"
_AUDIT_BYTES = 4096
# Entries of all ledgers' logs that are shown, the newest first.
_ENTRIES = 25
_SHOWN = ("reserved", "settled", "given_up", "refused", "withdrawn", "votes_not_counted")


@dataclass(frozen=True)
class SeatState:
    """One seat. left, total: answers; used, reserved, cap: epsilon at delta: settled, with what is reserved, and the
    most; bound: of the first two; unsettled: batches whose outcome is not known yet; ends: the study's last day; once:
    whether it is asked once.
    """

    study: str
    seat: str
    left: int
    total: int
    used: float
    reserved: float
    cap: float
    delta: float
    unit: str
    unsettled: int
    ends: str
    once: bool
    bound: Bound = Bound.EXACT


@dataclass(frozen=True)
class Happened:
    """One entry of a ledger's log. queries: asked in the batch, if it is one; code: of a refusal."""

    time_ns: int
    study: str
    event: str
    queries: int | None
    code: str


@dataclass(frozen=True)
class LastAudit:
    """What `conclave-party verify` found when it last ran: time_s in seconds since 1970, whether everything held,
    how many seats it looked at."""

    time_s: float
    holds: bool
    seats: int


@dataclass(frozen=True)
class NodeState:
    """Everything on the page. approved_ns: when each study was approved, by its digest; now: in UTC."""

    party: str
    consortium: str
    coordinator: str
    address: str
    connected: bool
    since: datetime.datetime
    certificate_days: float
    troubles: Sequence[str]
    seats: Sequence[SeatState]
    lifetime: Sequence[LifetimeUse]
    lifetime_bound: Bound
    approvals: Sequence[Approval]
    approved_ns: dict[str, int]
    happened: Sequence[Happened]
    last_audit: LastAudit | None
    now: datetime.datetime


def node_state(
    home: PartyHome,
    invitation: Invitation,
    policy: Policy,
    seats_of: Callable[[], Sequence[ServedSeat]],
    recent: Recent,
) -> NodeState:
    """The state of a node that runs. Raises StorageFailed, DataCorrupt, DataUnavailable."""
    seats, now = seats_of(), datetime.datetime.now(datetime.UTC)
    found = what_was_spent(home, policy, opened=ledgers_of(seats))
    doubts = found.doubts()
    # What was doubted when the node started is in its log, too.
    troubles = [each for each in recent.troubles.values() if not any(str(doubt)[:300] in each for doubt in doubts)]
    return NodeState(
        party=invitation.party,
        consortium=invitation.consortium,
        coordinator=invitation.coordinator,
        address=invitation.address,
        connected=recent.stands,
        since=datetime.datetime.fromtimestamp(recent.since_s, datetime.UTC),
        certificate_days=days_left(home.certificate, now),
        troubles=[*dict.fromkeys(f"{each}; {meaning_of(code_of(each)).next_step}" for each in doubts), *troubles],
        seats=[seat_state(each) for each in found.seats if not each.approval.withdrawn],
        lifetime=found.lifetime,
        lifetime_bound=found.bound,
        approvals=policy.own_approvals(home),
        approved_ns=approved_times(policy),
        happened=happened(seats),
        last_audit=last_audit(home),
        now=now,
    )


def ledgers_of(seats: Sequence[ServedSeat]) -> dict[tuple[bytes, str], Ledger]:
    """The ledgers that a node has open, by study and seat."""
    return {(each.study.digest, each.party.name): each.ledger for each in seats}


def seat_state(found: SeatSpent) -> SeatState:
    """One seat of the node."""
    study, spent = found.study, found.shown
    return SeatState(
        study=study.name,
        seat=found.seat,
        left=found.answers_left,
        total=spending(study, found.seat, 0).answers_left,
        used=spending(study, found.seat, found.settled if found.proven else found.nano).epsilon_used,
        reserved=spent.epsilon_used,
        cap=spent.epsilon_cap,
        delta=spent.delta,
        unit=study.unit,
        unsettled=found.unsettled,
        ends=study.terms.ends,
        once=study.votes.once,
        bound=found.bound,
    )


def happened(seats: Sequence[ServedSeat]) -> list[Happened]:
    """The newest entries of the seats' logs, the newest first. Raises StorageFailed, DataCorrupt."""
    found = [_entry(seat, each) for seat in seats for each in seat.ledger.log.entries() if each.event in _SHOWN]
    return sorted(found, key=lambda each: each.time_ns, reverse=True)[:_ENTRIES]


def _entry(seat: ServedSeat, entry: Entry) -> Happened:
    batch = entry.fields.get("batch")
    queries = len(seat.ledger.queries(int(batch))) if isinstance(batch, int) else None
    return Happened(entry.time_ns, seat.study.name, entry.event, queries, str(entry.fields.get("code", "")))


def approved_times(policy: Policy) -> dict[str, int]:
    """When each study was approved, in nanoseconds since 1970, by its digest in hexadecimal digits."""
    return {str(each.fields["study"]): each.time_ns for each in policy.log.entries() if each.event == "approved"}


def days_left(certificate: Path, now: datetime.datetime) -> float:
    """Days until a certificate ends. Raises DataUnavailable, InvalidInput."""
    ends = certificate_from_pem(read_bytes(certificate, most=PEM_BYTES)).not_valid_after_utc
    return (ends - now) / datetime.timedelta(days=1)


def last_audit(home: PartyHome) -> LastAudit | None:
    """What `conclave-party verify` found last; None if it never ran here. Raises DataCorrupt."""
    try:
        found = read_json(home.path / LAST_AUDIT, most=_AUDIT_BYTES)
    except DataUnavailable:
        return None
    time_s, holds, seats = (
        (found.get(key) for key in ("time_s", "holds", "seats")) if isinstance(found, dict) else "???"
    )
    if not (isinstance(time_s, float) and isinstance(holds, bool) and isinstance(seats, int)):
        return None
    return LastAudit(time_s, holds, seats)


def remember_audit(home: PartyHome, *, holds: bool, seats: int) -> None:
    """Writes down what `conclave-party verify` found, for the page, unless the home cannot be written, as on a copy."""
    found = LastAudit(time.time(), holds, seats)
    with suppress(StorageFailed):
        write_atomically(home.path / LAST_AUDIT, json.dumps(asdict(found)) + "\n")
