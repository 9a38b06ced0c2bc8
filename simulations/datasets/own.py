"""The user's own data: CSV, Parquet and JSON lines with a schema beside them, npz archives of arrays without one.

A schema is a TOML file that names the label, the features and the split; a table is read by the same code as on a
hospital's node. An archive has arrays x and y, x_private, y_private and so on, or the names that others use: keras
(x_train, y_test, ...) and MedMNIST (train_images, ...). The formats are described in docs/reference/datasets.md.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Float64, Int64, Shaped
from numpy import ndarray

from party.data import source_kind
from party.data.mapping import Form, plain_number, read_form
from party.data.records import Source
from protocols.errors import DataCorrupt, DataUnavailable, InvalidInput
from protocols.features.texts import USUAL_VECTORS
from protocols.reading import read_toml
from protocols.study.features import check_rows, class_ids, read_numbers, record_names
from protocols.study.findings import NOT_KNOWN, STATES
from runtime.settings import TomlTable
from simulations.datasets.columns import Column, Standardised, categorical, coded, features_in, numeric, text_column
from simulations.datasets.dataset import Dataset, DatasetRequest, strata_of
from simulations.datasets.own_pool import PARTS, Pool, as_dataset, cut_pool, flat_halves
from simulations.datasets.published_images import class_labels
from simulations.datasets.sources import read_npz

_Named = dict[str, Shaped[ndarray, "*shape"]]
_WHAT = {
    **dict.fromkeys(("x", "images", "data", "features", "inputs"), "x"),
    **dict.fromkeys(("y", "labels", "targets", "target"), "y"),
}
_CLASSES = ("classes", "class_names", "target_names", "label_names", "findings", "finding_names")
_PART = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
_FIRST = re.compile(rf"({'|'.join(_WHAT)})_({'|'.join(_PART)})", re.IGNORECASE)
_LAST = re.compile(rf"({'|'.join(_PART)})_({'|'.join(_WHAT)})", re.IGNORECASE)
# Of the training part, where there is no validation part: as many as of a file that is cut by shares.
_PUBLIC_SHARE = 0.25 / (0.25 + 0.6)


def without_part(arrays: _Named) -> _Named:
    """The archive with x, y and classes in place of usual names of one pool, such as X, images and labels, or data,
    target and target_names. A name that stands for what another one already is stays."""
    renamed: _Named = {}
    for name, array in arrays.items():
        plain = "classes" if name.lower() in _CLASSES else _WHAT.get(name.lower(), name)
        renamed[name if plain in arrays or plain in renamed else plain] = array
    return renamed


def in_parts(path: Path, arrays: _Named, *, seed: int) -> _Named | None:
    """The archive with x_private, y_private and so on in place of the usual names; None without a training part.

    The test part stays the test part, and a validation part becomes the public one. Without it, 0.25/0.85 of the
    training part become public, a choice by the seed that is even over classes. Labels [N, 1] and images
    [N, height, width, 1] lose their last axis. Raises DataCorrupt for a mixture of names, or a part without labels.
    """
    named = {name: _usual(name) for name in arrays}
    known = {place: name for name, place in named.items() if place is not None}
    if ("x", "train") not in known:
        return None
    rest = sorted(name for name, place in named.items() if place is None and name != "classes")
    parts = {part for _, part in known}
    needed = {(what, part) for what in "xy" for part in parts | {"train", "test"}}
    if rest or len(known) < len(arrays) - ("classes" in arrays) or set(known) != needed:
        raise DataCorrupt(
            f"{path} holds {', '.join(sorted(arrays))}; allowed with such names: inputs and labels, each of a training "
            "and a test part and perhaps of a validation part, and classes"
        )
    found = {place: _flat(arrays[name], place[0]) for place, name in known.items()}
    for part in sorted(parts):
        if len(found["x", part]) != len(found["y", part]):
            raise DataCorrupt(
                f"{path}: the {part} part has {len(found['x', part])} inputs and {len(found['y', part])} labels; "
                "allowed: one label each"
            )
    if "val" not in parts:
        public, private = _even_choice(path, found["y", "train"], seed=seed)
        for what in "xy":
            found[what, "val"] = found[what, "train"][public]
            found[what, "train"] = found[what, "train"][private]
    ours = {"train": "private", "val": "public", "test": "test"}
    made = {f"{what}_{ours[part]}": array for (what, part), array in found.items()}
    return made | ({"classes": arrays["classes"]} if "classes" in arrays else {})


def _usual(name: str) -> tuple[str, str] | None:
    if first := _FIRST.fullmatch(name):
        return _WHAT[first[1].lower()], _PART[first[2].lower()]
    if last := _LAST.fullmatch(name):
        return _WHAT[last[2].lower()], _PART[last[1].lower()]
    return None


def _flat(array: Shaped[ndarray, "*shape"], what: str) -> Shaped[ndarray, "*shape"]:
    axes = 2 if what == "y" else 4
    return array[..., 0] if array.ndim == axes and array.shape[-1] == 1 else array


def _even_choice(
    path: Path, labels: Shaped[ndarray, "*shape"], *, seed: int
) -> tuple[Int64[ndarray, " public"], Int64[ndarray, " private"]]:
    """Which records of the training part become public, in random order: every so many-th of each class of the shuffled
    part; and which do not."""
    if labels.ndim not in (1, 2) or len(labels) < 2:
        raise DataCorrupt(f"{path}: the training labels are {list(labels.shape)}; allowed: of at least 2 records")
    if labels.ndim == 2:
        labels = strata_of((labels == 1).astype(np.int64))
    rng = np.random.default_rng([seed, *b"own file train"])
    shuffled: Int64[ndarray, " records"] = rng.permutation(len(labels))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    wanted = max(1, round(_PUBLIC_SHARE * len(labels)))
    public = by_class[(np.arange(wanted) * len(labels)) // wanted]
    return rng.permutation(public), np.setdiff1d(np.arange(len(labels)), public)


@dataclass(frozen=True)
class Schema:
    """How to read a table. labels: the column to predict; or several, of which each is a finding with the classes
    absent and present, and unknown where no value is. shares: those of the private, public and test parts if no column
    gives a split; form: how its texts are written; only_labelled: whether rows without any label are left out."""

    name: str
    labels: tuple[str, ...]
    classes: tuple[str, ...]
    columns: tuple[Column, ...]
    site: str | None
    patient: str | None
    split: str | None
    shares: tuple[float, float, float]
    form: Form = field(default_factory=Form)
    only_labelled: bool = False

    @property
    def findings(self) -> tuple[str, ...]:
        """The columns of findings; none where a record has one class."""
        return self.labels if len(self.labels) > 1 else ()


def read_schema(path: Path) -> Schema:
    """Reads and checks a schema file. Raises DataUnavailable when it is absent, InvalidInput when it is
    wrong."""
    try:
        content = read_toml(path)
    except DataUnavailable as error:
        raise DataUnavailable(
            f"the schema {path} does not exist; `conclave-simulate schema FILE --out {path}` proposes one, to be read "
            "and corrected (docs/reference/datasets.md); --schema-file names another"
        ) from error
    table = TomlTable(path, content)
    classes, findings = table.labels("classes"), table.texts("findings", ())
    if len(classes) < 2 or (findings and len(classes) > 2):
        raise InvalidInput(
            f"{path}: classes lists {len(classes)}; allowed: at least 2, and of findings 2, absent and present"
        )
    if len(findings) == 1 or (bool(findings) == bool(table.text("label", ""))):
        raise InvalidInput(
            f"{path}: label is {table.text('label', '')!r}, and findings lists {len(findings)}; allowed: "
            "label = COLUMN, or findings = [COLUMN, COLUMN, ...]"
        )
    schema = Schema(
        name=table.text("name", "") or path.name.removesuffix(".toml").removesuffix(".schema"),
        labels=tuple(findings) or (table.text("label", ""),),
        classes=classes,
        columns=tuple(_column(feature) for feature in table.tables("feature")),
        site=table.text("site", "") or None,
        patient=table.text("patient", "") or None,
        split=table.text("split", "") or None,
        shares=_shares(table),
        form=read_form(table),
        only_labelled=table.flag("only_labelled", False),
    )
    table.done()
    used = [column.column for column in schema.columns]
    doubled = sorted({name for name in (*used, *schema.labels) if [*used, *schema.labels].count(name) > 1})
    forbidden = sorted({*used, *schema.labels} & {schema.site, schema.patient, schema.split})
    if doubled or forbidden:
        raise InvalidInput(
            f"{path}: columns {', '.join(doubled + forbidden)} are named twice, or are the site, patient or split "
            "column; allowed: each column once"
        )
    return schema


def _column(table: TomlTable) -> Column:
    kind, name, may_miss = table.text("kind"), table.text("column"), table.flag("may_miss", False)
    where = f"{table.path}: {table.name}"
    if not name:
        raise InvalidInput(f"{where}column is empty; allowed: column = NAME")
    column: Column
    if kind == "categorical":
        categories = table.labels("categories")
        if not categories:
            raise InvalidInput(f"{where}categories is empty; allowed: at least one")
        column = categorical(name, categories, may_miss=may_miss)
    elif kind == "text":
        column = text_column(name, table.text("vectors", USUAL_VECTORS), may_miss=may_miss)
    elif kind == "numeric":
        log = table.flag("log", False)
        if "centre" in table.values or "scale" in table.values:
            centre, scale = table.number("centre"), table.number("scale")
            if scale <= 0:
                raise InvalidInput(f"{where}scale is {scale}; allowed: above 0")
            column = numeric(name, centre=centre, scale=scale, log=log, may_miss=may_miss)
        else:
            column = Standardised(name, log=log, may_miss=may_miss)
    else:
        raise InvalidInput(f"{where}kind is {kind!r}; allowed: numeric, categorical, text")
    table.done()
    return column


def _shares(table: TomlTable) -> tuple[float, float, float]:
    if "shares" not in table.values:
        return 0.6, 0.25, 0.15
    if "split" in table.values:
        raise InvalidInput(f"{table.path}: both split and [shares] are given; allowed: one of them")
    given = table.table("shares")
    private, public, test = shares = given.number("private"), given.number("public"), given.number("test")
    given.done()
    if min(shares) <= 0 or not math.isclose(sum(shares), 1, abs_tol=1e-6):
        raise InvalidInput(f"{table.path}: the shares are {private}, {public}, {test}; allowed: above 0, with sum 1")
    return shares


SHARES = (0.6, 0.25, 0.15)

_Arrays = dict[str, Shaped[ndarray, "*shape"]]
_ONE_POOL = {"x", "y", "site", "patient", "split", "classes"}
_IN_PARTS = {f"{what}_{part}" for what in ("x", "y", "patient") for part in PARTS} | {"site_private", "classes"}


def load_npz(path: Path, *, seed: int, sizes: tuple[int | None, int | None, int | None]) -> Dataset:
    """The archive's data set: x [N, features] is a table, used as it is; x [N, height, width] are grey images and
    x [N, height, width, 3] or [N, 3, height, width] colour ones, bytes or floats in [0, 1]. Classes are the different
    values of y; or y [N, findings] holds 0 and 1, and NaN or -1 where a finding is not known. Raises DataCorrupt naming
    file, array and row, InvalidInput on sizes.
    """
    arrays = without_part(read_npz(path))
    if "x" not in arrays:
        arrays = _joined(path, in_parts(path, arrays, seed=seed) or arrays)
    if not {"x", "y"} <= set(arrays) or not set(arrays) <= _ONE_POOL:
        raise DataCorrupt(f"{path} holds {', '.join(sorted(arrays))}; allowed: x, y and of {', '.join(_ONE_POOL)}")
    inputs = _inputs(path, arrays["x"])
    findings = finding_labels(arrays["y"], arrays.get("classes"), where=str(path))
    labels, class_names = (
        class_labels(arrays["y"], arrays.get("classes"), where=str(path)) if findings is None else (findings[0], STATES)
    )
    if len(labels) != len(inputs):
        raise DataCorrupt(f"{path}: y has shape {list(arrays['y'].shape)}; allowed: [{len(inputs)}], as x")
    for name in ("site", "patient", "split"):
        if name in arrays and arrays[name].shape != (len(inputs),):
            raise DataCorrupt(f"{path}: {name} has shape {list(arrays[name].shape)}; allowed: [{len(inputs)}], as x")
    pool = Pool(
        path=path,
        name=path.stem,
        kind="image" if inputs.ndim > 2 else "table",
        class_names=class_names,
        labels=labels,
        findings=() if findings is None else findings[1],
        sites=arrays["site"].astype(str) if "site" in arrays else None,
        patients=arrays["patient"].astype(str) if "patient" in arrays else None,
        part=_parts(path, arrays["split"].astype(str)) if "split" in arrays else None,
    )
    pool, kept = pool.without_copies(flat_halves(inputs))
    return as_dataset(pool, inputs[kept], cut_pool(pool, SHARES, sizes, seed))


def finding_labels(
    y: Shaped[ndarray, "*shape"], names: Shaped[ndarray, "*shape"] | None, *, where: str
) -> tuple[Int64[ndarray, "records findings"], tuple[str, ...]] | None:
    """The findings of each record and their names; None where y is no array of several, or its rows hold one 1 each.

    y: 0 or False absent, 1 or True present, -1 or NaN not known. Raises DataCorrupt for another value, or names of
    another number.
    """
    if y.ndim != 2 or y.shape[1] < 2 or y.dtype.kind not in "biuf":
        return None
    said = np.where(np.isnan(y), NOT_KNOWN, y) if y.dtype.kind == "f" else y.astype(np.int64)
    if ((said == 1).sum(axis=1) == 1).all() and ((said == 0).sum(axis=1) == y.shape[1] - 1).all():
        return None
    wrong = ~np.isin(said, (NOT_KNOWN, 0, 1)).all(axis=1)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DataCorrupt(f"{where}: y, row {row + 1}: {y[row].tolist()}; allowed of findings: 0, 1, and -1 or NaN")
    found = [f"finding {at + 1}" for at in range(y.shape[1])] if names is None else [*map(str, names.reshape(-1))]
    if len(found) != y.shape[1]:
        raise DataCorrupt(f"{where}: {len(found)} names of {y.shape[1]} findings; allowed: a name each")
    return said.astype(np.int64), tuple(found)


def _joined(path: Path, arrays: _Arrays) -> _Arrays:
    """The arrays of the three parts as one pool with a split."""
    needed = {f"{what}_{part}" for what in "xy" for part in PARTS}
    patients = {f"patient_{part}" for part in PARTS}
    if not needed <= set(arrays) <= _IN_PARTS or len(patients & set(arrays)) in (1, 2):
        raise DataCorrupt(
            f"{path} holds {', '.join(sorted(arrays))}; allowed: x and y, or x_train, y_train, x_test and y_test, or "
            f"{', '.join(sorted(needed))}, and of site_private, classes, and patient_private, patient_public and "
            "patient_test together"
        )
    counts = [len(arrays[f"x_{part}"]) for part in PARTS]
    try:
        joined = {what: np.concatenate([arrays[f"{what}_{part}"] for part in PARTS]) for what in "xy"}
    except ValueError as error:
        raise DataCorrupt(
            f"{path}: the parts have different shapes ({error}); allowed: the same except for rows"
        ) from error
    joined["split"] = np.repeat(PARTS, counts)
    if patients <= set(arrays):
        joined["patient"] = np.concatenate([arrays[f"patient_{part}"].astype(str) for part in PARTS])
    if "site_private" in arrays:
        joined["site"] = np.concatenate([arrays["site_private"].astype(str), np.repeat("", sum(counts[1:]))])
    if "classes" in arrays:
        joined["classes"] = arrays["classes"]
    return joined


def _inputs(path: Path, x: Shaped[ndarray, "*shape"]) -> Float32[ndarray, "records ..."]:
    given = f"{x.dtype}{list(x.shape)}"
    if x.ndim == 4 and 1 in (x.shape[1], x.shape[3]):
        x = x[..., 0] if x.shape[3] == 1 else x[:, 0]
    elif x.ndim == 4 and x.shape[1] == 3 != x.shape[3]:
        x = np.moveaxis(x, 1, 3)
    shaped = x.ndim in (2, 3) or (x.ndim == 4 and x.shape[3] == 3)
    if not shaped or x.size == 0 or not (np.issubdtype(x.dtype, np.floating) or np.issubdtype(x.dtype, np.integer)):
        raise DataCorrupt(
            f"{path}: x is {given}; allowed: numbers, [N, features], [N, height, width], [N, height, width, 3] or "
            "[N, 3, height, width]"
        )
    image, whole = x.ndim > 2, np.issubdtype(x.dtype, np.integer)
    inputs = x.astype(np.float32)
    if image and whole:
        inputs /= 255
    low, high = (0.0, 1.0) if image else (-np.finfo(np.float32).max, np.finfo(np.float32).max)
    wrong = ~((inputs >= low) & (inputs <= high))
    if wrong.any():
        row, *place = (int(index) for index in np.argwhere(wrong)[0])
        allowed = (
            "finite numbers" if not image else "0 to 255" if whole else "[0, 1]; divide by the largest there can be"
        )
        raise DataCorrupt(
            f"{path}: x, row {row + 1}, position {place}: {x[(row, *place)]}; allowed: {allowed} "
            f"({int(wrong.sum())} such values)"
        )
    return inputs


def _parts(path: Path, split: Shaped[ndarray, " records"]) -> Int64[ndarray, " records"]:
    wrong = ~np.isin(split, PARTS)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DataCorrupt(f"{path}: split, row {row + 1}: {str(split[row])!r}; allowed: {', '.join(PARTS)}")
    return np.searchsorted(np.array(PARTS), split).astype(np.int64)  # PARTS are in alphabetical order


_LOADERS = {".parquet": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl"}


def read_table(path: Path, names: Sequence[str] | None, form: Form) -> Mapping[str, Sequence[str]]:
    """The named columns of a table, or all, as strings. Raises DataUnavailable, DataCorrupt."""
    return source_of(path).columns(names, form)


def source_of(path: Path) -> Source:
    """The file as a hospital's node would read it."""
    kind: Callable[[Path], Source] = source_kind(_LOADERS.get(path.suffix.lower(), "csv"))
    return kind(path)


