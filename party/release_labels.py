"""The labels of a release, for comparing them with what was signed."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Final

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from protocols.errors import DataCorrupt, DataUnavailable
from protocols.study import Study
from protocols.votes import NOT_ASKED

_BYTES: Final = 2**30


def released_labels(release: Path, study: Study) -> Int64[ndarray, " queries"]:
    """One class id a query of the study's pool, below 0 where none was released, from labels.csv of a release.

    Columns query and label (a class's name); a query that is absent has none. Raises DataUnavailable, DataCorrupt.
    """
    terms = study.terms
    assert terms is not None  # an approved study has terms
    path = release / "labels.csv"
    if not path.is_file() or path.stat().st_size > _BYTES:
        raise DataUnavailable(f"{path} is absent or larger than {_BYTES} bytes; allowed: a release of this study")
    known = {name: number for number, name in enumerate(terms.class_names)}
    labels = np.full(terms.pool_size, NOT_ASKED, np.int64)
    try:
        with path.open(newline="", encoding="utf-8") as file:
            for row, fields in enumerate(csv.DictReader(file, strict=True), start=1):
                query, label = fields.get("query") or "", (fields.get("label") or "").strip()
                if not (query.isascii() and query.isdigit() and int(query[:18]) < len(labels)):
                    raise DataCorrupt(f"{path}: row {row}: query {query[:40]!r}; allowed: 0 to {len(labels) - 1}")
                if label:
                    if label not in known:
                        raise DataCorrupt(f"{path}: row {row}: label {label[:40]!r}; allowed: {', '.join(known)}")
                    labels[int(query)] = known[label]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataCorrupt(f"{path} cannot be read: {str(error)[:200]}; allowed: CSV in UTF-8") from error
    return labels
