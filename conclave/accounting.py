"""Accounting alone: what queries cost and what budgets afford, without votes, data or a study.

Every figure is data-independent, for adjacency replace-one. The protected unit enters as `sensitivity`: the votes that
it moves in a query (a record's one vote times its weight; a party's teachers together).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray
from numpy.typing import ArrayLike

from conclave.arguments import check_whole, numbers
from protocols.bounds.label_pairs import LabelPairs
from protocols.bounds.rdp import RdpCurve, check_delta
from protocols.budgets.accountant import ACCOUNTANTS, Accountant, default_accountant
from protocols.budgets.accountant import accountant as accountant_of
from protocols.budgets.filter import PlannedQueries, budget_filters
from protocols.errors import InvalidInput
from protocols.mechanisms import MECHANISMS, Mechanism, Sensitivity, View, check_view


@dataclass(frozen=True)
class _Cost:
    """The cost of a query, and the extra cost of answering it, at each order; [orders]."""

    accountant: Accountant
    ask: Float64[ndarray, " orders"]
    answer: Float64[ndarray, " orders"]
    pairs: LabelPairs | None


def rdp_curve(
    mechanism: str, *, view: str, sensitivity: float, classes: int, accountant: str | None = None, **noise: float
) -> RdpCurve:
    """The Renyi differential privacy of one answered query, as the accountant bounds it.

    mechanism: a name of `mechanisms()`, with its noise as keywords, in votes; view: "label" or "histogram";
    sensitivity: > 0, votes; accountant: a name of `accountants()`, by default label_only for labels, else the tightest.
    Curves add (`+`), are composed with themselves (`* queries`) and are converted with `to_epsilon(delta=...)`.

    Raises InvalidInput for a value out of range, and for an accountant that has no Renyi orders ("gaussian_dp").

    >>> import conclave
    >>> curve = conclave.rdp_curve("gnmax", sigma=40.0, view="label", sensitivity=1.0, classes=10)
    >>> epsilon, order = (curve * 1000).to_epsilon(delta=1e-5)
    >>> round(epsilon, 3), order
    (4.164, 5.8267)
    """
    cost = _cost(mechanism, view=view, sensitivity=sensitivity, classes=classes, name=accountant, noise=noise)
    if np.isnan(cost.accountant.orders).any():
        raise InvalidInput(f"accountant is {cost.accountant.name!r}, which has no Renyi orders; allowed: one that has")
    return RdpCurve(cost.accountant.orders, cost.ask + cost.answer)


def epsilon_after(
    queries: ArrayLike,
    mechanism: str,
    *,
    delta: float,
    view: str,
    sensitivity: float,
    classes: int,
    answered: ArrayLike | None = None,
    accountant: str | None = None,
    **noise: float,
) -> Float64[ndarray, "*shape"]:
    """epsilon at delta after this many queries, if the number was fixed in advance, in the shape of `queries`.

    answered: how many of them got a label, all of them by default; the others as `rdp_curve`. What a study guarantees
    when it may stop at any time is its cap, at one order chosen beforehand: see `plan`. Raises InvalidInput.

    >>> import conclave
    >>> conclave.epsilon_after([100, 1000], "gnmax", sigma=40.0, delta=1e-5, view="label", sensitivity=1.0,
    ...                        classes=10).round(3)
    array([1.161, 4.164])
    """
    asked = numbers("queries", queries)
    labels = asked if answered is None else numbers("answered", answered)
    if labels.shape not in ((), asked.shape):
        raise InvalidInput(
            f"answered has shape {labels.shape}; allowed: a number, or the shape of queries, {asked.shape}"
        )
    if np.ndim(delta):
        raise InvalidInput(f"delta has shape {np.shape(delta)}; allowed: a number")
    if not (np.isfinite(asked).all() and (labels >= 0).all() and (labels <= asked).all()):
        raise InvalidInput(f"queries are {asked} and answered {labels}; allowed: 0 <= answered <= queries")
    check_delta(numbers("delta", delta))
    cost = _cost(mechanism, view=view, sensitivity=sensitivity, classes=classes, name=accountant, noise=noise)
    spend = asked[..., None] * cost.ask + labels[..., None] * cost.answer
    orders = np.broadcast_to(cost.accountant.orders, spend.shape)
    if cost.pairs is not None:
        planned = PlannedQueries(cost.pairs, cost.ask[None, :], max(1, int(np.ceil(asked).max())))
        whole, same = np.ceil(asked).astype(np.int64).ravel(), np.zeros(asked.size, dtype=np.int64)
        return planned.of(same).epsilon(whole, np.full(asked.size, delta)).reshape(asked.shape)
    each = cost.accountant.to_epsilon(spend.ravel(), orders.ravel(), np.full(spend.size, delta))
    return each.reshape(spend.shape).min(axis=-1)


def queries_afforded(
    mechanism: str,
    *,
    epsilon: ArrayLike,
    delta: ArrayLike,
    view: str,
    sensitivity: ArrayLike,
    classes: int,
    total_weight: float,
    query_limit: int,
    answer_rate: float = 1.0,
    accountant: str | None = None,
    **noise: float,
) -> Int64[ndarray, "*shape"]:
    """How many queries, all answered, each budget affords, at most `query_limit`; as a study charges them.

    epsilon, delta and sensitivity: a number, or one per party; total_weight: of all votes together, and query_limit:
    the size of the pool, which both decide what is set aside of delta for rounded noise; answer_rate: in [0, 1], the
    share of answers for which each party's order is chosen; the others as `rdp_curve`. Raises InvalidInput.

    >>> import conclave
    >>> conclave.queries_afforded("gnmax", sigma=40.0, epsilon=[0.5, 1.0, 2.0], delta=1e-5, view="label",
    ...                           sensitivity=1.0, classes=10, total_weight=250.0, query_limit=10_000)
    array([ 20,  75, 270])
    """
    each = {"epsilon": epsilon, "delta": delta, "sensitivity": sensitivity}
    arrays = [numbers(name, value) for name, value in each.items()]
    try:
        given = np.broadcast_arrays(*arrays)
    except ValueError:
        shapes = ", ".join(str(array.shape) for array in arrays)
        raise InvalidInput(
            f"epsilon, delta and sensitivity have shapes {shapes}; allowed: numbers, or arrays of one shape"
        ) from None
    check_whole("query_limit", query_limit, least=1)
    if not (np.isfinite(total_weight) and total_weight > 0):
        raise InvalidInput(f"total_weight is {total_weight}; allowed: a finite number of votes > 0")
    seen, made, account = _parts(mechanism, view=view, name=accountant, noise=noise)
    filters = budget_filters(
        accountant=account,
        mechanism=made,
        sensitivity=Sensitivity.always(given[2].ravel(), delta_squared=made.squared_move(classes)),
        epsilon=given[0].ravel(),
        delta=given[1].ravel(),
        view=seen,
        classes=classes,
        query_limit=query_limit,
        total_weight=total_weight,
        answer_rate=answer_rate,
    )
    return filters.affordable(np.zeros(given[0].size, dtype=np.int64), limit=query_limit).reshape(given[0].shape)


def mechanisms() -> tuple[str, ...]:
    """The names of the mechanisms, plugins included.

    >>> import conclave
    >>> conclave.mechanisms()[:2]
    ('gnmax', 'thresholded_gnmax')
    """
    return tuple(MECHANISMS)


def accountants() -> tuple[str, ...]:
    """The names of the accountants that may charge a budget, plugins included.

    >>> import conclave
    >>> conclave.accountants()[:6]
    ('exact_composition', 'label_only', 'gaussian', 'gaussian_dp', 'laplace', 'renyi')
    """
    return tuple(ACCOUNTANTS)


def _parts(
    mechanism: str, *, view: str, name: str | None, noise: dict[str, float]
) -> tuple[View, Mechanism, Accountant]:
    seen = check_view(view)
    made = MECHANISMS[mechanism].build(view=seen, given=noise)
    account = default_accountant(made, seen) if name is None else accountant_of(name)
    account.check(made, seen)
    return seen, made, account


def _cost(
    mechanism: str, *, view: str, sensitivity: float, classes: int, name: str | None, noise: dict[str, float]
) -> _Cost:
    seen, made, account = _parts(mechanism, view=view, name=name, noise=noise)
    moved = Sensitivity.always(np.array([sensitivity], dtype=np.float64), delta_squared=made.squared_move(classes))
    cost = account.query_cost(made, moved, view=seen, classes=classes)
    pairs = account.pairs(made, moved, view=seen, classes=classes)
    return _Cost(account, cost.ask[0], cost.answer[0], pairs)
