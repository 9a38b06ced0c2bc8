"""The schema of the user's own table: a TOML file that names the label, the features and the split."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

from party.data.mapping import Form, read_form
from protocols.errors import DataUnavailable, InvalidInput
from protocols.features.texts import USUAL_VECTORS
from protocols.reading import read_toml
from runtime.toml_table import TomlTable
from simulations.datasets.columns import Column, Standardised, categorical, numeric, text


@dataclass(frozen=True)
class Schema:
    """How to read a table. shares: those of the private, public and test parts if no column gives a split; form: how
    its texts are written; only_labelled: whether rows without a label are left out, rather than refused."""

    name: str
    label: str
    classes: tuple[str, ...]
    columns: tuple[Column, ...]
    site: str | None
    patient: str | None
    split: str | None
    shares: tuple[float, float, float]
    form: Form = field(default_factory=Form)
    only_labelled: bool = False


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
    classes = table.labels("classes")
    if len(classes) < 2:
        raise InvalidInput(f"{path}: classes lists {len(classes)}; allowed: at least 2")
    schema = Schema(
        name=table.text("name", "") or path.name.removesuffix(".toml").removesuffix(".schema"),
        label=table.text("label", ""),
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
    if not schema.label:
        raise InvalidInput(f"{path}: no label column is named; allowed: label = COLUMN")
    used = [column.column for column in schema.columns]
    doubled = sorted({name for name in used if used.count(name) > 1})
    forbidden = sorted(set(used) & {schema.label, schema.site, schema.patient, schema.split})
    if doubled or forbidden:
        raise InvalidInput(
            f"{path}: feature columns {', '.join(doubled + forbidden)} are named twice, or are the label, "
            f"site, patient or split column; allowed: each column once"
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
        column = text(name, table.text("vectors", USUAL_VECTORS), may_miss=may_miss)
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
