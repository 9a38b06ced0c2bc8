"""The commands data score and predict: what this hospital's own model reaches alone, and a released student."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any  # the values of a JSON object

import click

from party.commands.group import home_option
from protocols.errors import DataCorrupt, InvalidInput, Refused, VerificationFailed
from protocols.plural import counted
from runtime.cli import EPILOG, json_option
from runtime.files import write_atomically
from runtime.printing import folded

if TYPE_CHECKING:
    from jaxtyping import Int64
    from numpy import ndarray

    from party.home import PartyHome
    from party.released import ReleasedStudent
    from party.teachers.scores import Score
    from protocols.study.study import Study

_ALSO_VOTED = "These records may have shaped the labels that the student learned: keep some back for --test"
_RELEASE = click.Path(path_type=Path, exists=True, file_okay=False)


@click.command(epilog=EPILOG)
@click.argument("study")
@home_option
@json_option
@click.option("--release", type=_RELEASE, help="A released student of this study, to compare with: alone and together.")
@click.option(
    "--test",
    "test_file",
    type=click.Path(path_type=Path, exists=True),
    help="Labelled records that were kept back [the own records, cross-validated].",
)
def score(study: str, home: PartyHome, as_json: bool, release: Path | None, test_file: Path | None) -> None:
    """Say what this hospital's own model reaches alone, on records that it did not learn from; nothing leaves.

    Alone: a model of teachers.kind of all own records, cross-validated in five parts, or on --test; it learns from
    teachers.features or the pool where teachers do.
    No patient is in two parts, where data.patient names them. Together: the released student on the same records.

    \b
    Examples:
      conclave-party data score study.toml
      conclave-party data score heart --release release-heart --test kept-back.csv
    """
    from party.data import load_records, of_file
    from party.teachers.scores import score as scored
    from party.voting.own_model import FOLDS, predicted_kept_back, predicted_unseen
    from party.voting.training import kind_in

    settings, found = home.settings(), home.find_study(study)
    names = found.terms.class_names
    student = None if release is None else _student(release, home)
    if student is not None and student.study.terms.features != found.terms.features:
        raise InvalidInput(f"{release} is of study {student.study.name!r}; allowed: a release of {found.name!r}")
    kind, _ = kind_in(found, settings.teachers, pool=home.pool(found.digest))
    records, seed = load_records(settings.data, found.terms), settings.teachers.seed
    if test_file is None:
        judged, alone = records, predicted_unseen(records, kind, seed=seed, classes=found.classes)
        how = f"cross-validated in {FOLDS} parts, by {'patient' if settings.data.patient else 'record'}"
    else:
        judged = load_records(of_file(settings.data, test_file), found.terms)
        alone = predicted_kept_back(records, judged, kind, seed=seed, classes=found.classes)
        how = f"on {test_file}"
    truth = judged.labels[judged.usable]
    together = None if student is None else student.predict(judged.inputs[judged.usable])
    figures = {"alone": scored(alone, truth, names)}
    if together is not None:
        figures["together"] = scored(together, truth, names)
    if as_json:
        click.echo(json.dumps({"how": how, **{key: each.figures() for key, each in figures.items()}}, indent=2))
        return
    for line in _compared(figures, how, settings.teachers.kind, alone, together, truth):
        click.echo(folded(line, " " * 10))
    if student is not None and test_file is None and _answered(home, student.study):
        click.echo(folded(_ALSO_VOTED, " " * 10))


def _answered(home: PartyHome, study: Study) -> bool:
    """Whether this home was ever charged in the study, so that its records may have shaped the labels."""
    from protocols.ledger.ledger import Ledger

    for path in (home.ledger(study.digest, seat.party) for seat in study.roster):
        if path.exists():
            with Ledger(path) as ledger:
                if any(ledger.ever_reserved(name) for name in ledger.balances()):
                    return True
    return False


def _compared(
    figures: dict[str, Score],
    how: str,
    kind: str,
    alone: Int64[ndarray, " records"],
    together: Int64[ndarray, " records"] | None,
    truth: Int64[ndarray, " records"],
) -> list[str]:
    """The figures for people: the verdict first."""
    own = figures["alone"]
    lines = [f"alone     {own.words()}", f"({kind}; {counted(own.records, 'record')}, {how})"]
    if together is None:
        if how.startswith("cross"):
            lines.append("(the five models share records, so the interval is a little too narrow)")
        return lines
    ours, theirs = alone == truth, together == truth
    gained, lost = int((theirs & ~ours).sum()), int((ours & ~theirs).sum())
    lines.insert(1, f"together  {figures['together'].words()}")
    lines.append(f"{counted(gained, 'record')} are right together only, {lost} alone only")
    return lines


@click.command(epilog=EPILOG)
@click.argument("release", type=_RELEASE)
@click.option(
    "--records",
    "records_path",
    type=click.Path(path_type=Path, exists=True),
    required=True,
    help="A table with the study's columns, .npy or .npz, or a folder of images in one folder per class.",
)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The CSV file to write.")
@home_option
@json_option
def predict(release: Path, records_path: Path, out: Path, home: PartyHome, as_json: bool) -> None:
    """Verify a RELEASE, apply its student to this hospital's own records, and score it where labels are there.

    The records are read as the release's study says, with this hospital's mapping file. OUT has a line a record: its
    row and the predicted class, empty for a record that the mapping leaves out. Nothing leaves.

    \b
    Example:
      conclave-party predict release-heart --records ward.csv --out predicted.csv
    """
    from party.data.queries import own_records
    from party.teachers.scores import score as scored

    if out.exists() and (out.is_dir() or out.resolve() == records_path.resolve()):
        raise InvalidInput(f"--out {out} is a folder or the records themselves; allowed: another file")
    student, settings = _student(release, home), home.settings()
    terms = student.study.terms
    inputs, labels, used = own_records(settings.data, records_path, terms)
    predicted = student.predict(inputs[used])
    text, names = io.StringIO(), iter(predicted.tolist())
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["row", "predicted"])
    for row, fits in enumerate(used.tolist(), start=1):
        writer.writerow([row, terms.class_names[next(names)] if fits else ""])
    write_atomically(out, text.getvalue().encode())
    result = None if labels is None else scored(predicted, labels[used], terms.class_names)
    if as_json:
        figures: dict[str, Any] = {"release": str(release), "records": len(used), "predicted": int(used.sum())}
        click.echo(json.dumps({**figures, "score": None if result is None else result.figures()}, indent=2))
        return
    said = "no labels, so nothing is scored" if result is None else result.words()
    click.echo(f"{int(used.sum())} of {counted(len(used), 'record')}: {said}")
    click.echo(f"the release is signed by the coordinator and unaltered; predictions are in {out}")


def _student(release: Path, home: PartyHome) -> ReleasedStudent:
    """The verified student; what is not as signed counts as a failed verification."""
    from party.released import read_student
    from protocols.crypto.identity import certificate_from_pem

    invitation = home.invitation()
    try:
        authority = certificate_from_pem(invitation.authority)
        return read_student(release, authority=authority, coordinator=invitation.coordinator)
    except (Refused, DataCorrupt) as error:
        raise VerificationFailed(str(error)) from error
