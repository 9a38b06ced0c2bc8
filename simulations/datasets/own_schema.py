"""The schema of the user's own table: a TOML file that names the label, the features and the split."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from protocols.errors import DataUnavailable, InvalidInput
from protocols.reading import read_toml
from simulations.datasets.columns import Column, Standardised, categorical, numeric

_TOP = {"name", "label", "classes", "site", "patient", "split", "shares", "feature"}
_FEATURE = {
    "numeric": {"column", "kind", "centre", "scale", "log", "may_miss"},
    "categorical": {"column", "kind", "categories", "may_miss"},
}


@dataclass(frozen=True)
class Schema:
    """How to read a table. `shares` are those of the private, public and test parts if no column gives a split."""

    name: str
    label: str
    classes: tuple[str, ...]
    columns: tuple[Column, ...]
    site: str | None
    patient: str | None
    split: str | None
    shares: tuple[float, float, float]


def read_schema(path: Path) -> Schema:
    """Reads and checks a schema file. Raises DataUnavailable when it is absent, InvalidInput when it is
    wrong."""
    try:
        content = read_toml(path)
    except DataUnavailable as error:
        raise DataUnavailable(
            f"the schema {path} does not exist; write one (docs/reference/datasets.md) or name it with --schema-file"
        ) from error
    _only(content, _TOP, str(path))
    classes = tuple(_texts(content, "classes", str(path)))
    if len(classes) < 2:
        raise InvalidInput(f"{path}: classes lists {len(classes)}; allowed: at least 2")
    features = content.get("feature", [])
    if not isinstance(features, list) or not features or not all(isinstance(one, dict) for one in features):
        raise InvalidInput(f"{path}: there is no [[feature]] table; allowed: at least one")
    columns = tuple(_column(one, f"{path}, feature {number}") for number, one in enumerate(features, 1))
    schema = Schema(
        name=_text(content, "name", str(path)) or path.name.removesuffix(".toml").removesuffix(".schema"),
        label=_text(content, "label", str(path)) or "",
        classes=classes,
        columns=columns,
        site=_text(content, "site", str(path)),
        patient=_text(content, "patient", str(path)),
        split=_text(content, "split", str(path)),
        shares=_shares(content, path),
    )
    if not schema.label:
        raise InvalidInput(f"{path}: no label column is named; allowed: label = COLUMN")
    used = [column.column for column in columns]
    doubled = sorted({name for name in used if used.count(name) > 1})
    forbidden = sorted(set(used) & {schema.label, schema.site, schema.patient, schema.split})
    if doubled or forbidden:
        raise InvalidInput(
            f"{path}: feature columns {', '.join(doubled + forbidden)} are named twice, or are the label, "
            f"site, patient or split column; allowed: each column once"
        )
    return schema


def _column(table: dict[str, object], where: str) -> Column:
    kind = table.get("kind")
    if kind not in ("numeric", "categorical"):
        raise InvalidInput(f"{where}: kind is {kind!r}; allowed: numeric, categorical")
    _only(table, _FEATURE[str(kind)], where)
    name = _text(table, "column", where)
    if not name:
        raise InvalidInput(f"{where}: no column is named; allowed: column = NAME")
    may_miss = _flag(table, "may_miss", where)
    if kind == "categorical":
        categories = _texts(table, "categories", where)
        if not categories:
            raise InvalidInput(f"{where}: categories is empty; allowed: at least one")
        return categorical(name, tuple(categories), may_miss=may_miss)
    centre, scale = _number(table, "centre", where), _number(table, "scale", where)
    if (centre is None) != (scale is None) or (scale is not None and scale <= 0):
        raise InvalidInput(f"{where}: centre is {centre}, scale is {scale}; allowed: neither, or both with scale > 0")
    log = _flag(table, "log", where)
    if centre is None or scale is None:
        return Standardised(name, log=log, may_miss=may_miss)
    return numeric(name, centre=centre, scale=scale, log=log, may_miss=may_miss)


def _shares(content: dict[str, object], path: Path) -> tuple[float, float, float]:
    table = content.get("shares", {"private": 0.6, "public": 0.25, "test": 0.15})
    if not isinstance(table, dict) or set(table) != {"private", "public", "test"}:
        raise InvalidInput(f"{path}: [shares] is {table!r}; allowed: private, public and test")
    if "split" in content and "shares" in content:
        raise InvalidInput(f"{path}: both split and [shares] are given; allowed: one of them")
    private, public, test = (_number(table, part, f"{path}, [shares]") or 0.0 for part in ("private", "public", "test"))
    if min(private, public, test) <= 0 or not math.isclose(private + public + test, 1, abs_tol=1e-6):
        raise InvalidInput(f"{path}: the shares are {private}, {public}, {test}; allowed: above 0, with sum 1")
    return private, public, test


def _only(table: dict[str, object], known: set[str], where: str) -> None:
    unknown = sorted(set(table) - known)
    if unknown:
        raise InvalidInput(f"{where}: unknown keys {', '.join(unknown)}; allowed: {', '.join(sorted(known))}")


def _text(table: dict[str, object], key: str, where: str) -> str | None:
    value = table.get(key)
    if value is not None and not (isinstance(value, str) and value):
        raise InvalidInput(f"{where}: {key} is {value!r}; allowed: a string")
    return value


def _texts(table: dict[str, object], key: str, where: str) -> list[str]:
    values = table.get(key, [])
    if not isinstance(values, list) or not all(isinstance(value, (str, int)) for value in values):
        raise InvalidInput(f"{where}: {key} is {values!r}; allowed: a list of strings or whole numbers")
    texts = [str(value) for value in values]
    if len(set(texts)) != len(texts):
        raise InvalidInput(f"{where}: {key} is {values!r}; allowed: each value once")
    return texts


def _number(table: dict[str, object], key: str, where: str) -> float | None:
    value = table.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise InvalidInput(f"{where}: {key} is {value!r}; allowed: a finite number")
    return float(value)


def _flag(table: dict[str, object], key: str, where: str) -> bool:
    value = table.get(key, False)
    if not isinstance(value, bool):
        raise InvalidInput(f"{where}: {key} is {value!r}; allowed: true, false")
    return value
