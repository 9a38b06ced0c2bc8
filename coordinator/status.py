"""A coordinator's status: who is connected, rounds, answers left and budget used, as one value.

All of it is public within the consortium: it follows from ledgers, which depend on votes only through what was
released.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any  # the values of a JSON object

import numpy as np

from coordinator.connection.relayed_budgets import at_most
from coordinator.store.rows import Job, Serving
from coordinator.store.store import Store, ledger_path
from protocols.ledger.ledger import Ledger
from protocols.plural import counted
from protocols.study.levels import hidden
from protocols.study.study import Study, party_of

# Serve writes every half second; a slow disk may delay that.
_ALIVE_S = 10.0
_FRESH_S = 2.0
_DAY_S = 86_400


def read_status(store: Store, *, now_s: float) -> dict[str, Any]:
    """Everything that `status` shows. now_s: seconds since 1970.

    Raises StorageFailed, and InvalidInput for a study that was changed.
    """
    serving = alive(store, now_s=now_s)
    sessions = {each.party: each for each in store.sessions()} if serving else {}
    denied = store.members.denied()
    return {
        "serving": None if serving is None else asdict(serving),
        "parties": _parties(store, set(sessions), denied, now_s),
        "connected": [asdict(each) for each in sessions.values()],
        "silent": [asdict(each) for each in store.silent()] if serving else [],
        # Without their fingerprints, which `approve` asks for: whoever could copy one here would not telephone.
        "pending_requests": [{"party": each.party, "asked_s": each.asked_s} for each in store.members.pending()],
        "open_invitations": store.members.invited(),
        "studies": [study_status(store, name, set(sessions)) for name in store.studies()],
    }


def alive(store: Store, *, now_s: float) -> Serving | None:
    """The serve that is running now, or None. now_s: seconds since 1970."""
    serving = store.serving()
    return serving if serving is not None and abs(now_s - serving.seen_s) < _ALIVE_S else None


def study_status(store: Store, name: str, connected: set[str]) -> dict[str, Any]:
    """One study: its job, its rounds, and what each seat has left.

    For a study with a querying hospital, these are the relayed requests at their worst case: only that hospital
    (`asked_by`) has the ledger and knows which queries were answered.
    """
    study = store.study(name)
    job, level = store.job(name), study.confidentiality
    querier = hidden(level).querier if level.hides_queries else None
    asked, batches, answered = (0, 0, 0) if job is None else (job.asked, job.batches, job.answered)
    if querier is None:
        spent, given_up = _spent(store, study)
    else:
        (spent, asked, batches), given_up = _relayed(store, study), []
    return {
        "study": name,
        "digest": study.digest.hex(),
        "state": ("created" if querier is None else "relayed") if job is None else job.state,
        "message": "" if job is None else job.message,
        "asked_by": querier,
        "batches": batches,
        "asked": asked,
        "answered": answered if querier is None else None,
        "pool": study.queries_to_ask,
        "quorum": study.quorum,
        "given_up": given_up,
        "seats": _seats(store, study, spent, asked, connected),
    }


def serving_line(figures: dict[str, Any], *, now_s: float) -> str:
    """The line about `serve` in the figures of `read_status`. now_s: seconds since 1970.

    What a killed serve wrote stays in the store, so a line that is not fresh says how old it is.
    """
    serving = figures["serving"]
    if serving is None:
        return "not serving; start it with conclave-coordinator serve"
    line = f"serving on port {serving['port']} (process {serving['process']}), {len(figures['connected'])} connected"
    silent_s = abs(now_s - serving["seen_s"])
    return line if silent_s < _FRESH_S else f"{line}; as of {silent_s:.0f} s ago, and silent since: it may have ended"


def waiting_line(store: Store, job: Job, pool: int, *, now_s: float) -> str:
    """A job's progress while somebody waits for it; if nothing serves, that. now_s: seconds since 1970."""
    if alive(store, now_s=now_s) is None:
        return f"{job.study}: waits for `serve`, which is not running; start it: conclave-coordinator serve"
    return job_line(job, pool)


def job_line(job: Job, pool: int) -> str:
    """A job's progress as one line of text."""
    released = (
        f"{job.asked} of {counted(pool, 'query')} asked in {counted(job.batches, 'batch')}, {job.answered} answered"
    )
    line = f"{job.study}: {job.state}, {released}"
    return f"{line} ({job.message})" if job.message else line


def _spent(store: Store, study: Study) -> tuple[np.ndarray, list[int]]:
    """Nano-units counted against each seat's cap in the coordinator's ledger, and the batches given up there."""
    path = ledger_path(store.home, study.name)
    if not path.exists():
        return np.zeros(len(study.roster), dtype=np.int64), []
    with Ledger(path) as ledger:
        balances = ledger.balances()
        given_up = [number for number in ledger.unsettled() if ledger.given_up(number)]
    spent = [balances[seat.party].spent if seat.party in balances else 0 for seat in study.roster]
    return np.array(spent, np.int64), given_up


def _relayed(store: Store, study: Study) -> tuple[np.ndarray, int, int]:
    """What was relayed: the most that each seat can have spent, in nano-units; the numbers of queries and of
    batches.
    """
    path = ledger_path(store.home, study.name)
    if not path.exists():
        return np.zeros(len(study.roster), dtype=np.int64), 0, 0
    with Ledger(path) as ledger:
        return at_most(ledger, study)


def _seats(store: Store, study: Study, spent: np.ndarray, asked: int, connected: set[str]) -> list[dict[str, Any]]:
    left = max(study.query_limit - asked, 0)
    fits = np.zeros(len(spent), dtype=np.int64)
    if left:
        affordable = study.budgets.affordable(spent, limit=left)
        fits = study.participation.reach(asked, affordable, limit=left)
    used, guaranteed = study.budgets.epsilon_of(spent), study.budgets.epsilon_guaranteed
    absences: dict[str, int] = {}
    withdrawn = store.withdrawals.of(study.name)
    for fault in store.faults(study.name):
        absences[fault.seat] = absences.get(fault.seat, 0) + 1
    return [
        {
            "seat": seat.party,
            "connected": party_of(seat.party) in connected,
            "answers_left": int(fits[at]),
            "epsilon_used": float(used[at]),
            "epsilon_guaranteed": float(guaranteed[at]),
            "delta": seat.delta,
            "left_out": absences.get(seat.party, 0),
            "withdrawn": party_of(seat.party) in withdrawn,
        }
        for at, seat in enumerate(study.roster)
    ]


def _parties(store: Store, connected: set[str], denied: dict[str, str], now_s: float) -> list[dict[str, Any]]:
    """Each party, with its newest certificate."""
    newest = {each.name: each for each in store.members.certificates() if each.role == "party"}
    return [
        {
            "party": name,
            "connected": name in connected,
            "revoked": denied.get(each.serial),
            "serial": each.serial,
            "days_left": (each.not_after_s - now_s) / _DAY_S,
        }
        for name, each in sorted(newest.items())
    ]
