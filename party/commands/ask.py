"""The command ask: the consortium labels this hospital's own records, which nobody else sees."""

from __future__ import annotations

import csv
import fcntl
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any  # the values of a JSON object

import click
import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from party.commands.group import EPILOG, home_option, json_option
from party.home import Home, write_private
from party.improvement import Improvement, improve
from party.settings import Settings, check_address
from protocols.coordinator import Labelling
from protocols.errors import Refused
from protocols.study import Study
from protocols.terms import Terms
from protocols.votes import ABSTAIN

_STOPPED = {
    "pool_exhausted": "every query was asked",
    "budget_exhausted": "a party's budget does not bear one more query",
    "all_budgets_exhausted": "no party's budget bears one more query",
    "quorum_lost": "too few budgets bear one more query",
}


@click.command(epilog=EPILOG)
@click.argument("study")
@click.option(
    "--queries", "queries_file", type=click.Path(path_type=Path), required=True,
    help="This hospital's records without labels: .csv by the study's features, .npy or .npz.",
)  # fmt: skip
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("labels.csv"), show_default=True,
    help="Where the labels go; a report lies beside it.",
)  # fmt: skip
@click.option("--guardian", required=True, help="HOST:PORT of the study's guardian.")
@click.option("--model", help="Train this kind of model before and after, from the records of node.toml.")
@click.option(
    "--test", "test_file", type=click.Path(path_type=Path),
    help="Labelled records, written like those of node.toml, on which --model is scored.",
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
    home_folder: Path,
    as_json: bool,
) -> None:
    """Asks the consortium to label this hospital's own records, and writes the noisy labels that come back.

    STUDY: a study's file, or its name once it was asked in. Nobody else sees a record or a label, and this hospital no
    vote and no model. After Ctrl-C, the same command goes on; more records at the end of the file are asked then.

    \b
    Examples:
      conclave-party ask study.toml --queries new.csv --guardian notary.example:7003
      conclave-party ask heart --queries new.csv --guardian notary.example:7003 \\
        --model logistic_regression --test kept-back.csv
    """
    from party.asking import ask as ask_consortium
    from party.asking import check_querier, ledger_path, line_of
    from party.data import load_records
    from party.data.queries import read_queries

    if (model is None) != (test_file is None):
        raise click.UsageError("give --model and --test together, or none of them")
    home = Home(home_folder.expanduser().resolve())
    settings, found = home.settings(), home.find_study(study)
    check_querier(found, home.invitation().party)
    terms = found.terms
    assert terms is not None  # check_querier lets no other through
    line = line_of(home, guardian=check_address(guardian))
    queries = read_queries(queries_file, settings.data, terms)
    test = None
    if test_file is not None:
        test = load_records(replace(settings.data, path=test_file, patient="", group=""), terms)
    home.keep_study(found)
    with _alone(home, found):
        labelling = ask_consortium(
            found,
            queries,
            line,
            ledger=ledger_path(home, found),
            on_batch=lambda asked, of: click.echo(f"asked {asked} of {of}", err=True),
        )
    write_private(out, _table(labelling.labels, terms).encode())
    improved = None
    if model is not None and test is not None:
        own = load_records(settings.data, terms)
        improved = improve(
            model, own, test, queries, labelling.labels, classes=found.classes, seed=settings.teachers.seed
        )
    figures = _figures(found, labelling, improved, settings)
    write_private(out.with_suffix(".report.json"), (json.dumps(figures, indent=2) + "\n").encode())
    write_private(out.with_suffix(".report.md"), _report(figures, improved).encode())
    if as_json:
        click.echo(json.dumps(figures, indent=2))
    else:
        for text in _lines(figures, improved):
            click.echo(text)
        click.echo(f"labels in {out}")
    _check_complete(labelling)


def _check_complete(labelling: Labelling) -> None:
    """Raises where the asking may go on: Unreachable without the guardian, Refused("quorum_lost")."""
    from party.dialling import Unreachable

    if labelling.stop.reason == "guardian_lost":
        raise Unreachable("the guardian is gone; what was asked stays reserved, and the same command goes on")
    if labelling.stop.reason == "quorum_lost" and not labelling.stop.exhausted.any():
        missing = ", ".join(f"{seat} ({code})" for seat, code in sorted(labelling.refusals.items()))
        raise Refused("quorum_lost", f"too few parties answered: {missing[:500]}")


def _table(labels: Int64[ndarray, " queries"], terms: Terms) -> str:
    """row, label: the class's name, empty without one; state: answered, unanswered or not_asked."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["row", "label", "state"])
    for row, label in enumerate(labels.tolist(), 1):
        name = terms.class_names[label] if label >= 0 else ""
        writer.writerow([row, name, "answered" if label >= 0 else "unanswered" if label == ABSTAIN else "not_asked"])
    return text.getvalue()


def _figures(study: Study, labelling: Labelling, improved: Improvement | None, settings: Settings) -> dict[str, Any]:
    used = study.budgets.epsilon_of(labelling.spent)
    terms = study.terms
    assert terms is not None  # check_querier lets no other through
    answered = labelling.labels[labelling.labels >= 0]
    return {
        "study": study.digest.hex(),
        "queries": len(labelling.labels),
        "asked": int(sum(size for size, _ in labelling.batches)),
        "answered": len(answered),
        "classes": dict(zip(terms.class_names, np.bincount(answered, minlength=study.classes).tolist(), strict=True)),
        "stop": labelling.stop.reason,
        "left_out": labelling.refusals,
        "parties": [
            {"party": seat.party, "epsilon_used": float(epsilon), "epsilon_cap": seat.epsilon, "delta": seat.delta}
            for seat, epsilon in zip(study.roster, used, strict=True)
        ],
        "data_set": settings.data.name,
        "improvement": None if improved is None else asdict(improved),
    }


def _lines(figures: dict[str, Any], improved: Improvement | None) -> list[str]:
    stopped = _STOPPED.get(figures["stop"], figures["stop"])
    epsilons = [each["epsilon_used"] for each in figures["parties"]]
    lines = [
        f"{figures['answered']} of {figures['asked']} queries answered, {figures['queries']} in the file: {stopped}",
        f"{len(epsilons)} parties have spent epsilon {min(epsilons):.3g} to {max(epsilons):.3g} in this study",
    ]
    lines += [f"left out of the last batches: {seat} ({code})" for seat, code in sorted(figures["left_out"].items())]
    return lines + ([] if improved is None else improved.lines())


def _report(figures: dict[str, Any], improved: Improvement | None) -> str:
    rows = [
        f"| {each['party']} | {each['epsilon_used']:.4g} | {each['epsilon_cap']:g} | {each['delta']:g} |"
        for each in figures["parties"]
    ]
    counts = [f"| {name} | {count} |" for name, count in figures["classes"].items()]
    return "\n".join([
        "# What the consortium answered", "", *_lines(figures, improved), "",
        "| class | labels |", "|---|---|", *counts, "",
        "| party | epsilon used | epsilon at most | delta |", "|---|---|---|---|", *rows, "",
        "Accuracies are of this hospital's own records: no study releases them, and they stay here.", "",
    ])  # fmt: skip


@contextmanager
def _alone(home: Home, study: Study) -> Iterator[None]:
    """One ask a study at a time. Raises Refused("already_running")."""
    with (home.study_folder(study.digest) / "ask.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Refused("already_running", f"another ask runs in study {study.name!r}; allowed: one") from None
        yield
