"""Parts by name: those that come with Conclave, and those that other installed distributions register.

A distribution registers a part as an entry point of a group such as `conclave.mechanisms` (the specification of entry
points: https://packaging.python.org/specifications/entry-points). Its code is imported when the part is first used; a
broken plugin is named then, and does not affect anything else. A plugin never takes the name of a built-in part.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, lru_cache
from importlib.metadata import EntryPoint, entry_points
from pkgutil import resolve_name
from typing import Any, TypeVar  # Any: a table of functions says itself what they are

from protocols.errors import InvalidInput

T = TypeVar("T")

_NAME = re.compile(r"[a-z][a-z0-9_]*")


@lru_cache(maxsize=1)
def _registered(path: tuple[str, ...]) -> Any:  # Any: its type is another one in Python 3.12
    """All entry points of what is installed on this path: a program reads them once for all tables."""
    return entry_points()


class Parts(Mapping[str, T]):
    """A table of parts. Iterating gives the names, built-in ones first, and imports nothing; [name] imports one."""

    def __init__(
        self,
        what: str,
        built_in: Mapping[str, T | str],
        *,
        group: str,
        check: Callable[[str, object], T],
        reserved: tuple[str, ...] = (),
    ) -> None:
        """what: one part, in a word; built_in: the part itself, or "module:name" to import it when it is used;
        group: of the entry points; check(name, loaded): the part, or InvalidInput where it is none; reserved: names
        that mean something else."""
        self.what, self.group = what, group
        self._built_in, self._check, self._reserved = dict(built_in), check, reserved

    @cached_property
    def _plugins(self) -> dict[str, list[EntryPoint]]:
        found: dict[str, list[EntryPoint]] = {}
        registered = _registered(tuple(sys.path)).select(group=self.group)
        for entry in sorted(registered, key=lambda entry: (entry.name, entry.value)):
            if entry.name in self._built_in or entry.name in self._reserved or not _NAME.fullmatch(entry.name):
                warnings.warn(
                    f"{_source(entry)} registers a {self.what} {entry.name!r}, which is left out; allowed: a name of "
                    "a-z, 0-9 and _ that is not taken",
                    RuntimeWarning,
                    stacklevel=2,
                )
            else:
                found.setdefault(entry.name, []).append(entry)
        return found

    @cached_property
    def _loaded(self) -> dict[str, T]:
        return {}

    def __iter__(self) -> Iterator[str]:
        return iter([*self._built_in, *self._plugins])

    def __len__(self) -> int:
        return len(self._built_in) + len(self._plugins)

    def __contains__(self, name: object) -> bool:
        return name in self._built_in or name in self._plugins

    def __getitem__(self, name: str) -> T:
        """The part of that name. Raises InvalidInput for an unknown name, and for a plugin that cannot be loaded."""
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def module_of(self, name: str) -> str:
        """The module of the part of that name, which is not imported if it is a built-in one. Raises InvalidInput."""
        part = self._built_in.get(name)
        return part.partition(":")[0] if isinstance(part, str) else str(self[name].__module__)

    @property
    def own(self) -> tuple[str, ...]:
        """The names of the parts of Conclave itself."""
        return tuple(self._built_in)

    @property
    def added(self) -> tuple[str, ...]:
        """The names of the parts that other distributions register."""
        return tuple(self._plugins)

    def loadable(self) -> dict[str, T]:
        """All parts that can be loaded, by name: without the plugins that are broken."""
        parts: dict[str, T] = {}
        for name in self:
            try:
                parts[name] = self[name]
            except InvalidInput:
                continue
        return parts

    def _load(self, name: str) -> T:
        if name in self._built_in:
            part = self._built_in[name]
            return self._check(name, resolve_name(part)) if isinstance(part, str) else part
        if name not in self._plugins:
            raise InvalidInput(f"{self.what} is {name!r}; allowed: {', '.join(self)}")
        entry, *others = self._plugins[name]
        if others:
            sources = " and ".join(_source(each) for each in (entry, *others))
            raise InvalidInput(f"{self.what} {name!r} is registered by {sources}; allowed: one of them, uninstall one")
        try:
            return self._check(name, entry.load())
        except Exception as error:  # importing a plugin runs its own code, which may raise anything
            raise InvalidInput(
                f"{self.what} {name!r}, which {_source(entry)} registers as {entry.value}, cannot be loaded: "
                f"{type(error).__name__}: {error}; allowed: repair or uninstall that plugin, or use one of "
                f"{', '.join(self._built_in)}"
            ) from error


def function_of(words: str) -> Callable[[str, object], Callable[..., Any]]:
    """The check of a table of functions. words: what they take and return."""

    def check(name: str, loaded: object) -> Callable[..., Any]:
        if not callable(loaded):
            raise InvalidInput(f"it is {loaded!r}; allowed: a function of {words}")
        return loaded

    return check


def _source(entry: EntryPoint) -> str:
    return f"the distribution {entry.dist.name}" if entry.dist else "an installed distribution"
