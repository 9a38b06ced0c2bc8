"""Settings in TOML, read key by key: a missing, unknown or mistyped key is refused and named, in one wording."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_type_hints  # Any: what tomllib returns, checked below

from protocols.errors import DataUnavailable, InvalidInput
from protocols.reading import read_toml

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Settings = TypeVar("Settings", bound=DataclassInstance)

_KINDS: Final[Mapping[type, str]] = {str: "a string", int: "a whole number", bool: "true or false"}


def named_toml(path: Path) -> dict[str, Any]:
    """The table of a TOML file that somebody named. Raises InvalidInput as read_toml, also where it is absent."""
    try:
        return read_toml(path)
    except DataUnavailable as error:
        raise InvalidInput(str(error)) from None


def read_toml_settings(path: Path, kind: type[Settings], *, role: str) -> Settings:
    """The settings in a file of one table, whose keys are a dataclass's fields: texts, whole numbers, flags.

    role: of the program that has its home there. Raises DataUnavailable if it is absent, as before init, InvalidInput
    for a wrong key or value.
    """
    try:
        table, kinds = TomlTable(path, read_toml(path)), get_type_hints(kind)
    except DataUnavailable:
        raise DataUnavailable(f"{path.parent} holds no {role}; run conclave-{role} init, or give --home") from None
    values = {
        each.name: table.value(each.name, kinds[each.name], None if each.default is MISSING else each.default)
        for each in fields(kind)
    }
    table.done()
    return kind(**values)


def write_settings(values: Mapping[str, object], *, title: str, about: Mapping[str, str]) -> str:
    """The text of such a file. title: its first line, a comment; about: what each key means."""
    lines = [f"# {title}"]
    for key, value in values.items():
        lines += ["", f"# {about[key]}", f"{key} = {json.dumps(value)}"]
    return "\n".join(lines) + "\n"


@dataclass
class TomlTable:
    """A table of a TOML file, read key by key; a key is required where no default is given.

    name: where the table stands in the file, for messages, with a dot at its end. Every method raises InvalidInput,
    naming file, key, value and what is allowed.
    """

    path: Path
    values: dict[str, Any]
    name: str = ""
    seen: set[str] = field(default_factory=set)

    def _take(self, key: str, kind: type | tuple[type, ...], allowed: str, default: object) -> Any:
        self.seen.add(key)
        value = self.values.get(key, default)
        shown = f"{self.path}: {self.name}{key}"
        if value is None:
            raise InvalidInput(f"{shown} is missing; allowed: {allowed}")
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise InvalidInput(f"{shown} is {str(value)[:80]!r}; allowed: {allowed}")
        return value

    def value(self, key: str, kind: type, default: object = None) -> Any:  # of that kind
        return self._take(key, kind, _KINDS[kind], default)

    def text(self, key: str, default: str | None = None) -> str:
        return str(self.value(key, str, default))

    def said(self, key: str) -> str | None:
        """A text; None where nobody said one."""
        return self.text(key) if key in self.values else None

    def number(self, key: str, default: float | None = None) -> float:
        return float(self._take(key, (int, float), "a number", default))

    def whole(self, key: str, low: int, high: int, default: int | None = None) -> int:
        value: int = self._take(key, int, f"a whole number from {low} to {high}", default)
        if not low <= value <= high:
            raise InvalidInput(f"{self.path}: {self.name}{key} is {value}; allowed: from {low} to {high}")
        return value

    def flag(self, key: str, default: bool | None = None) -> bool:
        return bool(self.value(key, bool, default))

    def labels(self, key: str) -> tuple[str, ...]:
        """Names that are given as strings or whole numbers, as strings, each once; none if the key is absent."""
        value = self._take(key, list, "a list of strings or whole numbers", [])
        kinds = all(isinstance(each, (str, int)) and not isinstance(each, bool) for each in value)
        if not kinds or len({str(each) for each in value}) != len(value):
            raise InvalidInput(
                f"{self.path}: {self.name}{key} is {str(value)[:80]!r}; allowed: a list of strings or whole numbers, "
                "each once"
            )
        return tuple(str(each) for each in value)

    def texts(self, key: str, default: tuple[str, ...]) -> tuple[str, ...]:
        value = self._take(key, (list, tuple), "a list of strings", default)
        if not all(isinstance(each, str) for each in value):
            raise InvalidInput(f"{self.path}: {self.name}{key} is {str(value)[:80]!r}; allowed: a list of strings")
        return tuple(value)

    def names(self, key: str) -> dict[str, str]:
        table = self.table(key)
        return {each: table.text(each) for each in table.values}

    def table(self, key: str) -> TomlTable:
        return TomlTable(self.path, self._take(key, dict, "a table", {}), f"{self.name}{key}.")

    def tables(self, key: str) -> list[TomlTable]:
        """The tables [[key]], of which there is at least one."""
        values = self._take(key, list, f"at least one table [[{key}]]", [])
        if not values or not all(isinstance(each, dict) for each in values):
            raise InvalidInput(f"{self.path}: there is no table [[{self.name}{key}]]; allowed: at least one")
        return [
            TomlTable(self.path, each, f"{self.name}{key} {number}.") for number, each in enumerate(values, start=1)
        ]

    def done(self) -> None:
        """Refuses keys that were not read."""
        unknown = sorted(set(self.values) - self.seen)
        if unknown:
            raise InvalidInput(
                f"{self.path}: unknown key {(self.name + unknown[0])[:80]!r}; allowed: {', '.join(sorted(self.seen))}"
            )
