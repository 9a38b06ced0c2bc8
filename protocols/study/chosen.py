"""Which queries a study asks first: as its pool has them, or chosen between batches by the labels so far."""

from __future__ import annotations

from typing import Final

from protocols.errors import InvalidInput

GIVEN: Final = "given"
UNCERTAINTY: Final = "uncertainty"
QUESTIONS: Final = (GIVEN, UNCERTAINTY)
# What people are told who approve a study whose queries are chosen.
CHOSEN: Final = "which come first is chosen by the labels released before, and costs nothing more"


def check_questions(questions: str, *, hidden: bool, two_rounds: str | None, pattern: str) -> None:
    """Raises InvalidInput for another name, and where a choice between batches has nothing to go by.

    hidden: whether the coordinator does not see the queries; two_rounds: the mechanism, if it is interactive; pattern:
    of participation.
    """
    if questions not in QUESTIONS:
        raise InvalidInput(f"questions is {questions!r}; allowed: {', '.join(QUESTIONS)}")
    if questions == GIVEN:
        return
    for fault, why in (
        (hidden, "the coordinator sees neither queries nor labels"),
        (two_rounds is not None, f"{two_rounds} splits the pool's order into two rounds"),
        (pattern == "periodic", "participation 'periodic' follows the pool's order"),
    ):
        if fault:
            raise InvalidInput(f"questions is {questions!r}, but {why}; allowed: {GIVEN!r}")
