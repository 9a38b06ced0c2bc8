"""When two names mean one: of a data set, of a patient; and which records are of one unit under the mapping's rules.

A name keeps its place: `places` numbers names as they are written, and a rule joins a unit's names at the first one's
place. So whether two names are alike changes no other unit's teacher (docs/decisions/0048).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

# Not seen, and of no category of their own: joiners, fillers and variation selectors.
_UNSEEN: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0") | {chr(0xFE00 + each) for each in range(16)}
_NUMBER: Final = re.compile(r"\+?0*(\d+?)(?:[.,]0*)?", re.ASCII)


def folded(text: str) -> str:
    """A name without what a reader does not see or mean: NFKC, case, characters without width, blanks at the ends and
    repeated ones."""
    plain = unicodedata.normalize("NFKC", _seen(unicodedata.normalize("NFKC", _seen(text)).casefold()))
    return " ".join(plain.split())


def _seen(text: str) -> str:
    return "".join(each for each in text if each not in _UNSEEN and unicodedata.category(each) != "Cf")


def folded_patient(text: str) -> str:
    """As folded, without any blank."""
    return folded(text).replace(" ", "")


def folded_number(text: str) -> str:
    """As folded_patient; a whole number also without zeros before it and decimals of zero: 007 and 7.0 are 7."""
    plain = folded_patient(text)
    number = _NUMBER.fullmatch(plain)
    return number[1] if number else plain


# How a mapping file may compare patients' names.
RULES: Final[Mapping[str, Callable[[str], str]]] = {
    "exact": lambda text: text,
    "folded": folded_patient,
    "number": folded_number,
}


def places(names: Sequence[Hashable] | None, records: int) -> Int64[ndarray, " records"]:
    """The place of each record's name, numbered from 0 in order of first appearance; None: each record has its own."""
    if names is None:
        return np.arange(records)
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(name, len(numbers)) for name in names], np.int64)


def joined(at: Int64[ndarray, " records"], keys: Iterable[Hashable]) -> Int64[ndarray, " records"]:
    """The first of the places of all records with the same key. at: the place of each record."""
    first: dict[Hashable, int] = {}
    return np.array([first.setdefault(key, int(place)) for place, key in zip(at, keys, strict=True)], np.int64)
