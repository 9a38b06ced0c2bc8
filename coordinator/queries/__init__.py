"""Features and queries that are fitted to a public pool, or drawn from constants, and the orders in which teachers are
asked, by name; nothing here imports NumPy or scikit-learn until an order is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final  # Any: an array, as importing NumPy takes time

from protocols.errors import InvalidInput
from protocols.plugins import Parts, function_of
from protocols.study.chosen import GIVEN, UNCERTAINTY

if TYPE_CHECKING:
    from jaxtyping import Float32
    from numpy import ndarray

    from protocols.labelling.questions import Choose
    from protocols.study.terms import Feature

# To add an order of questions: one file and one line, or a plugin (docs/how-to/add-a-part.md).
POOL_ORDERS: Final[Parts[Callable[..., Any]]] = Parts(
    "order of questions",
    {
        "coverage": "coordinator.queries.questions:most_covering",
        "centres": "coordinator.queries.questions:centres_first",
    },
    group="conclave.questions",
    check=function_of("`features`, `number` and `seed` that returns positions of the pool"),
    reserved=(GIVEN, UNCERTAINTY),
)
# Queries of a batch that are chosen together, unless a number is given.
USUAL_BATCH: Final = 20
_MEANT: Final = {"coverage": "coverage (typical ones)", "centres": "centres:N (of N clusters)"}
ORDERS_HELP: Final = " | ".join(["given (as the pool has them)", *(_MEANT.get(name, name) for name in POOL_ORDERS)])
QUESTIONS_HELP: Final = (
    f"{ORDERS_HELP} | uncertainty:N (those that a student of the labels so far doubts, N at a time; {USUAL_BATCH} "
    "without a number)"
)


def parse_questions(named: str) -> tuple[str, int | None]:
    """The name of an order, GIVEN or UNCERTAINTY, and the number behind its colon. Raises InvalidInput for another
    name, and for a number that is none."""
    kind, colon, number = named.partition(":")
    if kind not in (GIVEN, UNCERTAINTY, *POOL_ORDERS) or (
        colon and (kind == GIVEN or not (number.isascii() and number.isdecimal()))
    ):
        allowed = f"{GIVEN}, {', '.join(POOL_ORDERS)}, {UNCERTAINTY}; with a number: NAME:N"
        raise InvalidInput(f"questions is {named[:80]!r}; allowed: {allowed}")
    return kind, int(number) if colon else None


def questions_of_a_batch(named: str) -> int | None:
    """How many queries are chosen together, between batches; None where the order is fixed before the first.

    Raises InvalidInput as parse_questions does, and for a batch of none.
    """
    kind, number = parse_questions(named)
    if kind != UNCERTAINTY:
        return None
    if number == 0:
        raise InvalidInput(f"questions is {named!r}; allowed: {UNCERTAINTY}:N with N from 1")
    return USUAL_BATCH if number is None else number


def choice_between_batches(
    questions: str,
    pool: Float32[ndarray, "pool ..."],
    *,
    columns: Sequence[Feature] = (),
    features: str = "auto",
    seed: int = 0,
) -> Choose | None:
    """What chooses the next batch's queries from the public pool; None where their order is fixed before the first.

    columns, features: see features_for. The same on every call. Queries of batches that were asked are in the ledger,
    so nothing depends on it after a restart but what comes next. Raises InvalidInput where no features fit the pool, or
    without scikit-learn.
    """
    if questions_of_a_batch(questions) is None:
        return None
    from coordinator.queries.questions import by_uncertainty  # scikit-learn, which few coordinators need

    return by_uncertainty(pool, columns=columns, features=features, seed=seed)