def load_table(
    path: Path,
    schema: Schema,
    *,
    seed: int,
    sizes: tuple[int | None, int | None, int | None],
    groups: Sequence[str] = (),
    time: str | None = None,
) -> Dataset:
    """The table's data set. groups: columns that name what records belong to; time: the column that orders them.

    Rows without a label are left out where the schema says so. Raises DataCorrupt naming file, column and row,
    InvalidInput on sizes.
    """
    given = [*schema.labels, schema.site, schema.patient, schema.split, *(each.column for each in schema.columns)]
    asked = [*given, *(column for column in groups if column not in ("class", "site")), time]
    names = list(dict.fromkeys(name for name in asked if name is not None))
    missing = frozenset({"", *schema.form.missing})
    try:
        table = {**read_table(path, names, schema.form)}
    except DataCorrupt as error:
        if schema.form != Form():
            raise
        raise DataCorrupt(f"{error}. `conclave-simulate schema {path}` says how it seems to be written") from error
    numeric = [each.column for each in schema.columns if isinstance(each, Standardised) or each.kind == "numeric"]
    for name in numeric:
        table[name] = plain_numbers(table[name], schema.form, missing)
    absent = missing - {*schema.classes}
    told = {name: np.array([text.strip() not in absent for text in table[name]], bool) for name in schema.labels}
    labelled = np.stack([*told.values()]).any(axis=0)
    kept = labelled if schema.only_labelled else np.ones_like(labelled)
    if not kept.any():
        what = "no row with a label" if len(table[given[0] or ""]) else "no rows"
        raise DataCorrupt(f"{path} has {what}; allowed: at least one each for the private, public and test part")
    rows = np.flatnonzero(kept)

    def codes(column: str, names: tuple[str, ...], *, may_miss: bool = False) -> Shaped[ndarray, " rows"]:
        numbers, values = {name: number for number, name in enumerate(names)}, table[column]
        if may_miss:
            values = [value if said else names[0] for value, said in zip(values, told[column], strict=True)]
        ids = class_ids(values, numbers, missing=missing, where=f"{path}: column {column!r}")
        return np.where(told[column], ids, NOT_KNOWN)[rows] if may_miss else ids[rows]

    def texts(column: str) -> Shaped[ndarray, " rows"]:
        return np.array(record_names(table[column], missing=missing, where=f"{path}: column {column!r}"))[rows]

    pool = Pool(
        path=path,
        name=schema.name,
        kind="table",
        class_names=STATES if schema.findings else schema.classes,
        labels=np.stack([codes(each, schema.classes, may_miss=True) for each in schema.findings], axis=1)
        if schema.findings
        else codes(schema.labels[0], schema.classes, may_miss=schema.only_labelled),
        findings=schema.findings,
        sites=None if schema.site is None else texts(schema.site),
        patients=None if schema.patient is None else texts(schema.patient),
        part=None if schema.split is None else codes(schema.split, PARTS),
        names={column: _named(table[column], missing)[rows] for column in groups if column in table},
        times=None if time is None else _times(table[time], missing, where=f"{path}: column {time!r}")[rows],
    )
    known = [table[each.column] for each in schema.columns]
    first, second = ([tuple(column[row] for column in known[at::2]) for row in rows.tolist()] for at in (0, 1))
    pool, kept = pool.without_copies((first, second))
    rows = rows[kept]
    parts = cut_pool(pool, schema.shares, sizes, seed)
    columns = features_in(table, schema.columns, rows[parts.public], missing=missing)
    inputs = coded(table, columns, missing=missing, where=str(path))[rows]
    return as_dataset(pool, inputs, parts, columns)


