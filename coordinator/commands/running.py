"""From serving to a release: serve, status, label, resume, give-up, train, evaluate, release, verify, passphrase."""

from __future__ import annotations

import datetime
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any  # the values of a JSON object

import click

from coordinator.commands.group import home_option, store_of
from coordinator.commands.study import seat_rows
from coordinator.students import EQUAL, SCORES, STUDENTS
from protocols.errors import InvalidInput, Refused
from protocols.plural import counted, utc
from protocols.refusals.code import Code
from runtime.cli import EPILOG, json_option, page_options, passphrase_command, show_link
from runtime.exits import Exit, on_terminal, until_signalled
from runtime.logs import Log
from runtime.printing import pasteable, pasting_on_page, print_json, say_next, text_table

if TYPE_CHECKING:
    from coordinator.home import CoordinatorHome
    from coordinator.store.store import Job, Store
    from protocols.study.levels import Level


@click.command(epilog=EPILOG)
@page_options
@home_option
@click.option("--json", "as_json", is_flag=True, help="Log JSON lines at a terminal too.")
def serve(home: CoordinatorHome, page: bool, page_port: int, as_json: bool) -> int:
    """Serve the nodes of the hospitals and run labellings, until Ctrl-C or SIGTERM.

    Logs are on standard error: plain lines at a terminal, otherwise JSON lines. A labelling that was under way
    continues by itself. /healthz, /metrics and a live page are on 127.0.0.1; the link in live-page.link opens it once.

    \b
    Example:
      conclave-coordinator serve
    """
    from coordinator.serving import serve as serve_home

    plain = sys.stderr.isatty() and not as_json
    return until_signalled(
        lambda stop: serve_home(
            home,
            stop=stop,
            log=Log(sys.stderr, plain=plain),
            page_port=page_port if page else None,
            show_link=show_link if plain else lambda link: None,
            paste=pasting_on_page(),
        )
    )


_WATCHED_S = 1.0


@click.command(epilog=EPILOG)
@click.option("--watch", is_flag=True, help="Refresh every second, until Ctrl-C.")
@home_option
@json_option
def status(watch: bool, home: CoordinatorHome, as_json: bool) -> None:
    """Show who is connected, rounds, answers left and budget used.

    \b
    Example:
      conclave-coordinator status --watch
    """
    from coordinator.status import read_status

    with store_of(home) as store:
        while True:
            now_s = time.time()
            figures = read_status(store, now_s=now_s)
            if watch and sys.stdout.isatty():
                click.clear()
            if as_json:
                print_json(figures)
            else:
                click.echo(_text(figures, now_s))
            if not watch:
                return
            time.sleep(_WATCHED_S)


def _text(figures: dict[str, Any], now_s: float) -> str:
    from coordinator.status import serving_line

    lines = [serving_line(figures, now_s=now_s)]
    if figures["parties"]:
        rows = [
            [each["party"], each["connected"], each["days_left"], each["revoked"] or ""] for each in figures["parties"]
        ]
        lines += ["", text_table(["party", "connected", "days left", "revoked"], rows)]
    for each in figures["silent"]:
        lines.append(
            f"not waited for: {each['party']}, which has not answered since {utc(each['since_s'])}; it is asked "
            "all the same, and waited for again when it connects or answers"
        )
    for request in figures["pending_requests"]:
        lines.append(f"waiting for approval: {request['party']}")
    if figures["open_invitations"]:
        lines.append(f"invited: {', '.join(figures['open_invitations'])}")
    for study in figures["studies"]:
        said = f" ({study['message']})" if study["message"] else ""
        asker = study["asked_by"]
        answered = f"{study['answered']} answered" if asker is None else f"asked by {asker}"
        lines += [
            "",
            f"study {study['study']}: {study['state']}{said}; {study['asked']} of "
            f"{counted(study['pool'], 'query')} asked in "
            f"{counted(study['batches'], 'batch')}, {answered}; quorum {study['quorum']}",
            text_table(*seat_rows(study)),
        ]
        if asker is not None:
            lines.append(
                f"{asker}'s ledger holds these budgets: they are shown here at their worst case, until a receipt says "
                "less"
            )
        if study["given_up"]:
            numbers = ", ".join(map(str, study["given_up"]))
            lines.append(f"given up without labels, charged as reserved: batch {numbers}")
    return "\n".join(lines)


