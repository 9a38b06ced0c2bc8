"""sums.csv and soft_labels.csv: what a study in which records vote releases, and the labels that are made of it.

sums.csv has the noisy sum of each query and class, in lattice units: all that was ever computed from records.
soft_labels.csv has, for each record of the public pool, the queries that it lies in and the probability of each class.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any  # parsed JSON, checked here

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.errors import DataCorrupt, DataUnavailable
from protocols.ranges import check, whole
from protocols.reading import read_json, read_text
from protocols.release.labels import read_findings, read_labels
from protocols.study.deployed import DeployedStudy
from protocols.study.findings import Labelled, OneLabel
from protocols.study.several_findings import OnFindings
from protocols.study.votes import TeacherVotes, UnitSums, Votes, unit_sums
from protocols.votes import ABSTAIN, NOT_ASKED

SUMS_FILE, SOFT_LABELS_FILE, QUERIES_FILE = "sums.csv", "soft_labels.csv", "queries.npz"
# What judges said, and what follows from it.
EVALUATION_FILE = "evaluation.json"
# What units said of the first sum's scores, and these.
RESIDUALS_FILE = "residuals.json"
_BYTES = 2**32
# Of a number of 64 bits, a probability or the name of a class, with the comma.
_CELL_BYTES = 32
SOFT_DIGITS = 6
# Of any number of classes.
_ONE = OneLabel(2)


@dataclass(frozen=True, eq=False)
class LabelsOfPool:
    """The queries that each record of the pool lies in, and the probability of each class, or that of each finding."""

    members: Int64[ndarray, "pool votes"] = field(repr=False)
    probabilities: Float64[ndarray, "pool classes"] = field(repr=False)


@dataclass(frozen=True, eq=False)
class ReleasedVotes:
    """labels: class ids, ABSTAIN or NOT_ASKED, of each query that the study asks; reinforced: those of the student;
    cells: the noisy sums, where they are what is released."""

    labels: Int64[ndarray, " queries"] = field(repr=False)
    reinforced: Int64[ndarray, " queries"] = field(repr=False)
    cells: Int64[ndarray, "rows classes"] | None = field(repr=False)


def sums_csv(cells: Int64[ndarray, "rows classes"], of: Labelled = _ONE) -> str:
    """The content of sums.csv. of: what records are labelled with."""
    return _written(["query", *of.heads(cells.shape[1])], ([query, *row] for query, row in enumerate(cells.tolist())))


def read_sums(folder: Path, study: DeployedStudy) -> Int64[ndarray, "rows classes"] | None:
    """The noisy sums of a release; None if it has none, as nothing was released. Raises DataCorrupt."""
    try:
        (folder / SUMS_FILE).lstat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataCorrupt(f"{SUMS_FILE} cannot be read: {str(error)[:200]}") from None
    text, rows = _read(folder, SUMS_FILE, study.rows_released, cells=1 + study.classes)
    cells = np.empty((study.rows_released, study.classes), dtype=np.int64)
    for position, (_, *row) in enumerate(rows):
        cells[position] = [check(SUMS_FILE, "sum", _whole(SUMS_FILE, each)) for each in _wide(SUMS_FILE, row, cells)]
    _check_same(SUMS_FILE, sums_csv(cells, study.labelled), text)
    return cells


def read_votes(folder: Path, study: DeployedStudy) -> ReleasedVotes:
    """What came out of a study's votes. Raises DataCorrupt, also where it is not of as many queries as are asked."""
    found = _READ[type(study.votes)](folder, study)
    if len(found.labels) != study.queries_to_ask:
        raise DataCorrupt(f"{folder}: labels of {len(found.labels)} queries; allowed: {study.queries_to_ask}, as asked")
    return found


def _released_labels(folder: Path, study: DeployedStudy) -> ReleasedVotes:
    asks = study.votes.asks
    if isinstance(asks, OnFindings):
        labels = asks.unfolded(read_findings(folder, study.findings))
        return ReleasedVotes(labels, np.full(len(labels), ABSTAIN, dtype=np.int64), None)
    labels, reinforced = read_labels(folder, classes=study.classes)
    return ReleasedVotes(labels, reinforced, None)


def _released_sums(folder: Path, study: DeployedStudy) -> ReleasedVotes:
    cells, queries = read_sums(folder, study), study.queries_to_ask
    # Of each query the class of the largest sum, as the parties were told that all were answered.
    labels = np.full(queries, NOT_ASKED, dtype=np.int64) if cells is None else unit_sums(study).likeliest(cells)
    return ReleasedVotes(labels, np.full(queries, ABSTAIN, dtype=np.int64), cells)


_READ: dict[type[Votes], Callable[[Path, DeployedStudy], ReleasedVotes]] = {
    TeacherVotes: _released_labels,
    UnitSums: _released_sums,
}