def plain_numbers(values: Sequence[str], form: Form, missing: Collection[str]) -> list[str]:
    """The texts of a column of numbers with a decimal point and no thousands signs; others as they are."""
    known = {text: text if text.strip() in missing else plain_number(text, form) for text in dict.fromkeys(values)}
    return [known[text] for text in values]


def _named(values: Sequence[str], missing: Collection[str]) -> Shaped[ndarray, " rows"]:
    """What each record belongs to; a missing value is a name of its own."""
    plain = [value.strip() for value in values]
    # As objects: of a fixed width, one long text would make all of them long.
    return np.array(["missing" if value in missing else value for value in plain], dtype=object)


def _times(values: Sequence[str], missing: Collection[str], *, where: str) -> Float64[ndarray, " rows"]:
    """Numbers that order records in time: the column's own, or seconds since 1970 of its dates or times (ISO 8601;
    UTC where a time names no zone). Raises DataCorrupt for the first row that is neither, or missing.
    """
    numbers = read_numbers([value.strip() for value in values])
    if np.isfinite(numbers).all():
        return numbers
    seconds = np.full(len(values), np.nan)
    for row, value in enumerate(values):
        try:
            read = datetime.fromisoformat(value.strip())
        except ValueError:
            continue
        seconds[row] = (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()
    allowed = "numbers, or dates and times as 2024-05-31 or 2024-05-31T14:05"
    check_rows(values, ~np.isfinite(seconds), allowed, missing=missing, where=where)
    return seconds


_TABLES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".jsonl", ".ndjson")
SUFFIXES = (*_TABLES, ".npz")


