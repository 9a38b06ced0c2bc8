"""The meaning of a code, what to do next, who sees it, and what it cost."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Flag, StrEnum, auto
from typing import Final


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
COMMAND, NODE, OPERATOR, GUARDIAN, ASKER, RELEASE = Reader
BOTH: Final = NODE | OPERATOR
# What a node refuses: also the hospital that asks sees it, where the operator relayed its request.
ANSWERED: Final = NODE | OPERATOR | ASKER


class Cost(StrEnum):
    """What an error cost the budgets of those concerned."""

    NOTHING = "nothing"
    STANDS = "nothing new; what was reserved stands"
    UNDERCOUNTED = "more than the ledger says"
    OVERCHARGED = "more than it had to; the charge stands"
    UNKNOWN = "unknown: the ledger cannot be believed"


@dataclass(frozen=True)
class Meaning:
    """What a code means, in a sentence; next_step: what to do; seen_by: in whose log, terminal or release it
    appears.
    """

    means: str
    next_step: str
    seen_by: Reader
    cost: Cost = Cost.NOTHING
