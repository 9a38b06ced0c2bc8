"""labels.csv: every query of the pool, its label if one was released, and its state; or what each finding is said to
be."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from protocols.errors import DataCorrupt, DataUnavailable
from protocols.ranges import check
from protocols.reading import read_text
from protocols.votes import ABSTAIN, NOT_ASKED

LABELS_FILE = "labels.csv"
_LABELS_BYTES = 2**30
_COLUMNS = ["query", "label", "status", "reinforced"]
_OTHER_FORM = f"{LABELS_FILE} differs from the form in which a release is written"
_STATUS = {ABSTAIN: "refused", NOT_ASKED: "not_asked"}


def labels_csv(labels: Int64[ndarray, " queries"], reinforced: Int64[ndarray, " queries"]) -> str:
    """The content of labels.csv. reinforced: the student's own label where an interactive study kept it, else
    ABSTAIN.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for query, (label, own) in enumerate(zip(labels.tolist(), reinforced.tolist(), strict=True)):
        kept = own if own >= 0 else ""
        writer.writerow([query, label if label >= 0 else "", _STATUS.get(label, "answered"), kept])
    return text.getvalue()


def read_labels(folder: Path, *, classes: int) -> tuple[Int64[ndarray, " queries"], Int64[ndarray, " queries"]]:
    """Labels (class ids, ABSTAIN, NOT_ASKED) and reinforced labels of a release. Raises DataCorrupt."""
    try:
        text = read_text(folder / LABELS_FILE, most=_LABELS_BYTES)
        _, *body = csv.reader(io.StringIO(text))
        labels, own = np.empty(len(body), dtype=np.int64), np.full(len(body), ABSTAIN, dtype=np.int64)
        codes = {status: code for code, status in _STATUS.items()}
        for position, (query, label, status, reinforced) in enumerate(body):
            if check(LABELS_FILE, "query", int(query)) != position or (status == "answered") != (label != ""):
                raise ValueError(f"row {position}")
            labels[position] = check(LABELS_FILE, "label", int(label)) if status == "answered" else codes[status]
            own[position] = check(LABELS_FILE, "reinforced", int(reinforced)) if reinforced else ABSTAIN
    except (DataUnavailable, DataCorrupt, ValueError, KeyError, csv.Error) as error:
        raise DataCorrupt(f"{LABELS_FILE} cannot be read: {type(error).__name__}: {str(error)[:200]}") from None
    for array in (labels, own):
        if len(array) and not NOT_ASKED <= array.min() <= array.max() < classes:
            raise DataCorrupt(f"{LABELS_FILE} names a class outside 0 to {classes - 1}")
    if (own[labels != ABSTAIN] >= 0).any():
        raise DataCorrupt(f"{LABELS_FILE}: a query has the student's label, but was answered or not asked")
    if labels_csv(labels, own) != text:
        raise DataCorrupt(_OTHER_FORM)
    return labels, own


def findings_csv(told: Int64[ndarray, "queries findings"], names: Sequence[str]) -> str:
    """The content of labels.csv of a study of several findings: of each query a column per finding, with 1 where it is
    present, 0 where it is not, or why nothing is said."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["query", *names])
    writer.writerows([query, *(_STATUS.get(each, each) for each in row)] for query, row in enumerate(told.tolist()))
    return text.getvalue()


def read_findings(folder: Path, names: Sequence[str]) -> Int64[ndarray, "queries findings"]:
    """What findings_csv wrote of these findings. Raises DataCorrupt."""
    codes = {"0": 0, "1": 1, **{status: code for code, status in _STATUS.items()}}
    try:
        text = read_text(folder / LABELS_FILE, most=_LABELS_BYTES)
        _, *body = csv.reader(io.StringIO(text))
        told = np.array([[codes[each] for each in row[1:]] for row in body], dtype=np.int64).reshape(-1, len(names))
    except (DataUnavailable, DataCorrupt, ValueError, KeyError, csv.Error) as error:
        raise DataCorrupt(f"{LABELS_FILE} cannot be read: {type(error).__name__}: {str(error)[:200]}") from None
    if findings_csv(told, names) != text:
        raise DataCorrupt(_OTHER_FORM)
    return told
