"""The meanings of codes, read from codes.toml: by section of docs/reference/errors.md, and of one code."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Flag, StrEnum, auto
from functools import cache, reduce
from importlib import resources
from operator import or_
from typing import Final

from protocols.refusals.code import Code


class Reader(Flag):
    """In whose log, terminal or release a code appears; possibly several."""

    COMMAND = auto()
    NODE = auto()
    OPERATOR = auto()
    GUARDIAN = auto()
    ASKER = auto()
    RELEASE = auto()

    @property
    def words(self) -> str:
        """The readers in words, in the order of the class, separated by commas."""
        return ", ".join(_WORDS[each] for each in self)


_WORDS: Final = {
    Reader.COMMAND: "who runs the command",
    Reader.NODE: "the hospital",
    Reader.OPERATOR: "the operator",
    Reader.GUARDIAN: "the guardian",
    Reader.ASKER: "the hospital that asks",
    Reader.RELEASE: "readers of the release",
}


class Cost(StrEnum):
    """What an error cost the budgets of those concerned."""

    NOTHING = "nothing"
    STANDS = "nothing new; what was reserved stands"
    UNDERCOUNTED = "more than the ledger says"
    OVERCHARGED = "more than it had to; the charge stands"
    UNKNOWN = "unknown: the ledger cannot be believed"


@dataclass(frozen=True)
class Meaning:
    """What a code means, in a sentence; next_step: what to do; seen_by: in whose log or terminal it appears."""

    means: str
    next_step: str
    seen_by: Reader
    cost: Cost


@cache
def sections() -> Mapping[str, Mapping[Code, Meaning]]:
    """The meaning of every code, by section."""
    table = tomllib.loads(resources.files("protocols.refusals").joinpath("codes.toml").read_text(encoding="utf-8"))
    return {
        section: {
            Code(code): Meaning(
                said["means"],
                said["next_step"],
                reduce(or_, (Reader[name.upper()] for name in said["seen_by"])),
                Cost[said.get("cost", "nothing").upper()],
            )
            for code, said in codes.items()
        }
        for section, codes in table.items()
    }


@cache
def _meanings() -> Mapping[Code, Meaning]:
    return {code: meaning for section in sections().values() for code, meaning in section.items()}


def meaning_of(code: str) -> Meaning:
    """The meaning of a code; for an unknown code of other software, that of any refusal."""
    return _meanings()[Code(code) if code in _meanings() else Code.REFUSED]
