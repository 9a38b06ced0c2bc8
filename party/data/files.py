"""Records in files that need no extra: CSV, JSON lines, and NumPy archives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float32
from numpy import ndarray

from party.data.mapping import Form
from party.data.records import Columns, DataSettings, FileSource, Records, TableSource, labels_of
from protocols.array_files import read_arrays
from protocols.errors import DataCorrupt
from protocols.reading import VALUES
from protocols.study.terms import Terms
from runtime.tables import first_rows, jsonl_header, read_csv, read_jsonl


@dataclass(frozen=True)
class CsvFile(FileSource, TableSource):
    """path: a file with a header, also packed with gzip (.gz): in UTF-8, and parted by commas, or by tabs where its
    name ends in .tsv, unless the form says otherwise."""

    def header(self, form: Form) -> list[str]:
        rows = first_rows(self.path, delimiter=self._delimiter(form), encoding=form.encoding or "utf-8", most=1)
        return [name.strip() for name in rows[0]] if rows else []

    def columns(self, names: Sequence[str] | None, form: Form) -> Columns:
        return read_csv(self.path, names, delimiter=self._delimiter(form), encoding=form.encoding or "utf-8")

    def _delimiter(self, form: Form) -> str:
        tabs = self.path.name.lower().endswith((".tsv", ".tsv.gz"))
        return form.delimiter or ("\t" if tabs else ",")


@dataclass(frozen=True)
class JsonLines(FileSource, TableSource):
    """path: a .jsonl or .ndjson file in UTF-8, an object per line. A null counts as missing."""

    def header(self, form: Form) -> list[str]:
        return jsonl_header(self.path)

    def columns(self, names: Sequence[str] | None, form: Form) -> Columns:
        return read_jsonl(self.path, names, missing=form.missing[0] if form.missing else "")


@dataclass(frozen=True)
class NpzFile(FileSource):
    """path: an .npz file."""

    def records(self, settings: DataSettings, terms: Terms) -> Records:
        """The records, with inputs of the terms' input_shape. Raises DataUnavailable, DataCorrupt."""
        path, texts = self.path, [name for name in (settings.patient, settings.group) if name]
        arrays = _arrays(path, ["inputs", "labels", *texts])
        inputs, labels = arrays["inputs"], arrays["labels"]
        patients, groups = (_texts(arrays, name) for name in (settings.patient, settings.group))
        if inputs.dtype.kind not in "fiub" or labels.dtype.kind not in "iuU":
            raise DataCorrupt(
                f"{path}: inputs {inputs.dtype}, labels {labels.dtype}; allowed: numeric inputs; ids or class names"
            )
        with np.errstate(over="ignore"):
            encoded = inputs.astype(np.float32)
        if labels.dtype.kind == "U":
            columns, used = np.atleast_2d(labels.T), np.ones(len(labels), bool)
            if labels.ndim > 2 or len(columns) != len(terms.labels):
                raise DataCorrupt(f"{path}: labels of shape {labels.shape}; allowed: {len(terms.labels)} a record")
            held = dict(zip(map(settings.mapping.own, terms.labels), columns.tolist(), strict=True))
            return Records(encoded, labels_of(held, used, settings, terms), patients, groups, used)
        if labels.size and int(labels.max()) > np.iinfo(np.int64).max:
            raise DataCorrupt(f"{path}: label {labels.max()}; allowed: 0 to {len(terms.class_names) - 1}")
        return Records(encoded, labels.astype(np.int64), patients, groups)


def npz_inputs(path: Path) -> Float32[ndarray, "rows ..."]:
    """The array `inputs` of an npz file alone. Raises DataUnavailable, DataCorrupt."""
    inputs = _arrays(path, ["inputs"])["inputs"]
    if inputs.dtype.kind not in "fiub":
        raise DataCorrupt(f"{path}: inputs {inputs.dtype}; allowed: numbers")
    with np.errstate(over="ignore"):
        return inputs.astype(np.float32)


def _arrays(path: Path, names: list[str]) -> dict[str, ndarray]:
    arrays = read_arrays(path, list(dict.fromkeys(names)))
    for name, array in arrays.items():
        if array.dtype.kind not in "fiubU" or array.ndim < 1:
            raise DataCorrupt(f"{path}: array {name!r} is {array.dtype} of rank {array.ndim}; allowed: rows")
        if array.size > VALUES:
            raise DataCorrupt(f"{path}: array {name!r} has {array.size} values; allowed: at most {VALUES}")
    return arrays


def _texts(arrays: dict[str, ndarray], name: str) -> list[str] | None:
    return None if not name else [str(each) for each in arrays[name].ravel()]
