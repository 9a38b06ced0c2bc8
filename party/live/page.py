"""The node's live page as HTML, made from its state alone; the verdict first."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence

from party.budget.spending import Bound, bounded
from party.live.state import Happened, LastAudit, NodeState, SeatState
from protocols.plural import at_most, counted
from protocols.refusals.table import meaning_of
from runtime.live_page import AGAIN_S
from runtime.page import document, facts, table, verdict

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
    """The page of a node. paste: puts what a command needs besides into a text (runtime.pasting)."""
    needs = [paste(each) for each in needs_of(state)]
    return document(
        title=f"{state.party}, a node of {state.consortium}",
        kind="live page of a hospital's node, read only",
        body="\n".join([
            verdict(top_line(state), [("Needs you:", each) for each in needs], tone="warn" if needs else "good"),
            *_studies(state.seats), *_lifetime(state), *_happened(state.happened), *_approvals(state),
            *_node(state, paste),
        ]),
        footer=f"<p>As of {_utc(state.now)}; a browser loads it again every {AGAIN_S} s. Nothing can be changed here: "
        "use conclave-party.</p>",
        again_s=AGAIN_S,
    )  # fmt: skip


def top_line(state: NodeState) -> str:
    """The page in one sentence: "Connected; heart: 34 of 58 answers left; nothing needs you."."""
    parts = ["Connected" if state.connected else f"Not connected since {_utc(state.since)}"]
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
        needs.append(f"no connection to {state.address} since {_utc(state.since)}; run: conclave-party doctor")
    if not state.seats:
        needs.append("no study is approved here; run: conclave-party approve STUDY.toml")
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
    if seat.bound is not Bound.EXACT:
        return f"{who}: what it spent cannot be proved"
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
    note = "<p>The cap is the guarantee. What is used is for monitoring, and no epsilon to publish.</p>"
    return ["<h2>Studies</h2>", table("What studies used of their budgets", head, rows), note]


def _lifetime(state: NodeState) -> list[str]:
    rows = [
        (
            each.data_set, each.unit, bounded(each.epsilon_reserved, state.lifetime_bound), at_most(each.cap.epsilon),
            at_most(each.cap.delta), f"{100 * each.share:.1f} %",
        )
        for each in state.lifetime
    ]  # fmt: skip
    if not rows:
        return []
    head = ("data set", "unit", "epsilon reserved", "lifetime cap", "delta", "reserved of the cap")
    return ["<h2>Lifetime caps</h2>", table("What all studies together have reserved", head, rows)]


def _happened(entries: Sequence[Happened]) -> list[str]:
    if not entries:
        return ["<h2>What was asked</h2>", "<p>Nothing yet.</p>"]
    rows = [
        (_utc(_of_ns(each.time_ns)), each.study, "" if each.queries is None else each.queries, _said(each))
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
        when = "" if approved is None else _utc(_of_ns(approved))
        rows.append(
            (each.name, each.study.hex()[:16], each.data_set, when, "withdrawn" if each.withdrawn else "stands")
        )
    if not rows:
        return []
    head = ("study", "digest", "data set", "approved", "state")
    return ["<h2>Approvals</h2>", table("What this hospital approved", head, rows)]


def _node(state: NodeState, paste: Callable[[str], str]) -> list[str]:
    said = f"connected since {_utc(state.since)}" if state.connected else f"not connected since {_utc(state.since)}"
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
    when = datetime.datetime.fromtimestamp(found.time_s, datetime.UTC)
    return f"{_utc(when)}: {'everything holds' if found.holds else 'something does not hold'} ({found.seats} checked)"


def _of_ns(time_ns: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(time_ns / 1e9, datetime.UTC)


def _utc(when: datetime.datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M:%S} UTC"
