"""The command ask: the consortium labels this hospital's own records, which nobody else sees."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from party.commands.group import home_option
from protocols.errors import DataUnavailable, InvalidInput, Refused, Unreachable
from protocols.plural import counted
from protocols.refusals.code import Code
from runtime.address import check_address
from runtime.cli import EPILOG, json_option
from runtime.exits import ended_by_interrupt
from runtime.files import alone, write_atomically
from runtime.printing import without_flags

if TYPE_CHECKING:
    from jaxtyping import Int64
    from numpy import ndarray

    from party.home import PartyHome
    from protocols.labelling.coordinator import Labelling
    from protocols.study.terms import Terms


@click.command(epilog=EPILOG)
@click.argument("study")
@click.option(
    "--queries", "queries_file", type=click.Path(path_type=Path), required=True,
    help="This hospital's records without labels: .csv by the study's features, .npy or .npz.",
)  # fmt: skip
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("labels.csv"), show_default=True,
    help="File for the labels; a report is written beside it, as .report.json and .report.html.",
)  # fmt: skip
@click.option("--guardian", required=True, help="HOST:PORT of the study's guardian.")
@click.option(
    "--model",
    help="Train this kind of model on the records of node.toml, without and with the labels; kinds as in "
    "teachers.kind.",
)
@click.option(
    "--test", "test_file", type=click.Path(path_type=Path),
    help="Labelled records, in the format of those of node.toml, on which --model is scored.",
)  # fmt: skip
@click.option(
    "--without", multiple=True, metavar="SEAT",
    help="Continue without this seat for good, after `ask` stopped because it was late too often. Can be repeated.",
)  # fmt: skip
@home_option
@json_option
def ask(
    study: str,
    queries_file: Path,
    out: Path,
    guardian: str,
    model: str | None,
    test_file: Path | None,
    without: tuple[str, ...],
    home: PartyHome,
    as_json: bool,
) -> None:
    """Ask the consortium to label this hospital's own records, and write the noisy labels that come back.

    STUDY: a study's file, or its name once it has been asked in. Nobody else sees a record or a label, and this
    hospital sees no vote and no model. After Ctrl-C, the same command continues; it then also asks about records
    that were added at the end of the file.

    \b
    Examples:
      conclave-party ask study.toml --queries new.csv --guardian notary.example:7003
      conclave-party ask heart --queries new.csv --guardian notary.example:7003 \\
        --model logistic_regression --test kept-back.csv
    """
    from party.asking.asking import ask as ask_consortium
    from party.asking.asking import asked_ledger_path, check_querier, line_of, reserved
    from party.asking.report import ask_figures, asking_page, check_model, improve, report_lines
    from party.data import load_records, of_file
    from party.data.queries import read_queries
    from protocols.levels.hidden_queries.dealing import precision_of

    if (model is None) != (test_file is None):
        raise click.UsageError("give --model and --test together, or neither")
    settings, found = home.settings(), home.find_study(study)
    check_querier(found, home.invitation().party)
    terms = found.terms
    line = line_of(home, guardian=check_address("--guardian", guardian))
    # Whatever could fail afterwards is checked before anything is asked.
    _check_files(queries_file, test_file, out, records=settings.data.source.files)
    queries = read_queries(queries_file, settings.data, terms)
    if len(queries) > terms.pool_size:
        raise InvalidInput(
            f"--queries {queries_file} has {len(queries)} records; allowed: at most {terms.pool_size}, by the study's "
            "terms"
        )
    own = test = None
    if model is not None and test_file is not None:
        check_model(model)
        own = load_records(settings.data, terms)
        test = load_records(of_file(settings.data, test_file), terms)
    home.keep_study(found)
    click.echo(f"asking {counted(len(found.roster), 'hospital')} about {counted(len(queries), 'record')}", err=True)
    running = Refused(Code.ALREADY_RUNNING, f"another `ask` is running in study {found.name!r}; allowed: one at a time")
    # Whatever the conversation has done by then is in the ledger, as after a crash.
    with alone(home.study_folder(found.digest) / "ask.lock", running), ended_by_interrupt():
        labelling = ask_consortium(
            found,
            queries,
            line,
            ledger=asked_ledger_path(home, found),
            on_batch=lambda batches: click.echo(f"{sum(size for size, _ in batches)} of {len(queries)} done", err=True),
            without=without,
        )
    write_atomically(out, _table(labelling.labels, terms).encode())
    improved = None
    if model is not None and own is not None and test is not None:
        click.echo(f"labels are in {out}; training a {model} without and with them", err=True)
        improved = improve(
            model, own, test, queries, labelling.labels, classes=found.classes, seed=settings.teachers.seed,
            precision=precision_of(found),
        )  # fmt: skip
    open_yet = reserved(found, asked_ledger_path(home, found))
    figures = ask_figures(found, labelling, improved, reserved=open_yet, data_set=settings.data.name)
    as_text = json.dumps(figures, indent=2)
    for ending, content in (("json", f"{as_text}\n"), ("html", asking_page(figures))):
        write_atomically(_report(out, ending), content.encode())
    if as_json:
        click.echo(as_text)
    else:
        for text in report_lines(figures, improved):
            click.echo(text)
        click.echo(f"labels in {out}, report in {_report(out, 'html')}")
    check_complete(labelling, guardian)


def _report(out: Path, ending: str) -> Path:
    return out.with_suffix(f".report.{ending}")


def _check_files(queries: Path, test: Path | None, out: Path, *, records: Sequence[Path]) -> None:
    """Raises DataUnavailable for records that do not exist, InvalidInput if `out` cannot be written or would overwrite
    records."""
    for flag, path in (("--queries", queries), ("--test", test)):
        if path is not None and not path.is_file():
            raise DataUnavailable(f"{flag} {path} does not exist or is not a file; allowed: a file of records")
    if not out.parent.is_dir() or out.is_dir():
        raise InvalidInput(f"--out {out} cannot be written; allowed: a file in a folder that exists")
    written = {each.resolve() for each in (out, *(_report(out, ending) for ending in ("json", "md", "html")))}
    own = [("the records of node.toml", each) for each in records]
    for flag, path in (("--queries", queries), ("--test", test), *own):
        if path is not None and path.resolve() in written:
            raise InvalidInput(f"--out {out} would overwrite {flag} {path}; allowed: another file")


def check_complete(labelling: Labelling, guardian: str) -> None:
    """Raises if asking stopped but can be continued: Unreachable without the guardian, Refused("quorum_lost"),
    Refused("missed")."""
    if labelling.stop.reason == "missed":
        seats = sorted(labelling.refusals)
        raise Refused(
            Code.MISSED,
            f"{', '.join(seats)} had no votes in time so often that you decide. To do without, for ever: the same "
            f"command with {without_flags(seats)}; tell them. To ask as before: the same command",
        )
    if labelling.stop.reason == "guardian_lost":
        raise Unreachable(
            f"the guardian at {guardian} does not answer, or stopped; if the address is right, ask who runs it. What "
            "was asked stays reserved; run the same command to continue"
        )
    if labelling.stop.reason == "quorum_lost" and not labelling.stop.exhausted.any():
        missing = [seat for seat, code in sorted(labelling.refusals.items()) if code == Code.ABSENT]
        refusing = [f"{seat} ({code})" for seat, code in sorted(labelling.refusals.items()) if code != Code.ABSENT]
        said = [f"{', '.join(who)} {what}" for who, what in ((missing, "did not answer"), (refusing, "refused")) if who]
        raise Refused(Code.QUORUM_LOST, f"too few parties answered: {'; '.join(said)[:500]}")


def _table(labels: Int64[ndarray, " queries"], terms: Terms) -> str:
    """CSV with columns row, label (the class's name, or empty) and state (answered, unanswered or not_asked)."""
    from protocols.votes import ABSTAIN

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["row", "label", "state"])
    for row, label in enumerate(labels.tolist(), 1):
        name = terms.class_names[label] if label >= 0 else ""
        writer.writerow([row, name, "answered" if label >= 0 else "unanswered" if label == ABSTAIN else "not_asked"])
    return text.getvalue()