passphrase = passphrase_command(
    "conclave-coordinator", home_option, keys=lambda home: [home.key_file, home.authority_key_file], runs="serve"
)


_EVERY_S, _LINE_EVERY_S = 0.2, 1.0
_STOPPED = {"stopped": (Code.LABELLING_STOPPED, Exit.NETWORK), "failed": (Code.LABELLING_FAILED, Exit.UNEXPECTED)}
_student_option = click.option(
    "--student", help=f"Student that is trained between the rounds of an interactive study: {' | '.join(STUDENTS)}."
)
_wait_option = click.option(
    "--wait", is_flag=True, help="Follow the labelling to its end; the exit code is 7 if it stops early."
)

_without_option = click.option(
    "--without", multiple=True, metavar="SEAT",
    help="Continue without this seat for good, for instance if a study is asked once and it is away. Can be repeated.",
)  # fmt: skip


@click.command(epilog=EPILOG)
@click.argument("study")
@_student_option
@_without_option
@_wait_option
@home_option
@json_option
def label(
    study: str, student: str | None, without: tuple[str, ...], wait: bool, home: CoordinatorHome, as_json: bool
) -> int:
    """Have `serve` label the pool of STUDY, in batches that every budget can pay for.

    A study in which records vote is asked once: it waits until every hospital is connected and has approved it, or
    until you decide to do without one.

    \b
    Examples:
      conclave-coordinator label heart --wait
      conclave-coordinator label heart --without west
      conclave-coordinator label heart --student mlp      (an interactive study)
    """
    with store_of(home) as store:
        job = store.job(study)
        if job is None or job.state != "finished":
            job = _ask(store, study, student, without)
        return _follow(store, job, wait=wait, as_json=as_json)


@click.command(epilog=EPILOG)
@click.argument("study")
@_student_option
@_without_option
@_wait_option
@home_option
@json_option
def resume(
    study: str, student: str | None, without: tuple[str, ...], wait: bool, home: CoordinatorHome, as_json: bool
) -> int:
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
        if job.state != "finished":
            job = _ask(store, study, student or job.student, without)
        return _follow(store, job, wait=wait, as_json=as_json)


