"""The operator's live page as HTML, made from the status alone; the verdict, and the next command, first."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any  # the values of a JSON object

from protocols.plural import at_most, counted
from runtime.loopback import AGAIN_S
from runtime.page import document, table, text, verdict

_SOON_DAYS = 3.0
_WAITS = ("waiting", "running")


def operator_page(
    status: Mapping[str, Any],
    *,
    consortium: str,
    trained: Mapping[str, bool],
    now_s: float,
    paste: Callable[[str], str] = str,
) -> str:
    """The page of a coordinator.

    status: as coordinator.status.read_status gives it; trained: of each study, whether its student is; now_s: seconds
    since 1970; paste: puts what a command needs besides into a text (runtime.printing).
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
    now = datetime.datetime.fromtimestamp(now_s, datetime.UTC)
    return document(
        title=f"The coordinator of {consortium}",
        kind="live page of an operator, read only",
        body="\n".join([
            verdict(f"{says}.", needs, tone="warn" if needs else "good"),
            *_studies(status["studies"]), *_hospitals(status),
        ]),
        footer=f"<p>As of {_utc(now)}; a browser loads it again every {AGAIN_S} s. Nothing can be changed here: use "
        "conclave-coordinator.</p>",
        again_s=AGAIN_S,
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
    for study in status["studies"]:
        if study["given_up"]:
            found.append(f"{study['study']}: given up without labels: batch {', '.join(map(str, study['given_up']))}")
        if study["state"] in ("stopped", "failed"):
            found.append(f"{study['study']} {study['state']}: {study['message']}")
    return found


def _studies(studies: Sequence[Mapping[str, Any]]) -> list[str]:
    parts = ["<h2>Studies</h2>", *([] if studies else ["<p>There is none yet.</p>"])]
    for study in studies:
        away = [each["seat"] for each in study["seats"] if not each["connected"]]
        asked = f"{study['asked']} of {counted(study['pool'], 'query')} asked in {counted(study['batches'], 'batch')}"
        answered = "" if study["answered"] is None else f", {study['answered']} answered"
        parts += [
            f"<h3>{text(study['study'])}: {text(study['state'])}</h3>",
            f"<p>{text(asked + answered)}; quorum {text(study['quorum'])} of {counted(len(study['seats']), 'seat')}. "
            f"{text(_sentence(study['message']))}</p>",
            *([f"<p>Not connected: {text(', '.join(away))}.</p>"] if away else []),
            table(
                f"Seats of {study['study']}",
                ("seat", "connected", "answers left", "epsilon used", "guaranteed", "delta", "batches left out"),
                [
                    (
                        each["seat"], "yes" if each["connected"] else "no", each["answers_left"],
                        at_most(each["epsilon_used"]), at_most(each["epsilon_guaranteed"]), at_most(each["delta"]),
                        each["left_out"],
                    )
                    for each in study["seats"]
                ],
            ),
        ]  # fmt: skip
    return parts


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:].removesuffix('.')}." if words else ""


def _hospitals(status: Mapping[str, Any]) -> list[str]:
    since = {each["party"]: each for each in status["connected"]}
    rows = [
        (
            each["party"],
            f"since {_utc(datetime.datetime.fromtimestamp(since[each['party']]['since_s'], datetime.UTC))}"
            if each["party"] in since
            else "no",
            since[each["party"]]["software"] if each["party"] in since else "",
            f"{each['days_left']:.1f}",
            each["revoked"] or "no",
        )
        for each in status["parties"]
    ]
    invited = status["open_invitations"]
    head = ("hospital", "connected", "software", "certificate's days left", "revoked")
    return [
        "<h2>Hospitals</h2>",
        table("Connections and certificates", head, rows, words=(1,)) if rows else "<p>None has a certificate yet.</p>",
        *([f"<p>Invited, and not enrolled yet: {text(', '.join(invited))}.</p>"] if invited else []),
    ]


def _utc(when: datetime.datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M:%S} UTC"
