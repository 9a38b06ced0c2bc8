"""A coordinator's status as one value, as metrics, and as the live page: who is connected, rounds, budget used.

All of it but `unlike_hospitals` is public within the consortium: it follows from ledgers, which depend on votes only
through what was released.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any  # the values of a JSON object

import numpy as np

from coordinator.connection.relaying import most_spent
from coordinator.store.store import Job, Serving, Store, ledger_path
from protocols.ledger.ledger import Ledger
from protocols.levels.clear import unlike_others
from protocols.plural import at_most, counted, some, utc
from protocols.study.study import Study, party_of
from runtime.loopback import Family
from runtime.page import document, folded_list, strip, table, text, verdict
from runtime.printing import text_table

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
    approved = {(study, seat) for each in sessions.values() for study, seat in each.seats}
    denied = store.members.denied()
    return {
        "serving": None if serving is None else asdict(serving),
        "parties": _parties(store, set(sessions), denied, now_s),
        "connected": [asdict(each) for each in sessions.values()],
        "silent": [asdict(each) for each in store.silent()] if serving else [],
        # Without their fingerprints, which `approve` asks for: whoever could copy one here would not telephone.
        "pending_requests": [{"party": each.party, "asked_s": each.asked_s} for each in store.members.pending()],
        "open_invitations": store.members.invited(),
        "studies": [study_status(store, name, set(sessions), approved) for name in store.studies()],
    }


def alive(store: Store, *, now_s: float) -> Serving | None:
    """The serve that is running now, or None. now_s: seconds since 1970."""
    serving = store.serving()
    return serving if serving is not None and abs(now_s - serving.seen_s) < _ALIVE_S else None


def study_status(
    store: Store, name: str, connected: set[str], approved: Collection[tuple[str, str]] = ()
) -> dict[str, Any]:
    """One study: its job, its rounds, and what each seat has left. approved: seats, with their study's digest,
    whose connected node may be asked.

    For a study with a querying hospital, these are the relayed requests at their worst case: only that hospital
    (`asked_by`) has the ledger and knows which queries were answered.
    """
    study = store.study(name)
    job, querier = store.job(name), study.confidentiality.asked_by or None
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
        "once": study.votes.once,
        "given_up": given_up,
        "seats": _seats(store, study, spent, asked, connected, approved),
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
    """What counts against each seat's cap in the coordinator's ledger, and the batches given up there."""
    path = ledger_path(store.home, study.name)
    if not path.exists():
        return np.zeros(len(study.roster), dtype=np.int64), []
    with Ledger(path) as ledger:
        balances = ledger.balances()
        given_up = [number for number in ledger.unsettled() if ledger.given_up(number)]
    spent = [balances[seat.party].spent if seat.party in balances else 0 for seat in study.roster]
    return np.array(spent, np.int64), given_up


def _relayed(store: Store, study: Study) -> tuple[np.ndarray, int, int]:
    """What was relayed: the most that each seat can have spent; the numbers of queries and of batches."""
    path = ledger_path(store.home, study.name)
    if not path.exists():
        return np.zeros(len(study.roster), dtype=np.int64), 0, 0
    with Ledger(path) as ledger:
        return most_spent(ledger, study)


def _seats(
    store: Store,
    study: Study,
    spent: np.ndarray,
    asked: int,
    connected: set[str],
    approved: Collection[tuple[str, str]],
) -> list[dict[str, Any]]:
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
            "display_name": seat.display_name,
            "connected": party_of(seat.party) in connected,
            "ready": (study.digest.hex(), seat.party) in approved,
            "asked": bool(spent[at]),
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


def status_metrics(status: Mapping[str, Any]) -> list[Family]:
    """The figures of read_status, as metrics."""
    studies = status["studies"]
    seats = [({"study": study["study"], "seat": seat["seat"]}, seat) for study in studies for seat in study["seats"]]
    requests, days = status["pending_requests"], status["parties"]
    made = [
        Family("conclave_parties_connected", "Parties with an open stream.", [({}, len(status["connected"]))]),
        Family("conclave_requests_pending", "Certificate requests that wait for approval.", [({}, len(requests))]),
        Family(
            "conclave_certificate_days_left",
            "Days until a party's newest certificate expires.",
            [({"party": each["party"]}, each["days_left"]) for each in days],
        ),
    ]
    for key, about in (("batches", "Rounds of votes."), ("asked", "Queries asked."), ("answered", "Queries answered.")):
        known = [({"study": each["study"]}, each[key]) for each in studies if each[key] is not None]
        made.append(Family(f"conclave_study_{key}", about, known))
    for key, about in (
        ("connected", "Whether the seat's party has an open stream."),
        ("answers_left", "Answers that the seat's budget still affords, in the worst case."),
        ("epsilon_used", "The ledger's epsilon at the seat's own order: for monitoring, not a guarantee."),
        ("epsilon_guaranteed", "The epsilon that the seat's cap guarantees."),
        ("left_out", "Batches from which the seat was left out."),
    ):
        made.append(Family(f"conclave_seat_{key}", about, [(labels, float(seat[key])) for labels, seat in seats]))
    return made


_SOON_DAYS = 3.0
_WAITS = ("waiting", "running")
# More hospitals than this are folded.
_MOST_OPEN = 8


def operator_page(
    status: Mapping[str, Any],
    *,
    consortium: str,
    trained: Mapping[str, bool],
    now_s: float,
    paste: Callable[[str], str] = str,
) -> str:
    """The page of a coordinator.

    status: as read_status gives it; trained: of each study, whether its student is; now_s: seconds since 1970; paste:
    puts what a command needs besides into a text (runtime.printing).
    """
    commands = next_commands(status, trained)
    waits = [f"{each['study']}: {each['message'] or each['state']}" for each in _at_work(status)]
    troubles = _troubles(status)
    needs = [("Next:", paste(command)) for command in commands] + [("Look at:", paste(each)) for each in troubles]
    says = "; ".join([
        f"Serving; {len(status['connected'])} of {counted(len(_members(status)), 'hospital')} connected",
        *waits,
        "nothing needs you" if not needs else f"{len(needs)} thing{'s' * (len(needs) > 1)} to do",
    ])  # fmt: skip
    return document(
        title=f"The coordinator of {consortium}",
        kind="live page of an operator, read only",
        body="\n".join([
            verdict(f"{says}.", needs, tone="warn" if needs else "good"),
            *_studies(status["studies"], {each["party"] for each in _members(status)}), *_hospitals(status),
        ]),
        footer=f"<p>As of {utc(now_s)}; <a href=\"\">reload it</a>. Nothing can be changed here: use "
        "conclave-coordinator.</p>",
    )  # fmt: skip


def students_trained(folder: Path, names: Sequence[str]) -> dict[str, bool]:
    """Of each study, whether a student is kept. folder: the home's folder of studies."""
    return {name: (folder / name / "student").is_dir() for name in names}


