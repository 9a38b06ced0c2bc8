"""Private records: the sources that they are read from, how a table becomes records, and which teacher learns which.

The records of one patient go to one teacher. Which one depends only on positions and the stored seed, never on a
record's content. So replacing one patient's records by another's, at the same place in the file, changes one shard: one
unit can change one teacher's vote, as unit "record" claims. (An assignment by a hash of the patient's name could change
two.)
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
from jaxtyping import Bool, Float32, Int64
from numpy import ndarray

from party.data.mapping import RULES, DataMapping, first_places, places, plain_number
from protocols.errors import DataCorrupt, InvalidInput
from protocols.reading import VALUES
from protocols.study import features
from protocols.study.count_cells import NO_LABEL
from protocols.study.findings import NOT_KNOWN
from protocols.study.terms import Feature, Terms

if TYPE_CHECKING:
    from party.data.mapping import Form
    from runtime.settings import TomlTable

Columns = Mapping[str, Sequence[str]]
RecordLabels = Int64[ndarray, "records *findings"]
# At how many hospitals a patient may be said to be known.
_MOST_HOSPITALS = 2**10


class Source(ABC):
    """A kind of source, as a frozen dataclass of its keys. Nothing is ever written to a source."""

    @classmethod
    @abstractmethod
    def of(cls, table: TomlTable, base: Path) -> Self:
        """The source that [data] describes; it reads its own keys. base: paths are relative to it.

        Raises InvalidInput naming file and key.
        """

    @property
    @abstractmethod
    def shown(self) -> str:
        """How messages, pages and logs name it: never with a password."""

    @abstractmethod
    def records(self, settings: DataSettings, terms: Terms) -> Records:
        """The records. Raises DataUnavailable, DataCorrupt naming place, column, row, value and what is allowed."""

    def columns(self, names: Sequence[str] | None, form: Form) -> Columns:
        """The named columns as texts, or all of them: one text per row. Raises as records; DataCorrupt for no table."""
        raise DataCorrupt(f"{self.shown} is no table; allowed: a study of arrays or images")

    def header(self, form: Form) -> list[str]:
        """The names of all columns. Raises as columns."""
        return list(self.columns(None, form))

    @property
    def is_table(self) -> bool:
        """Whether it has columns."""
        return False

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that it reads, which nothing may overwrite."""
        return ()


@dataclass(frozen=True)
class FileSource(Source):
    """A source that is one file or one folder, `path`, and needs no other key."""

    path: Path

    @classmethod
    def of(cls, table: TomlTable, base: Path) -> Self:
        return cls(base / table.text("path"))

    @property
    def shown(self) -> str:
        return str(self.path)

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.path,)


class TableSource(Source):
    """A source of columns of texts, which the study's terms and this hospital's mapping turn into records."""

    @property
    def is_table(self) -> bool:
        return True

    @abstractmethod
    def columns(self, names: Sequence[str] | None, form: Form) -> Columns: ...

    def records(self, settings: DataSettings, terms: Terms) -> Records:

        names = wanted(settings, terms, labelled=True)
        return table_records(self.columns(names, settings.mapping.form), settings, terms)


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """The table [data] of node.toml, and the mapping file that it names.

    name: of the data set, to which lifetime caps belong; loader: the kind of source, a key of party.data.LOADERS;
    source: where the private records are; patient: column that names the patient (images: the separator that ends the
    patient's part of a file name), whose records all go to one teacher, "" if every record is a patient; group: column
    of the privacy group, "" for none; hospitals: column that says at how many hospitals of a study each patient is
    known, "" for none; mapping: how the columns are written.
    """

    name: str
    loader: str
    source: Source
    patient: str = ""
    group: str = ""
    hospitals: str = ""
    mapping: DataMapping = field(default_factory=DataMapping)

    @property
    def shown(self) -> str:
        """How messages name the source: without passwords."""
        return self.source.shown