def is_file_name(name: str) -> bool:
    """Whether a data set of this name is a file of the user's own."""
    return name.lower().endswith(SUFFIXES)


def table_name(path: Path) -> str:
    """The file's name without the suffix of a table. Raises InvalidInput for another suffix."""
    for suffix in _TABLES:
        if path.name.lower().endswith(suffix):
            return path.name[: -len(suffix)]
    raise InvalidInput(f"the file is {path}; allowed: names ending in {', '.join(_TABLES)}")


def load_file(path: Path, request: DatasetRequest) -> Dataset:
    """The data set in a file with one of SUFFIXES; a table's schema is NAME.schema.toml beside it unless the request
    names one.

    Without a split in the file, records are cut by shares (0.6, 0.25 and 0.15 unless the schema says
    otherwise), whole patients together, stratified by class and site.
    Raises DataUnavailable (the file or its schema is absent), InvalidInput (the schema or a size is wrong)
    and DataCorrupt (the file is not what it should be; the message names column and row).
    """
    if not is_file_name(path.name):
        raise InvalidInput(f"the file is {path}; allowed: names ending in {', '.join(SUFFIXES)}")
    if not path.is_file():
        raise DataUnavailable(f"there is no file {path}; name an existing {', '.join(SUFFIXES)} file")
    sizes = (request.private_size, request.public_size, request.test_size)
    if path.suffix.lower() == ".npz":
        if request.schema is not None:
            raise InvalidInput(f"a schema was given for {path}; allowed: only with tables")
        if request.time is not None:
            raise InvalidInput(f"the column of time is {request.time!r}; {path} has no columns, a table has")
        return load_npz(path, seed=request.seed, sizes=sizes)
    schema = read_schema(request.schema or path.with_name(f"{table_name(path)}.schema.toml"))
    return load_table(path, schema, seed=request.seed, sizes=sizes, groups=request.groups, time=request.time)
