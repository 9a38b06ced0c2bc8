"""How numbers are written: with their nouns (1 batch, 2 batches), and as bounds, rounded to the side that is true."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from math import ceil, floor, inf, log10
from typing import Final

_IRREGULAR: Final[Mapping[str, str]] = {
    "batch": "batches",
    "study": "studies",
    "query": "queries",
    "entry": "entries",
    "party": "parties",
    "class": "classes",
}


def counted(number: int, noun: str) -> str:
    """The number and its noun; noun: in the singular, which stays for one alone."""
    before, space, last = noun.rpartition(" ")
    return f"{number} {before}{space}{last if number == 1 else _IRREGULAR.get(last, f'{last}s')}"


# Names in one line; the rest is counted.
_MOST_NAMED: Final = 8


def some(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


# A figure that float64 has already rounded is not moved by a digit.
_DUST: Final = 1e-9


def at_most(value: float) -> str:
    """An upper bound such as an epsilon or a delta, rounded up: whole from 100 on, to three digits after the point, and
    below 0.001 to three digits in all. Infinity, a bound that nothing guarantees, is "none". value: at least 0.
    """
    return "none" if value == inf else _rounded(value, 1 - _DUST, ceil)


def at_least(value: float) -> str:
    """A lower bound, written as an upper one is, but rounded down. value: at least 0, and finite."""
    return _rounded(value, 1 + _DUST, floor)


def _rounded(value: float, dust: float, whole: Callable[[float], int]) -> str:
    if value >= 100:
        return str(whole(value * dust))
    digits = 3 if value >= 0.001 or value == 0 else 2 - floor(log10(value * dust))
    shown = whole(value * dust * 10**digits) / 10**digits
    return f"{shown:.3g}" if digits > 3 else f"{shown:.3f}".rstrip("0").rstrip(".")


def utc(seconds: float) -> str:
    """A moment, in seconds since 1970, for people."""
    return f"{datetime.datetime.fromtimestamp(seconds, datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"