@dataclass(frozen=True, eq=False)
class Records:
    """Private records. inputs: finite; labels: class ids, or of several findings a column each: 1 present, 0 absent, -1
    not known; patients, groups: one string per record, None if not given; used: the records that are used, None for
    all; names: which of RULES says when two patients' names are one; equal_are_one: whether equal records of a patient,
    or of nobody named, count as one; known_at: at how many hospitals each record's patient is known, None if not given.

    A record that is not used keeps its place: which teacher learns which other record does not depend on it.
    """

    inputs: Float32[ndarray, "records ..."] = field(repr=False)
    labels: RecordLabels = field(repr=False)
    patients: Sequence[str] | None = field(default=None, repr=False)
    groups: Sequence[str] | None = field(default=None, repr=False)
    used: Bool[ndarray, " records"] | None = field(default=None, repr=False)
    names: str = "exact"
    equal_are_one: bool = False
    known_at: Int64[ndarray, " records"] | None = field(default=None, repr=False)

    def of_finding(self, at: int) -> Records:
        """The same with the labels of one finding, of which those are used that know it."""
        labels = self.labels[:, at]
        return replace(self, labels=labels, used=self.usable & (labels != NOT_KNOWN))

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
        return first_places(self.places, [found[name] for name in self.patients])

    @cached_property
    def equal_rows(self) -> Int64[ndarray, " records"]:
        """The first record with the same inputs, label and patient; what is not used is equal to nothing."""
        whose = None if self.patients is None else self.patients_by(self.names)
        keys = [
            (row.tobytes(), self.labels[at].tobytes(), None if whose is None else int(whose[at])) if used else at
            for at, (row, used) in enumerate(zip(self.inputs, self.usable, strict=True))
        ]
        return first_places(np.arange(len(keys)), keys)

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
    told = (len(terms.findings),) if terms.findings else ()
    if inputs.dtype != np.float32 or not np.issubdtype(labels.dtype, np.integer) or labels.shape[1:] != told:
        raise DataCorrupt(
            f"{where}: inputs {inputs.dtype}, labels {labels.dtype} of shape {labels.shape}; allowed: float32, and "
            f"{f'{told[0]} whole numbers each, a finding' if told else 'one whole number each'}"
        )
    if inputs.shape[1:] != terms.input_shape:
        raise DataCorrupt(f"{where}: inputs have shape {inputs.shape[1:]}; allowed: {terms.input_shape}, by the terms")
    if not 0 < len(inputs) == len(labels):
        raise DataCorrupt(f"{where}: {len(inputs)} inputs for {len(labels)} labels; allowed: one each, at least one")
    bad = ~np.isfinite(inputs).reshape(len(inputs), -1).all(axis=1)
    if bad.any():
        raise DataCorrupt(f"{where}: row {int(bad.argmax()) + 1}: NaN or infinite features; allowed: finite numbers")
    least, most = NOT_KNOWN if terms.findings else 0, len(terms.class_names) - 1
    outside = ((labels < least) | (labels > most)).reshape(len(labels), -1)
    if outside.any():
        row, at = (int(each) for each in np.argwhere(outside)[0])
        found = labels.reshape(len(labels), -1)[row, at]
        raise DataCorrupt(f"{where}: {terms.labels[at]}, row {row + 1}: class {found}; allowed: {least} to {most}")
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
        known_at=records.known_at,
    )


def wanted(settings: DataSettings, terms: Terms, *, labelled: bool) -> list[str]:
    """This hospital's columns that a study needs; labelled: including label, patient and group.

    Raises DataCorrupt if the study names none.
    """
    if not terms.features:
        raise DataCorrupt(f"{settings.shown}: the study's terms name no columns; allowed: loader npz, images or dicom")
    own = settings.mapping.own
    names = [own(feature.column) for feature in terms.features]
    beside = filter(None, (settings.patient, settings.group, settings.hospitals))
    # A finding that is mapped to no column is not recorded here.
    return [*names, *filter(None, map(own, terms.labels)), *beside] if labelled else names


def table_records(columns: Columns, settings: DataSettings, terms: Terms) -> Records:
    """The records of a table of texts. Raises DataCorrupt naming file, column, row, value and allowed values."""
    inputs, used = usable_inputs(columns, settings, terms)
    return Records(
        inputs,
        labels_of(columns, used, settings, terms),
        _names(columns, settings.patient, settings),
        _names(columns, settings.group, settings),
        used,
        known_at=_known_at(columns, settings),
    )


def labels_of(columns: Columns, used: Bool[ndarray, " rows"], settings: DataSettings, terms: Terms) -> RecordLabels:
    """The labels of each row; rows that the mapping leaves out are marked in `used`. A class named "missing" is of rows
    without a label; a finding without a value is not known, and everybody has class 0 where there is no label.

    Raises DataCorrupt naming file, column, row, value and allowed values.
    """
    if not terms.labels:  # a count of everybody
        return np.zeros(len(used), np.int64)
    found = [_labels(column, columns, used, settings, terms) for column in terms.labels]
    return np.stack(found, axis=1) if terms.findings else found[0]


