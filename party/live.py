"""The node's live page, made from its policy, ledgers and log: nothing on it depends on a vote. Verdict first."""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from party.budget.policy import Approval, Policy
from party.budget.spending import Exactness, SeatSpent, bounded, code_of_doubt, spending, what_was_spent
from party.connection.seat import ServedSeat
from party.home import PartyHome
from party.lifetime import LifetimeUse
from party.settings import Invitation
from protocols.crypto.identity import PEM_BYTES, certificate_from_pem
from protocols.errors import DataUnavailable, StorageFailed
from protocols.ledger.audit_log import Entry
from protocols.ledger.ledger import Ledger
from protocols.plural import at_most, counted, utc
from protocols.reading import read_bytes, read_json
from protocols.refusals.table import meaning_of
from runtime.files import write_atomically
from runtime.page import Bar, document, facts, table, verdict

# Events that a person has to look at, and what ends each: it is then no longer shown.
_TROUBLES: Final[Mapping[str, str]] = {
    "study_failed": "",
    "teachers_failed": "teachers_ready",
    "teachers_late": "answered",
    "deadline_short": "",
    "could_not_vote": "answered",
    "record_votes_failed": "answered",
    "storage_failed": "answered",
    "renewal_failed": "renewed",
    "clock_skew": "connected",
    "stopped": "",
    # Told again at each connection.
    "asked_without": "connected",
}
_ENDS: Final = ("disconnected", "goodbye", "stopped", "malformed")


class Recent:
    """The node's state, judged by its events. May be called from several threads.

    stands: whether it is connected; since_s: since when it is, or is not, in seconds since 1970; troubles: what was
    said of each trouble that has not ended, by event and study.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        """clock: seconds since 1970."""
        self._clock = clock
        self.stands = False
        self.since_s = clock()
        self.troubles: dict[tuple[str, str], str] = {}

    def __call__(self, event: str, fields: Mapping[str, str | int | float]) -> None:
        """Updates the state from one event."""
        about = str(fields.get("study", ""))
        if event == "connected" or (event in _ENDS and self.stands):
            self.stands, self.since_s = event == "connected", self._clock()
        ended = {trouble for trouble, end in _TROUBLES.items() if end == event}
        self.troubles = {
            (trouble, study): said
            for (trouble, study), said in self.troubles.items()
            if trouble not in ended or study not in ("", about)
        }
        if event in _TROUBLES:
            code, said = str(fields.get("code", "")), str(fields.get("reason", fields.get("code", "")))
            todo = f"; {meaning_of(code).next_step}" if code and said != code else ""
            told = f"{event.replace('_', ' ')}: {said.removeprefix(f'{code}: ')}{todo}"
            self.troubles = self.troubles | {(event, about): told}


LAST_AUDIT = "last-audit.json"
_AUDIT_BYTES = 4096
# Entries of all ledgers' logs that are shown, the newest first.
_ENTRIES = 25
_SHOWN = ("reserved", "settled", "given_up", "refused", "withdrawn", "votes_not_counted")


@dataclass(frozen=True)
class SeatState:
    """One seat. left, total: answers; used, reserved, cap: epsilon at delta: settled, with what is reserved, and the
    most; bound: of the first two; unsettled: batches whose outcome is not known yet; ends: the study's last day; once:
    whether it is asked once; missed: whether it was, or the operator goes on, without this hospital.
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
    missed: bool = False
    bound: Exactness = Exactness.EXACT


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
    lifetime_bound: Exactness
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
        troubles=[*dict.fromkeys(f"{each}; {meaning_of(code_of_doubt(each)).next_step}" for each in doubts), *troubles],
        seats=[
            replace(seat_state(each), missed=("asked_without", each.study.name) in recent.troubles)
            for each in found.seats
            if not each.approval.withdrawn
        ],
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
        used=spending(study, found.seat, found.settled if found.proven else found.spent).epsilon_used,
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


_SOON_DAYS = 3.0
# A node that lost its line for less than this is dialling again, and needs nobody.
_ALONE_S = 120.0
_EVENTS = {
    "reserved": "answered; reserved in full",
    "settled": "outcome known; settled",
    "given_up": "given up; the reservation stands",
    "refused": "refused",
    "withdrawn": "withdrawn here",
    "votes_not_counted": "votes not counted",
}


def node_page(state: NodeState, *, paste: Callable[[str], str] = str) -> str:
    """The page of a node. paste: puts what a command needs besides into a text (runtime.printing)."""
    needs = [paste(each) for each in needs_of(state)]
    return document(
        title=f"{state.party}, a node of {state.consortium}",
        kind="live page of a hospital's node, read only",
        body="\n".join([
            verdict(top_line(state), [("Needs you:", each) for each in needs], tone="warn" if needs else "good"),
            *_studies(state.seats), *_lifetime(state), *_happened(state.happened), *_approvals(state),
            *_node(state, paste),
        ]),
        footer=f"<p>As of {utc(state.now.timestamp())}; <a href=\"\">reload it</a>. Nothing can be changed here: "
        "use conclave-party.</p>",
    )  # fmt: skip


