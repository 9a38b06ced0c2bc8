"""A server's settings: a TOML file with one table, whose keys are the fields of a dataclass."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, get_type_hints

from protocols.errors import InvalidInput
from protocols.reading import read_toml

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Settings = TypeVar("Settings", bound=DataclassInstance)


def read_settings(path: Path, kind: type[Settings]) -> Settings:
    """The settings in a file. Raises DataUnavailable if it is absent, InvalidInput for a wrong key or value."""
    table, kinds = read_toml(path), get_type_hints(kind)
    for key, value in table.items():
        if key not in kinds:
            raise InvalidInput(f"{path}: unknown key {key!r}; allowed: {', '.join(kinds)}")
        if type(value) is not kinds[key]:
            raise InvalidInput(f"{path}: {key} is {value!r}; allowed: {kinds[key].__name__}")
    missing = [each.name for each in fields(kind) if each.default is MISSING and each.name not in table]
    if missing:
        raise InvalidInput(f"{path}: key {missing[0]!r} is missing")
    return kind(**table)


def write_settings(values: Mapping[str, object], *, title: str, about: Mapping[str, str]) -> str:
    """The text of such a file. title: its first line, a comment; about: what each key means."""
    lines = [f"# {title}"]
    for key, value in values.items():
        lines += ["", f"# {about[key]}", f"{key} = {json.dumps(value)}"]
    return "\n".join(lines) + "\n"