@click.command(epilog=EPILOG)
@click.argument("study")
@click.option(
    "--student",
    "kind",
    required=True,
    help=f"{' | '.join(STUDENTS)} | {SCORES} (those that graded votes give) | auto (cross-validation on the labels); "
    f"behind a kind, {EQUAL}: classes count the same.",
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
    study: str, kind: str, features_file: Path | None, seed: int, device: str, home: CoordinatorHome, as_json: bool
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
        if not labelled.study.votes.pool:
            raise InvalidInput(f"study {study!r} counts patients, and has no labels; allowed: release {study}")
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
    made = "made of the sums; of" if kind == SCORES else "trained on"
    click.echo(f"{kind} {made} {trained.labels} {learned}; it gives {100 * trained.agreement:.1f} % of them back")
    # How often it is right is another figure, which nobody can say without labelled records.
    click.echo("how often it is right, hospitals can say: conclave-party data score STUDY --release FOLDER")
    with store_of(home) as store:
        say_next(_after(store, study))


# The page to open first, by whether a pool was labelled.
_FIRST = {True: "privacy.html", False: "report.html"}


def _ask(store: Store, name: str, student: str | None, without: tuple[str, ...]) -> Job:
    from coordinator.store.store import check_labelled_here

    study = store.study(name)
    check_labelled_here(study)
    interactive = study.mechanism.interactive
    if interactive != (student is not None) or student not in (None, *STUDENTS):
        allowed = ", ".join(STUDENTS) if interactive else f"none for {study.mechanism.name}"
        raise InvalidInput(f"--student is {student!r}; allowed: {allowed}")
    last, seats = store.job(name), set(study.seats)
    left = seats.difference(without, last.without if last else ())
    if without and (set(without) - seats or len(left) < study.quorum):
        raise InvalidInput(f"--without is {', '.join(without)!r}; allowed: seats of {name!r}, if {study.quorum} stay")
    return store.ask_job(name, student=student, without=without)


def _follow(store: Store, job: Job, *, wait: bool, as_json: bool) -> int:
    """Shows a job's progress, to its end if `wait`; returns the exit code."""
    from coordinator.status import alive, job_line, unlike_hospitals, waiting_line

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
        if job.state == "finished" and not as_json:
            click.echo(unlike_hospitals(store, job.study), nl=False)
            say_next(_after(store, job.study))
        return 0
    code, exit_code = _STOPPED[job.state]
    click.echo(f"error [{code}]: {job.message}", err=True)
    say_next(f"fix that, then conclave-coordinator resume {job.study}", err=True)
    return exit_code


def _after(store: Store, name: str) -> str:
    """What comes after a study was labelled: a student, its judges, or the release."""
    made, home = store.study(name), store.home
    if made.votes.pool and not (home.study(name) / "student").is_dir():
        return f"conclave-coordinator train {name} --student auto"
    asks = made.votes.evaluation is not None and not home.asked_about(name).exists()
    return f"conclave-coordinator {f'evaluate {name} --wait' if asks else f'release {name}'}"


@click.command(epilog=EPILOG)
@click.argument("study")
@_wait_option
@home_option
@json_option
def evaluate(study: str, wait: bool, home: CoordinatorHome, as_json: bool) -> int:
    """Ask the judges of STUDY, once and at no further cost, how good its trained student is.

    \b
    Example:
      conclave-coordinator evaluate heart --wait
    """
    from coordinator.labelling.study_creation import stored_pool
    from coordinator.labelling.training import kept_student
    from coordinator.release.evaluation import keep_model
    from coordinator.release.export import model_for_judges

    with store_of(home) as store:
        made = store.study(study)
        if made.votes.evaluation is None:
            raise InvalidInput(f"study {study!r} has no judges; allowed: one with [evaluation] in its file")
        labelled = store.labelled(study)
        pool = stored_pool(labelled.pool, made)
        trained = kept_student(home.study(study) / "student", labelled, pool)
        keep_model(home.asked_about(study), model_for_judges(trained, pool), pool, classes=made.labelled.said)
        return _follow(store, _ask(store, study, None, ()), wait=wait, as_json=as_json)


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

    with store_of(home) as store:
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
                f"{text_table(['seat', 'stays charged', 'epsilon used, with it', 'answers left'], rows)}\n"
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


@click.command(epilog=EPILOG)
@click.argument("study")
@click.option("--out", type=click.Path(path_type=Path), help="Folder to write [release-STUDY]; it must not exist.")
@click.option(
    "--earlier",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    help="Folder of another coordinator's earlier release of the same data; this one's own are found without it.",
)
@click.option(
    "--patient-of",
    "named",
    multiple=True,
    metavar="A,B,...",
    help="State the guarantee of a patient known to all of these hospitals; repeatable.",
)
@click.option(
    "--unproven",
    multiple=True,
    metavar="SEAT",
    help="State that no receipt covers this seat's charges; give every such seat.",
)
@click.option(
    "--require",
    "required",
    multiple=True,
    metavar="FIGURE>=NUMBER",
    help="Release only if the judges' figures show that the student is so good, such as accuracy>=0.75; repeatable.",
)
@click.option("--labels-only", is_flag=True, help="Release the labels without a student.")
@home_option
@json_option
def release(
    study: str,
    out: Path | None,
    earlier: tuple[Path, ...],
    named: tuple[str, ...],
    unproven: tuple[str, ...],
    required: tuple[str, ...],
    labels_only: bool,
    home: CoordinatorHome,
    as_json: bool,
) -> None:
    """Write the signed release of STUDY: labels, student, privacy statement, and the evidence for them.

    Where records vote: the noisy sums, the queries, and the soft labels that are made of them.

    \b
    Examples:
      conclave-coordinator release heart
      conclave-coordinator release heart --out releases/heart-2 --earlier releases/heart-1 --patient-of a,b
    """
    from coordinator.labelling.study_creation import stored_pool
    from coordinator.labelling.training import kept_student
    from coordinator.release.folder import read_object
    from coordinator.release.release import make_release, officers_file_of
    from coordinator.store.store import check_labelled_here
    from protocols.reading import read_bytes
    from protocols.release.manifest import STATEMENT_FILE

    target = out or Path(f"release-{study}")
    if target.exists():
        raise InvalidInput(f"{target} exists; allowed: a new --out, so that no release is overwritten")
    with store_of(home) as store:
        check_labelled_here(store.study(study))
        labelled = store.labelled(study)
    trained = None
    if labelled.study.votes.pool and not labels_only:
        pool = stored_pool(labelled.pool, labelled.study)
        trained = kept_student(home.study(study) / "student", labelled, pool)
    now = datetime.datetime.now(datetime.UTC)
    written = make_release(
        labelled,
        out=target,
        key=home.key(),
        certificate=home.certificate(),
        authority=home.authority(),
        trained=trained,
        model=read_bytes(judged, most=2**31) if (judged := home.asked_about(study)).exists() else None,
        required=required,
        earlier=earlier,
        own=sorted(home.studies.glob("*/released/[!.]*")),
        keep=home.released(study) / f"{now:%Y%m%dT%H%M%S%f}",
        named=[each.split(",") for each in named],
        unproven=unproven,
        now=now,
    )
    if as_json:
        print_json(
            {"release": str(written), "labels": int((labelled.labels >= 0).sum()), "student": trained is not None}
        )
        return
    what = f"{counted(int((labelled.labels >= 0).sum()), 'label')}"
    if not labelled.study.votes.pool:
        what = "the counts"
    elif labelled.cells is not None:
        what = f"the noisy sums, and soft labels of {labelled.study.terms.pool_size} public records,"
    click.echo(f"released {what} in {written}; open {written / _FIRST[labelled.study.votes.pool]}")
    before = [each["name"] for each in read_object(written / STATEMENT_FILE)["earlier_releases"]["releases"]]
    click.echo(f"together with the earlier releases: {', '.join(before)}" if before else "no earlier release is named")
    click.echo(f"for the data-protection officer, to be filled in: {officers_file_of(written)}")
    of_pool = labelled.study.votes.pool and (trained is not None or labelled.cells is not None)
    with_pool = f" --pool {labelled.pool}" if of_pool else ""
    say_next(f"conclave-coordinator verify {written} --authority {home.authority_file}{with_pool}")


@click.command(epilog=EPILOG)
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--authority",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The consortium's certificate, from a node of your hospital or the operator [the copy in the folder, which "
    "proves nothing].",
)
@click.option(
    "--pool",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The study's public pool, without which a student, and soft labels of records, are not checked in full.",
)
@json_option
def verify(folder: Path, authority: Path | None, pool: Path | None, as_json: bool) -> int:
    """Check a release in FOLDER: signature, files, log, receipts, charges, figures. Needs no home and no network.

    Without --authority it says whether the folder is consistent, and not who signed it. The exit code is 0 only where
    everything was checked: 9 where a check was not made in full, 8 where one failed.

    \b
    Example:
      conclave-coordinator verify release-heart --authority authority.pem
    """
    from coordinator.release.verify import AUTHORITY, verify_release

    checks = verify_release(folder, authority, pool=pool)
    failed = [check for check in checks if check.passed is False]
    partly = [check.name for check in checks if check.passed is None]
    ends = Exit.VERIFICATION if failed else Exit.PARTLY if partly else Exit.DONE
    if as_json:
        verified = ends is Exit.DONE
        print_json({"verified": verified, "not_checked": partly, "checks": [asdict(check) for check in checks]})
        return ends
    for check in checks:
        state = {True: "holds ", False: "FAILED", None: "NOT CHECKED"}[check.passed]
        click.echo(on_terminal(f"{state}  {check.name}: {check.message}"), err=not check.passed)
        if check.next_step:
            click.echo(f"        next: {check.next_step}", err=True)
    if failed:
        said = f"{len(failed)} of {counted(len(checks), 'check')} failed in {folder}"
        click.echo(f"error [{Code.VERIFICATION_FAILED}]: {on_terminal(said)}", err=True)
        say_next(f"{failed[0].next_step}", err=True)
    elif AUTHORITY in partly:
        rest = [name for name in partly if name != AUTHORITY]
        but = f"; not checked: {', '.join(rest)}" if rest else ""
        click.echo(f"NOT VERIFIED: the folder agrees with itself, and nothing shows who signed it{but}")
    elif partly:
        click.echo(f"verified except {', '.join(partly)}: see what was not checked above")
    else:
        click.echo("verified: the folder is as the coordinator signed it, and its ledgers add up")
    return ends