def top_line(state: NodeState) -> str:
    """The page in one sentence: "Connected; heart: 34 of 58 answers left; nothing needs you."."""
    parts = ["Connected" if state.connected else f"Not connected since {utc(state.since.timestamp())}"]
    parts += [_left(each) for each in state.seats]
    needs = len(needs_of(state))
    parts.append(
        "nothing needs you" if not needs else "one thing needs you" if needs == 1 else f"{needs} things need you"
    )
    return "; ".join(parts) + "."


def needs_of(state: NodeState) -> list[str]:
    """What a person has to do, with the command; empty if nothing."""
    needs = []
    if not state.connected and (state.now - state.since).total_seconds() > _ALONE_S:
        since = utc(state.since.timestamp())
        needs.append(f"no connection to {state.address} since {since}; run: conclave-party doctor")
    if not state.seats:
        needs.append("no study is approved here; run: conclave-party data check STUDY.toml, which says how")
    if state.certificate_days < _SOON_DAYS:
        needs.append(
            f"the certificate ends in {max(state.certificate_days, 0.0):.1f} days; it is renewed while the node is "
            "connected; once it has ended, ask the operator for a new invitation"
        )
    if state.last_audit is not None and not state.last_audit.holds:
        needs.append("the last audit check failed; run: conclave-party verify")
    return [*needs, *state.troubles]


def _left(seat: SeatState) -> str:
    who = seat.study if seat.seat.count("/") == 0 else f"{seat.study} ({seat.seat})"
    if seat.bound is not Exactness.EXACT:
        return f"{who}: what it spent cannot be proved"
    if seat.missed:
        return f"{who}: {'asked once' if seat.once else 'goes on'}, without this hospital"
    if seat.once:
        return f"{who}: {'not asked yet, and then once' if seat.left else 'asked once, and never again'}"
    return f"{who}: {seat.left} of {counted(seat.total, 'answer')} left"


def _studies(seats: Sequence[SeatState]) -> list[str]:
    head = ("study and seat", "answers left", "epsilon used", "with what is reserved", "cap", "delta", "unit",
            "batches open", "until")  # fmt: skip
    rows = [
        (
            f"{each.study}, {each.seat}", f"{each.left} of {each.total}", bounded(each.used, each.bound),
            bounded(each.reserved, each.bound), at_most(each.cap), at_most(each.delta), each.unit, each.unsettled,
            each.ends,
        )
        for each in seats
    ]  # fmt: skip
    if not rows:
        return ["<h2>Studies</h2>", "<p>None is approved here.</p>"]
    note = "<p>The cap is the guarantee. What is used is for monitoring, not an epsilon to publish.</p>"
    return ["<h2>Studies</h2>", table("What studies used of their budgets", head, rows), note]


def _lifetime(state: NodeState) -> list[str]:
    rows = [
        (
            each.data_set, each.unit, bounded(each.epsilon_reserved, state.lifetime_bound), at_most(each.cap.epsilon),
            at_most(each.cap.delta), Bar(min(each.share, 1.0), f"{100 * each.share:.1f} %"),
        )
        for each in state.lifetime
    ]  # fmt: skip
    if not rows:
        return []
    head = ("data set", "unit", "epsilon reserved", "lifetime cap", "delta", "reserved of the cap")
    note = "<p>The shares of studies add up to what the cap affords; their epsilons do not.</p>"
    return ["<h2>Lifetime caps</h2>", table("What all studies together have reserved", head, rows), note]


def _happened(entries: Sequence[Happened]) -> list[str]:
    if not entries:
        return ["<h2>What was asked</h2>", "<p>Nothing yet.</p>"]
    rows = [
        (utc(each.time_ns / 1e9), each.study, "" if each.queries is None else each.queries, _said(each))
        for each in entries
    ]
    head = ("when", "study", "queries", "what happened")
    return ["<h2>What was asked</h2>", table("The newest entries of the audit logs", head, rows, words=(3,))]


def _said(entry: Happened) -> str:
    said = _EVENTS.get(entry.event, entry.event)
    if not entry.code:
        return said
    return f"{said} ({entry.code}): {meaning_of(entry.code).means}"


def _approvals(state: NodeState) -> list[str]:
    rows = []
    for each in state.approvals:
        approved = state.approved_ns.get(each.study.hex())
        when = "" if approved is None else utc(approved / 1e9)
        rows.append(
            (each.name, each.study.hex()[:16], each.data_set, when, "withdrawn" if each.withdrawn else "stands")
        )
    if not rows:
        return []
    head = ("study", "digest", "data set", "approved", "state")
    return ["<h2>Approvals</h2>", table("What this hospital approved", head, rows)]


def _node(state: NodeState, paste: Callable[[str], str]) -> list[str]:
    said = f"{'' if state.connected else 'not '}connected since {utc(state.since.timestamp())}"
    return [
        "<h2>This node</h2>",
        facts(
            [
                ("coordinator", f"{state.coordinator}, {state.address}"),
                ("connection", said),
                ("certificate", f"{state.certificate_days:.1f} days left"),
                ("last audit check", paste(_audit(state.last_audit))),
            ]
        ),
    ]


def _audit(found: LastAudit | None) -> str:
    if found is None:
        return "never; run: conclave-party verify"
    holds = "everything holds" if found.holds else "something does not hold"
    return f"{utc(found.time_s)}: {holds} ({found.seats} checked)"