def _labels(
    column: str, columns: Columns, used: Bool[ndarray, " rows"], settings: DataSettings, terms: Terms
) -> Int64[ndarray, " rows"]:
    if terms.findings and not settings.mapping.own(column):
        return np.full(len(used), NOT_KNOWN)
    labels, absent = study_texts(column, columns, settings), missing_texts(settings)
    gone = np.array([label.strip() in absent for label in labels], bool)
    known = np.array([label.strip() in terms.class_names for label in labels], bool)
    remedy, spared = settings.mapping.unusable.get(column), np.zeros(len(labels), bool)
    if terms.findings:
        spared = gone | (~known if remedy == "missing" else False)
    elif NO_LABEL in terms.class_names:
        labels = [NO_LABEL if missing else label for label, missing in zip(labels, gone, strict=True)]
        known |= gone
    if remedy == "leave out":
        used &= known | spared
        spared |= ~known
    labels = [terms.class_names[0] if each else label for label, each in zip(labels, spared, strict=True)]
    ids = own_class_ids(labels, settings, terms, column=column)
    return np.where(spared, NOT_KNOWN, ids) if terms.findings else ids


def table_inputs(columns: Columns, settings: DataSettings, terms: Terms) -> Float32[ndarray, "rows features"]:
    """The encoded features of records of which none may be left out, without labels. Raises as table_records does."""
    inputs, used = usable_inputs(columns, settings, terms)
    if not used.all():
        raise DataCorrupt(
            f"{settings.shown}, row {int((~used).argmax()) + 1}: a value that the mapping file leaves out; allowed: "
            f"a value in every column ({int((~used).sum())} such rows)"
        )
    return inputs


def usable_inputs(
    columns: Columns, settings: DataSettings, terms: Terms
) -> tuple[Float32[ndarray, "rows features"], Bool[ndarray, " rows"]]:
    """The encoded features, and which rows can be used: those that the mapping leaves out are all 0.

    Raises DataCorrupt for the first value that cannot be used where the mapping does not say what happens to it.
    """
    rows = len(next(iter(columns.values()), ()))
    if rows == 0:
        raise DataCorrupt(f"{settings.shown} has no rows; allowed: at least one")
    width = sum(feature.width for feature in terms.features)
    if rows * width > VALUES:
        raise DataCorrupt(f"{settings.shown}: {rows} rows of {width} features; allowed: at most {VALUES} values")
    encoded, used = [], np.ones(rows, bool)
    for feature in terms.features:
        inputs, fits = _usable(feature, study_texts(feature.column, columns, settings, feature), settings)
        encoded.append(inputs)
        used &= fits
    inputs = np.concatenate(encoded, axis=1)
    inputs[~used] = 0
    return inputs, used


def study_texts(column: str, columns: Columns, settings: DataSettings, feature: Feature | None = None) -> list[str]:
    """A column in the study's words: by the mapping's values; numbers, if it is numeric, with a decimal point, in
    the study's unit."""
    mapping = settings.mapping
    words, texts, times = mapping.values.get(column, {}), columns[mapping.own(column)], mapping.times.get(column, 1.0)
    numeric, absent = feature is not None and feature.kind == "numeric", missing_texts(settings)
    found: dict[str, str] = {}
    for text in dict.fromkeys(texts):
        word = words.get(text.strip(), text)
        found[text] = plain_number(word, mapping.form) if numeric and word.strip() not in absent else word
        if numeric and times != 1 and np.isfinite(value := features.read_numbers([found[text].strip()])[0]):
            found[text] = repr(float(value) * times)
    return [found[text] for text in texts]


def missing_texts(settings: DataSettings) -> frozenset[str]:
    """The texts that mean no value: those of the mapping, and an empty one, to which it may map others."""
    return frozenset({"", *settings.mapping.form.missing})


def near(feature: Feature) -> str:
    """The numbers that are not clipped, in words."""
    assert feature.centre is not None
    assert feature.scale is not None
    ends = [feature.centre + sign * features.BOUND * feature.scale for sign in (-1, 1)]
    low, high = np.expm1(ends) if feature.log else ends
    return f"{low:.6g} to {high:.6g}, as others are too far from the study's centre to be right"


