"""Numbers with their nouns: 1 batch, 2 batches."""

from __future__ import annotations

from collections.abc import Mapping
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