def soft_labels_csv(labels: LabelsOfPool, of: Labelled = _ONE) -> str:
    """The content of soft_labels.csv; probabilities with six digits after the point. of: as of sums_csv."""
    each = zip(labels.members.tolist(), labels.probabilities.tolist(), strict=True)
    rows = (
        [record, " ".join(map(str, inside)), *(f"{p:.{SOFT_DIGITS}f}" for p in chances)]
        for record, (inside, chances) in enumerate(each)
    )
    return _written(["record", "queries", *of.heads(labels.probabilities.shape[1])], rows)


def read_again(folder: Path, study: DeployedStudy) -> Int64[ndarray, "rows classes"] | None:
    """The noisy sums of a second batch, in lattice units: of judges of each seat of the roster one below the other
    where votes are seen, else of all; None where none are released. Raises DataCorrupt."""
    name = RESIDUALS_FILE if study.votes.residuals else EVALUATION_FILE
    if not (folder / name).exists():
        return None
    try:
        sums = whole_rows(name, "sums", read_json(folder / name)["sums"])
    except (KeyError, TypeError, ValueError) as error:
        raise DataCorrupt(f"{name} cannot be read: {error!r:.200}") from None
    wanted = study.rows_noised - study.rows_released
    if sums.shape != (wanted, study.classes):
        raise DataCorrupt(f"{name} has sums of shape {sums.shape}; allowed: {(wanted, study.classes)}, the study's")
    return sums


def whole_rows(name: str, what: str, rows: Any) -> Int64[ndarray, "rows classes"]:
    """Rows of whole numbers of a JSON file, each in the range of that name. Raises as `whole`, and ValueError."""
    return np.array([[whole(name, what, each) for each in row] for row in rows], dtype=np.int64)


def read_soft_labels(folder: Path, study: DeployedStudy) -> LabelsOfPool:
    """The soft labels of a release. Raises DataCorrupt."""
    records, pool = unit_sums(study), study.terms.pool_size
    text, rows = _read(folder, SOFT_LABELS_FILE, pool, cells=1 + records.votes + study.labelled.said)
    # A record lies in cells; it has all of graded features.
    members = np.empty((pool, 0 if records.signed else records.votes), dtype=np.int64)
    probabilities = np.empty((pool, study.labelled.said))
    for position, (_, inside, *row) in enumerate(rows):
        named = [check(SOFT_LABELS_FILE, "query", _whole(SOFT_LABELS_FILE, each)) for each in inside.split()]
        members[position] = _wide(SOFT_LABELS_FILE, named, members)
        chances = _wide(SOFT_LABELS_FILE, row, probabilities)
        probabilities[position] = [_chance(each) for each in chances]
    if members.size and members.max() >= records.queries:
        raise DataCorrupt(f"{SOFT_LABELS_FILE} names query {members.max()}; allowed: 0 to {records.queries - 1}")
    _check_same(SOFT_LABELS_FILE, soft_labels_csv(found := LabelsOfPool(members, probabilities), study.labelled), text)
    return found


def _written(header: list[str], rows: Iterator[list[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


def _read(folder: Path, name: str, wanted: int, *, cells: int) -> tuple[str, list[list[str]]]:
    """The text of a file, and its rows below the header, each numbered. cells: numbers in a row. Raises DataCorrupt."""
    try:
        text = read_text(folder / name, most=min(_BYTES, (wanted + 1) * cells * _CELL_BYTES))
        rows = list(islice(csv.reader(io.StringIO(text)), 1, wanted + 2))
    except (DataUnavailable, csv.Error) as error:
        raise DataCorrupt(f"{name} cannot be read: {str(error)[:200]}") from None
    if len(rows) != wanted or any(len(row) < 2 for row in rows):
        found = len(rows) if len(rows) <= wanted else f"more than {wanted}"
        raise DataCorrupt(f"{name} has {found} rows; allowed: {wanted}, of two columns or more")
    return text, rows


def _wide(name: str, row: list[str] | list[int], array: ndarray) -> list[str] | list[int]:
    if len(row) != array.shape[1]:
        raise DataCorrupt(f"{name} has a row of {len(row)} values; allowed: {array.shape[1]}")
    return row


def _whole(name: str, text: object) -> int:
    try:
        return int(str(text))
    except ValueError:
        raise DataCorrupt(f"{name} has {str(text)[:40]!r}; allowed: whole numbers") from None


def _chance(text: object) -> float:
    try:
        value = float(str(text))
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise DataCorrupt(f"{SOFT_LABELS_FILE} has the probability {str(text)[:40]!r}; allowed: 0 to 1")
    return value


def _check_same(name: str, written: str, text: str) -> None:
    if written != text:
        raise DataCorrupt(f"{name} differs from the form in which a release is written")
