"""Records: what a loader returns, and the checks they must pass before a teacher is trained."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float32, Int64
from numpy import ndarray

from party.data.names import RULES, joined, places
from party.data.settings import DataSettings
from protocols.errors import DataCorrupt
from protocols.study.terms import Terms


@dataclass(frozen=True, eq=False)
class Records:
    """Private records. inputs: finite; labels: class ids; patients, groups: one string per record, None if not
    given; used: the records that are used, None for all; names: which of RULES says when two patients' names are one;
    equal_are_one: whether equal records of a patient, or of nobody named, count as one.

    A record that is not used keeps its place: which teacher learns which other record does not depend on it.
    """

    inputs: Float32[ndarray, "records ..."] = field(repr=False)
    labels: Int64[ndarray, " records"] = field(repr=False)
    patients: Sequence[str] | None = field(default=None, repr=False)
    groups: Sequence[str] | None = field(default=None, repr=False)
    used: Bool[ndarray, " records"] | None = field(default=None, repr=False)
    names: str = "exact"
    equal_are_one: bool = False

    @property
    def usable(self) -> Bool[ndarray, " records"]:
        """Which records are used."""
        return np.ones(len(self.labels), bool) if self.used is None else self.used

    @cached_property
    def places(self) -> Int64[ndarray, " records"]:
        """The place of each record's patient, as the name is written, or of the record where patients have no names."""
        return places(self.patients, len(self.labels))

    @cached_property
    def units(self) -> Int64[ndarray, " records"]:
        """The place of each record's unit: its patient by the rule for names, or the record where there are none."""
        return self.rows if self.patients is None else self.patients_by(self.names)

    @cached_property
    def rows(self) -> Int64[ndarray, " records"]:
        """The first record that each counts as: itself, unless equal records are one."""
        return self.equal_rows if self.equal_are_one else np.arange(len(self.labels))

    def patients_by(self, rule: str) -> Int64[ndarray, " records"]:
        """The place of each record's patient by one of RULES. For records with patients."""
        assert self.patients is not None
        found = {name: RULES[rule](name) for name in dict.fromkeys(self.patients)}
        return joined(self.places, [found[name] for name in self.patients])

    @cached_property
    def equal_rows(self) -> Int64[ndarray, " records"]:
        """The first record with the same inputs, label and patient; what is not used is equal to nothing."""
        whose = None if self.patients is None else self.patients_by(self.names)
        keys = [
            (row.tobytes(), int(self.labels[at]), None if whose is None else int(whose[at])) if used else at
            for at, (row, used) in enumerate(zip(self.inputs, self.usable, strict=True))
        ]
        return joined(np.arange(len(keys)), keys)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything, in hexadecimal digits: teachers are stored under it. It never leaves the node."""
        digest = hashlib.sha256(f"conclave records 2 {self.inputs.shape}\n".encode())
        digest.update(np.ascontiguousarray(self.inputs, dtype="<f4").tobytes())
        digest.update(self.labels.astype("<i8").tobytes())
        for names in (self.patients, self.groups):
            digest.update(b"-" if names is None else b"+")
            for name in names or ():
                encoded = name.encode("utf-8", "surrogatepass")
                digest.update(len(encoded).to_bytes(4, "big") + encoded)
        digest.update(b"-" if self.usable.all() else np.packbits(self.usable).tobytes())
        digest.update(self.units.astype("<i8").tobytes())
        return digest.hexdigest()


def check_records(records: Records, settings: DataSettings, terms: Terms) -> Records:
    """Returns `records` unchanged. Raises DataCorrupt unless they fit the terms."""
    where = settings.shown
    inputs, labels = np.asarray(records.inputs), np.asarray(records.labels)
    if inputs.dtype != np.float32 or not np.issubdtype(labels.dtype, np.integer) or labels.ndim != 1:
        raise DataCorrupt(f"{where}: inputs {inputs.dtype}, labels {labels.dtype}; allowed: float32 and one int each")
    if inputs.shape[1:] != terms.input_shape:
        raise DataCorrupt(f"{where}: inputs have shape {inputs.shape[1:]}; allowed: {terms.input_shape}, by the terms")
    if not 0 < len(inputs) == len(labels):
        raise DataCorrupt(f"{where}: {len(inputs)} inputs for {len(labels)} labels; allowed: one each, at least one")
    bad = ~np.isfinite(inputs).reshape(len(inputs), -1).all(axis=1)
    if bad.any():
        raise DataCorrupt(f"{where}: row {int(bad.argmax()) + 1}: NaN or infinite features; allowed: finite numbers")
    outside = (labels < 0) | (labels >= len(terms.class_names))
    if outside.any():
        row = int(outside.argmax())
        raise DataCorrupt(
            f"{where}: {terms.label}, row {row + 1}: class {labels[row]}; allowed: 0 to {len(terms.class_names) - 1}"
        )
    if settings.patient and records.patients is None:
        raise DataCorrupt(
            f"{where}: loader {settings.loader!r} names no patients, and data.patient is {settings.patient!r}; "
            "allowed: one name per record"
        )
    for what, names in (("patients", records.patients), ("groups", records.groups)):
        if names is not None and len(names) != len(labels):
            raise DataCorrupt(f"{where}: {len(names)} {what} for {len(labels)} records; allowed: one each")
    if not records.usable.any():
        raise DataCorrupt(f"{where}: every record is left out; allowed: at least one that can be used")
    return Records(
        inputs,
        labels.astype(np.int64),
        records.patients,
        records.groups,
        records.used,
        names=settings.mapping.names or "exact",
        equal_are_one=settings.mapping.equal_rows == "one",
    )
