"""When a study ends: what happens to parties whose budget is used up."""

from __future__ import annotations

from typing import Literal

from protocols.errors import InvalidInput

StopRule = Literal["first-exhausted", "drop-exhausted"]
STOP_RULES: tuple[StopRule, ...] = ("first-exhausted", "drop-exhausted")


def check_stop(stop: str) -> StopRule:
    """Returns `stop` if it is a rule. Raises InvalidInput otherwise."""
    for known in STOP_RULES:
        if stop == known:
            return known
    raise InvalidInput(f"stop is {stop!r}; allowed: {', '.join(STOP_RULES)}")