def own_class_ids(
    values: Sequence[str], settings: DataSettings, terms: Terms, *, column: str
) -> Int64[ndarray, " rows"]:
    """The class ids of strings, translated by the mapping's values of a column of labels. Raises DataCorrupt."""
    known = {name: number for number, name in enumerate(terms.class_names)}
    words = {own: name for own, name in settings.mapping.values.get(column, {}).items() if name}
    unknown = [name for name in words.values() if name not in known]
    if unknown:
        raise DataCorrupt(f"values.{column} names the class {unknown[0]!r}; allowed: {', '.join(terms.class_names)}")
    codes = known | {own: known[name] for own, name in words.items()}
    where = _where(settings, settings.mapping.own(column))
    missing, plain = missing_texts(settings), {name.strip() for name in codes}
    unknown_rows = np.array([value.strip() not in plain for value in values], bool)
    features.check_rows(_hidden(values, missing), unknown_rows, ", ".join(codes), missing=missing, where=where)
    return features.class_ids(values, codes, missing=missing, where=where)


def _hidden(values: Sequence[str], missing: Collection[str]) -> list[str]:
    """What messages may say of a patient's values, which end up in logs; `data check` shows them at a terminal."""
    return [value if value.strip() in missing else f"a text of {len(value)} characters" for value in values]


def _usable(
    feature: Feature, texts: list[str], settings: DataSettings
) -> tuple[Float32[ndarray, "rows width"], Bool[ndarray, " rows"]]:
    """A column as features, and which rows of it can be used."""
    missing, remedy = missing_texts(settings), settings.mapping.unusable.get(feature.column)
    read = features.read_column(feature, texts, missing=missing)
    unusable = read.wrong | read.beyond
    if remedy == "missing":
        if not feature.may_miss:
            raise InvalidInput(
                f"unusable.{feature.column} is 'missing'; allowed: 'leave out', as no value may be missing in the study"
            )
        texts = ["" if bad else text for text, bad in zip(texts, unusable, strict=True)]
        read = features.read_column(feature, texts, missing=missing)
    elif remedy == "leave out":
        return read.inputs, ~unusable
    where = _where(settings, settings.mapping.own(feature.column))
    features.check_rows(_hidden(texts, missing), read.wrong, read.allowed, missing=missing, where=where)
    if remedy != "clip" and read.beyond.any():
        features.check_rows(_hidden(texts, missing), read.beyond, near(feature), missing=missing, where=where)
    return read.inputs, np.ones(len(texts), bool)


def _names(columns: Columns, column: str, settings: DataSettings) -> list[str] | None:
    if not column:
        return None
    return features.record_names(columns[column], missing=missing_texts(settings), where=_where(settings, column))


def _known_at(columns: Columns, settings: DataSettings) -> Int64[ndarray, " records"] | None:
    """At how many hospitals each record's patient is known, as the hospital says."""
    if not (column := settings.hospitals):
        return None
    numbers = features.read_numbers(columns[column])
    wrong = ~((numbers >= 1) & (numbers <= _MOST_HOSPITALS) & (numbers == np.rint(numbers)))
    missing, allowed = missing_texts(settings), f"a whole number from 1 to {_MOST_HOSPITALS}"
    shown = _hidden(columns[column], missing)
    features.check_rows(shown, wrong, allowed, missing=missing, where=_where(settings, column))
    return numbers.astype(np.int64)


def _where(settings: DataSettings, column: str) -> str:
    return f"{settings.shown}: column {column!r}"


def deal_records(
    places: Int64[ndarray, " records"], units: Int64[ndarray, " records"], *, teachers: int, key: bytes
) -> Int64[ndarray, " records"]:
    """The teacher of each record, in [0, teachers): places are dealt in an order drawn from `key`, equally up to one.

    places: each record's, numbered from 0; units: the place at which its unit stands, which is its own unless it is
    joined with an earlier one (party.data.mapping). Raises InvalidInput if there are fewer units than teachers.
    """
    held = len(np.unique(units))
    if held < teachers:
        raise InvalidInput(
            f"{held} records (of different patients) for {teachers} teachers; allowed: at least one per teacher"
        )
    count = int(places.max()) + 1
    order = np.random.Generator(np.random.PCG64(int.from_bytes(key, "big"))).permutation(count)
    dealt = np.empty(count, np.int64)
    dealt[order] = np.arange(count) % teachers
    return dealt[units]


def key_of(seed: int, *parts: str) -> bytes:
    """32 bytes derived from the node's seed for one purpose."""
    text = "\x1f".join(["conclave node 1", str(seed), *parts])
    return hashlib.sha256(text.encode()).digest()