def next_commands(status: Mapping[str, Any], trained: Mapping[str, bool]) -> list[str]:
    """What the operator would type next, for each study and each request that waits."""
    commands = [
        f"have {each['party']} read out its words by telephone, then: conclave-coordinator approve {each['party']}"
        for each in status["pending_requests"]
    ]
    if not _members(status) and not commands and not status["open_invitations"]:
        commands.append("conclave-coordinator invite HOSPITAL")
    elif not status["studies"]:
        commands.append("conclave-coordinator study create STUDY.toml --pool POOL")
    for study in status["studies"]:
        name, state = study["study"], study["state"]
        if state == "created":
            commands.append(f"once every hospital has approved it: conclave-coordinator label {name}")
        elif state in ("stopped", "failed"):
            commands.append(f"conclave-coordinator resume {name}")
        elif state == "finished" and not trained.get(name, False):
            commands.append(f"conclave-coordinator train {name} --student KIND")
        elif state == "finished":
            commands.append(f"conclave-coordinator release {name}, unless that is done")
    return commands


def _at_work(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [each for each in status["studies"] if each["state"] in _WAITS]


def _members(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [each for each in status["parties"] if each["revoked"] is None]


def _troubles(status: Mapping[str, Any]) -> list[str]:
    found = [
        f"{each['party']}'s certificate ends in {max(each['days_left'], 0.0):.1f} days; it is renewed while its node "
        "is connected"
        for each in _members(status)
        if each["days_left"] < _SOON_DAYS
    ]
    found += [f"{each['party']} has not answered in time {counted(each['times'], 'time')}" for each in status["silent"]]
    found += [said for study in status["studies"] for said in blocking(study)]
    for study in status["studies"]:
        if study["given_up"]:
            found.append(f"{study['study']}: given up without labels: batch {', '.join(map(str, study['given_up']))}")
        if study["state"] in ("stopped", "failed"):
            found.append(f"{study['study']} {study['state']}: {study['message']}")
    return found


def blocking(study: Mapping[str, Any]) -> list[str]:
    """Who keeps a study from going on, with what to do; of one that is asked once, everybody who is not ready."""
    if study["state"] not in ("created", *_WAITS):
        return []
    waits = [each for each in study["seats"] if not each["withdrawn"] and not (study["once"] and each["asked"])]
    away = [_shown(each) for each in waits if not each["connected"]]
    unready = [_shown(each) for each in waits if each["connected"] and not each["ready"] and not each["asked"]]
    start = f"have {'its node' if len(away) == 1 else 'their nodes'} started: conclave-party run"
    if not study["once"] and study["state"] != "created" and len(study["seats"]) - len(away) >= study["quorum"]:
        return [f"{study['study']}: continues without the votes of {some(away)}; {start}"] if away else []
    found = []
    if away:
        found.append(f"{study['study']}: not connected: {some(away)}; {start}")
    if unready:
        found.append(f"{study['study']}: not approved: {some(unready)}; send the study, for: conclave-party approve")
    if found and study["once"]:
        found.append(f"{study['study']} is asked once: it waits for all, or: conclave-coordinator label "
                     f"{study['study']} --without SEAT")  # fmt: skip
    return found


def _shown(seat: Mapping[str, Any]) -> str:
    """A seat for people, with its display name."""
    return f"{seat['display_name']} ({seat['seat']})" if seat["display_name"] else str(seat["seat"])


def _steps(study: Mapping[str, Any], enrolled: Collection[str]) -> list[tuple[str, int, int]]:
    """Where the seats of a study stand: with a certificate, connected, approved (as far as they are connected), asked;
    and its labels."""
    seats = study["seats"]
    invited = sum(party_of(each["seat"]) in enrolled for each in seats)
    counts = [(name, sum(bool(each[key]) for each in seats)) for name, key in
              (("connected", "connected"), ("approved", "ready"), ("asked", "asked"))]  # fmt: skip
    steps = [("enrolled", invited, len(seats)), *((name, there, len(seats)) for name, there in counts)]
    return [*steps, ("labelled", int(study["state"] == "finished"), 1)]


def _studies(studies: Sequence[Mapping[str, Any]], enrolled: Collection[str]) -> list[str]:
    parts = ["<h2>Studies</h2>", *([] if studies else ["<p>There is none yet.</p>"])]
    for study in studies:
        asked = f"{study['asked']} of {counted(study['pool'], 'query')} asked in {counted(study['batches'], 'batch')}"
        answered = "" if study["answered"] is None else f", {study['answered']} answered"
        parts += [
            f"<h3>{text(study['study'])}: {text(study['state'])}</h3>",
            strip(_steps(study, enrolled)),
            f"<p>{text(asked + answered)}; quorum {text(study['quorum'])} of {counted(len(study['seats']), 'seat')}. "
            f"{text(_sentence(study['message']))}</p>",
            folded_list(f"All {counted(len(study['seats']), 'seat')} of {study['study']}", table(
                f"Seats of {study['study']}",
                ("seat", "connected", "answers left", "epsilon used", "guaranteed", "delta", "batches left out"),
                [
                    (
                        _shown(each), "yes" if each["connected"] else "no", each["answers_left"],
                        at_most(each["epsilon_used"]), at_most(each["epsilon_guaranteed"]), at_most(each["delta"]),
                        each["left_out"],
                    )
                    for each in study["seats"]
                ],
            )),
        ]  # fmt: skip
    return parts


def unlike_hospitals(store: Store, study: str) -> str:
    """How far each hospital's sum stood apart, as lines for the operator's terminal alone; "" where none was seen."""
    with Ledger(ledger_path(store.home, study)) as ledger:
        found = unlike_others(store.study(study), ledger)
    if not found:
        return ""
    return (
        "How far each hospital's records are from all others' (1 if they were drawn alike; for you alone, as it is not "
        f"protected):\n{text_table(['hospital', 'distance'], [[seat, f'{far:.1f}'] for seat, far in found.items()])}\n"
        "A large distance is no proof of a fault: four real hospitals had 2.4 to 5.1, made-up records 4.8 to 13.\n"
    )


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:].removesuffix('.')}." if words else ""


def _hospitals(status: Mapping[str, Any]) -> list[str]:
    since = {each["party"]: each for each in status["connected"]}
    rows = [
        (
            each["party"],
            f"since {utc(since[each['party']]['since_s'])}" if each["party"] in since else "no",
            since[each["party"]]["software"] if each["party"] in since else "",
            f"{each['days_left']:.1f}",
            each["revoked"] or "no",
        )
        for each in status["parties"]
    ]
    invited = status["open_invitations"]
    head = ("hospital", "connected", "software", "certificate's days left", "revoked")
    listed = "<p>None has a certificate yet.</p>"
    if rows:
        listed = table("Connections and certificates", head, rows, words=(1,))
    return [
        "<h2>Hospitals</h2>",
        folded_list(f"All {len(rows)} hospitals", listed) if len(rows) > _MOST_OPEN else listed,
        *([f"<p>Invited, and not enrolled yet: {text(some(invited))}.</p>"] if invited else []),
    ]
