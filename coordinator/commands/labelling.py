"""label, resume, give-up, train: from a pool of queries to labels, and to a student."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from coordinator.commands.group import home_option, store_of
from coordinator.students import EQUAL, STUDENTS
from protocols.errors import InvalidInput, Refused
from protocols.plural import counted
from protocols.refusals.code import Code
from runtime.cli import EPILOG, json_option
from runtime.exits import Exit
from runtime.printing import pasteable, print_json, say_next, table

if TYPE_CHECKING:
    from coordinator.home import CoordinatorHome
    from coordinator.store.store import Job, Store
    from protocols.study.levels import Level

_EVERY_S = 0.2
_LINE_EVERY_S = 1.0
_STOPPED = {"stopped": (Code.LABELLING_STOPPED, Exit.NETWORK), "failed": (Code.LABELLING_FAILED, Exit.UNEXPECTED)}
_student_option = click.option(
    "--student", help=f"Student that is trained between the rounds of an interactive study: {' | '.join(STUDENTS)}."
)
_wait_option = click.option(
    "--wait", is_flag=True, help="Follow the labelling to its end; the exit code is 7 if it stops early."
)


@click.command(epilog=EPILOG)
@click.argument("study")
@_student_option
@_wait_option
@home_option
@json_option
def label(study: str, student: str | None, wait: bool, home: CoordinatorHome, as_json: bool) -> int:
    """Have `serve` label the pool of STUDY, in batches that every budget can pay for.

    \b
    Examples:
      conclave-coordinator label heart --wait
      conclave-coordinator label heart --student mlp      (an interactive study)
    """
    with store_of(home) as store:
        job = store.job(study)
        if job is None or (job.ended and job.state != "finished"):
            job = _ask(store, study, student)
        return _follow(store, job, wait=wait, as_json=as_json)


@click.command(epilog=EPILOG)
@click.argument("study")
@_student_option
@_wait_option
@home_option
@json_option
def resume(study: str, student: str | None, wait: bool, home: CoordinatorHome, as_json: bool) -> int:
    """Resume a stopped labelling of STUDY: open requests are repeated unchanged, which costs nothing more.

    \b
    Example:
      conclave-coordinator resume heart --wait
    """
    from coordinator.store.store import check_labelled_here

    with store_of(home) as store:
        job = store.job(study)
        if job is None:
            check_labelled_here(store.study(study))
            raise InvalidInput(f"study {study!r} was never labelled; allowed: label {study}")
        if job.ended and job.state != "finished":
            job = _ask(store, study, student or job.student)
        return _follow(store, job, wait=wait, as_json=as_json)


@click.command(epilog=EPILOG)
@click.argument("study")
@click.option(
    "--student",
    "kind",
    required=True,
    help=f"{' | '.join(STUDENTS)} | auto (cross-validation on the labels); behind a kind, {EQUAL}: classes count the "
    "same.",
)
@click.option(
    "--features",
    "features_file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Features of records that the student learns from, a file of `study features`; released with it [records].",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the training.")
@click.option("--device", default="auto", show_default=True, help="auto | cpu | cuda.")
@home_option
@json_option
def train(
    study: str,
    kind: str,
    features_file: Path | None,
    seed: int,
    device: str,
    home: CoordinatorHome,
    as_json: bool,
) -> None:
    """Train a student on the released labels of STUDY; it costs no budget.

    Where records vote, it learns soft labels of the pool: all that the released sums say of each class. `auto` compares
    kinds by cross-validation on what was released, and trains several times as long.

    \b
    Examples:
      conclave-coordinator train heart --student logistic_regression
      conclave-coordinator train xrays --student mlp --features features.npz
    """
    from coordinator.labelling.study_creation import stored_pool
    from coordinator.labelling.training import keep_student, train_student
    from protocols.features.feature_map import read_features

    features = None if features_file is None else read_features(features_file, None)

    with store_of(home) as store:
        labelled = store.labelled(study)
        pool = stored_pool(labelled.pool, labelled.study)
        trained = train_student(labelled, pool, kind=kind, seed=seed, device=device, features=features)
        file = keep_student(store.home.study(study) / "student", labelled, trained)
    kind = trained.kind
    figures = {
        "student": kind,
        "seed": seed,
        "labels": trained.labels,
        "reinforced": trained.reinforced,
        "unlabelled": trained.unlabelled,
        "agreement": trained.agreement,
        "features_sha256": None if features is None else features.digest,
        "file": str(file),
    }
    if trained.choice is not None:
        figures["compared"] = [asdict(score) for score in trained.choice.scores]
    if as_json:
        print_json(figures)
        return
    for line in () if trained.choice is None else trained.choice.lines:
        click.echo(line)
    learned = "released labels" if labelled.cells is None else "soft labels of the public pool"
    click.echo(f"{kind} trained on {trained.labels} {learned}; it gives {trained.agreement:.1%} of them back")
    # How often it is right is another figure, which nobody can say without labelled records.
    click.echo("how often it is right, hospitals can say: conclave-party data score STUDY --release FOLDER")
    say_next(f"conclave-coordinator release {study}")


def _ask(store: Store, name: str, student: str | None) -> Job:
    from coordinator.store.store import check_labelled_here

    study = store.study(name)
    check_labelled_here(study)
    interactive = study.mechanism.interactive
    if interactive != (student is not None) or student not in (None, *STUDENTS):
        allowed = ", ".join(STUDENTS) if interactive else f"none for {study.mechanism.name}"
        raise InvalidInput(f"--student is {student!r}; allowed: {allowed}")
    return store.ask_job(name, student=student)


def _follow(store: Store, job: Job, *, wait: bool, as_json: bool) -> int:
    """Shows a job's progress, to its end if `wait`; returns the exit code."""
    from coordinator.status import alive, job_line, waiting_line

    if not job.ended and alive(store, now_s=time.time()) is None:
        waits = "`serve` is not running on this home; the labelling begins when it is: conclave-coordinator serve"
        click.echo(pasteable(waits), err=True)
    pool = store.study(job.study).queries_to_ask
    live, shown, shown_at = sys.stderr.isatty(), "", 0.0
    while wait and not job.ended:
        line = waiting_line(store, job, pool, now_s=time.time())
        if line != shown and (live or time.monotonic() - shown_at >= _LINE_EVERY_S):
            click.echo(f"\r\x1b[K{line[:110]}" if live else line, err=True, nl=not live)
            shown, shown_at = line, time.monotonic()
        time.sleep(_EVERY_S)
        job = store.job(job.study) or job
    if live and shown:
        click.echo("\r\x1b[K", err=True, nl=False)
    if as_json:
        print_json(asdict(job))
    else:
        click.echo(job_line(job, pool))
    if job.state not in _STOPPED:
        return 0
    code, exit_code = _STOPPED[job.state]
    click.echo(f"error [{code}]: {job.message}", err=True)
    say_next(f"fix that, then conclave-coordinator resume {job.study}", err=True)
    return exit_code


