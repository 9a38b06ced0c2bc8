"""Settings that somebody gives by name, of the kind and in the range that a field is annotated with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import ge, gt, le, lt
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin  # Any: of a setting's own kind

from protocols.errors import InvalidInput
from protocols.mechanisms import mechanism_parameters

_KINDS: Mapping[type, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
_TESTS: Mapping[str, tuple[Callable[[float, float], bool], str]] = {
    ">=": (ge, "greater than or equal to"), ">": (gt, "greater than"), "<=": (le, "less than or equal to"),
    "<": (lt, "less than"),
}  # fmt: skip


def read_settings(
    given: Mapping[str, object], known: Iterable[str], read: Callable[[str, object], Any]
) -> dict[str, Any]:
    """What was given, of the known settings and the parameters of mechanisms (None: not given), each as `read` reads
    it. Raises InvalidInput for another name, and for a value out of range."""
    taken, names = mechanism_parameters(), tuple(known)
    if clash := next((name for name in taken if name in names), None):
        raise InvalidInput(
            f"mechanism {taken[clash][0][0]!r} has a parameter {clash!r}; allowed: a name that no setting has"
        )
    for name in given:
        if name not in names and name not in taken:
            raise InvalidInput(f"unknown setting {name!r}; allowed: {', '.join([*names, *taken])}")
    return {name: read(name, value) for name, value in given.items() if value is not None or name in names}


def read_setting(name: str, value: object, hint: Any) -> Any:  # of the setting's kind, which is the hint
    """The value of one setting of this kind; numbers and flags may be text. Raises InvalidInput for one out of
    range."""
    kind, *tests = (*get_args(hint),) if get_origin(hint) is Annotated else (hint,)
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    if value is None and NoneType in kinds:
        return None
    for each in sorted(kinds, key=lambda each: type(value) is not each):
        try:
            found = _as(each, value)
        except (TypeError, ValueError, LookupError):
            continue
        if all(_TESTS[sign][0](found, bound) for sign, bound in tests):
            return found
    bounds = " and ".join(f"{_TESTS[sign][1]} {bound}" for sign, bound in tests)
    words = " or ".join(_words(each) for each in kinds if each is not NoneType)
    raise InvalidInput(f"{name} is {value!r}; allowed: {bounds or words}")


def _as(kind: Any, value: Any) -> Any:  # kind: a type, or a form of typing; value: what a file or a person gives
    """The value as one of this kind. Raises TypeError, ValueError or LookupError."""
    if get_origin(kind) is type:
        return _by_name(kind)[getattr(value, "by", value)]
    if get_origin(kind) is tuple and isinstance(value, tuple | list) and value:
        found = tuple(_as(int, each) for each in value)
        if min(found) >= 0:
            return found
    if (get_origin(kind) is Literal and value in get_args(kind)) or (kind is str and isinstance(value, str)):
        return value
    if kind is bool:
        return {"true": True, "false": False}[str(value).lower()]
    if kind in (int, float) and not isinstance(value, bool):
        number = kind(value)
        if isinstance(value, str) or number == value:
            return number
    raise ValueError


def _words(kind: Any) -> str:  # a type, or a form of typing
    if get_origin(kind) is type:
        return " or ".join(map(repr, _by_name(kind)))
    if get_origin(kind) is Literal:
        return " or ".join(repr(each) for each in get_args(kind))
    return _KINDS.get(kind, "whole numbers of at least 0")


def _by_name(kind: Any) -> dict[str, type]:  # a form of typing
    """The types of type[A | B], each by the name that it has in files."""
    return {each.by: each for each in get_args(*get_args(kind))}