@click.command(name="give-up", epilog=EPILOG)
@click.argument("study")
@click.option("--yes", is_flag=True, help="Do not ask first.")
@home_option
@json_option
def give_up(study: str, yes: bool, home: CoordinatorHome, as_json: bool) -> None:
    """Give up the batch of STUDY that cannot be finished: it yields no labels, and its charges stand.

    \b
    Example:
      conclave-coordinator give-up heart
    """
    from coordinator.labelling.giving_up import give_up as end
    from coordinator.labelling.giving_up import stuck_batch
    from coordinator.status import study_status
    from coordinator.store.store import Store

    home.settings()
    with Store(home) as store:
        found = stuck_batch(store, study)
        seats = {each["seat"]: each for each in study_status(store, study, set())["seats"]}
        if not found.given_up:
            job, level = store.job(study), store.study(study).confidentiality
            why = _why(study, "" if job is None else job.message, level)
            rows: list[list[object]] = [
                [seat, str(amount), seats[seat]["epsilon_used"], seats[seat]["answers_left"]]
                for seat, amount in found.charged.items()
            ]
            said = (
                f"batch {found.number} of {study}: {counted(found.queries, 'query')}, asked of "
                f"{counted(len(rows), 'seat')}, not released\n"
                f"{table(['seat', 'stays charged', 'epsilon used, with it', 'answers left'], rows)}\n"
                f"{why}"
                "If it is given up, its queries never get a label and its charges are not refunded, because what was "
                "sent may have been opened.\nThis cannot be undone."
            )
            click.echo(said, err=as_json)
            if not yes and not click.confirm(f"Give batch {found.number} up for ever?", err=as_json):
                raise Refused(Code.NOT_CONFIRMED, f"batch {found.number} of {study!r} stays open")
        end(store, study, found.number)
    if as_json:
        figures = {"study": study, "batch": found.number, "queries": found.queries, "new": not found.given_up}
        units = sorted({each.unit for each in found.charged.values()})
        print_json({**figures, "stays_charged": dict(found.charged), "unit": units[0] if units else None})
        return
    before = "was already given up; nothing was changed" if found.given_up else "is given up"
    click.echo(f"batch {found.number} of {study} {before}")
    say_next(f"conclave-coordinator resume {study}, or release {study} as it is")


def _why(study: str, message: str, level: Level) -> str:
    """In words: why the labelling stopped, and what to check first if it waited for a guardian."""
    said = f"its labelling stopped: {message}\n"
    if not level.second_server:
        return said
    return (
        f"{said}If it waited for the guardian {level.second_server}, and that is back, run resume {study}: it costs "
        "nothing.\n"
    )
