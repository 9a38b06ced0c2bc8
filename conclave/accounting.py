"""Accounting alone: what queries cost and what budgets afford, without votes, data or a study; delta as a curve.

Every figure is data-independent, for adjacency replace-one. The protected unit enters as `sensitivity`: the votes that
it moves in a query (a record's one vote times its weight; a party's teachers together).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray
from numpy.typing import ArrayLike

from conclave.arguments import check_whole, numbers
from protocols.bounds.rdp import RdpCurve, check_delta, check_sensitivity
from protocols.budgets.accountant import ACCOUNTANTS, Accountant, default_accountant
from protocols.budgets.accountant import accountant as accountant_of
from protocols.budgets.filter import PlannedQueries, budget_filters
from protocols.budgets.privacy_curve import LARGEST, SPACING, PrivacyCurve, curve_of_queries
from protocols.errors import InvalidInput
from protocols.installing import install
from protocols.mechanisms import MECHANISMS, Mechanism, Sensitivity, View, check_view


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
    seen, made, account = charged_parts(mechanism, view=view, name=accountant, noise=noise)
    if np.isnan(account.orders).any():
        raise InvalidInput(f"accountant is {account.name!r}, which has no Renyi orders; allowed: one that has")
    cost = account.query_cost(made, one_unit(sensitivity, made, classes=classes), view=seen, classes=classes)
    return RdpCurve(account.orders, (cost.ask + cost.answer)[0])


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
    seen, made, account = charged_parts(mechanism, view=view, name=accountant, noise=noise)
    moved = one_unit(sensitivity, made, classes=classes)
    cost = account.query_cost(made, moved, view=seen, classes=classes)
    spend = asked[..., None] * cost.ask[0] + labels[..., None] * cost.answer[0]
    orders = np.broadcast_to(account.orders, spend.shape)
    if (pairs := account.pairs(made, moved, view=seen, classes=classes)) is not None:
        planned = PlannedQueries(pairs, cost.ask[:1], max(1, int(np.ceil(asked).max())))
        whole, same = np.ceil(asked).astype(np.int64).ravel(), np.zeros(asked.size, dtype=np.int64)
        return planned.of(same).epsilon(whole, np.full(asked.size, delta)).reshape(asked.shape)
    each = account.to_epsilon(spend.ravel(), orders.ravel(), np.full(spend.size, delta))
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
    check_whole("classes", classes, least=2)
    check_sensitivity(given[2].ravel())
    if not (np.isfinite(total_weight) and total_weight > 0):
        raise InvalidInput(f"total_weight is {total_weight}; allowed: a finite number of votes > 0")
    seen, made, account = charged_parts(mechanism, view=view, name=accountant, noise=noise)
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


def privacy_curve(
    mechanism: str,
    *,
    queries: int,
    view: str,
    sensitivity: float,
    classes: int,
    accountant: str | None = None,
    **noise: float,
) -> PrivacyCurve:
    """delta as a function of epsilon for a number of queries that was fixed beforehand, all answered.

    mechanism: a name of `mechanisms()`, with its noise as keywords, in votes; view: "label" or "histogram";
    sensitivity: > 0, the votes that a unit moves; accountant: a name of `accountants()`, by default the tightest for
    any number of votes. "exact_composition" is tighter, and proved only for a unit that moves one vote, of the weight
    `sensitivity`. Noise is ideal; a study sets delta aside for rounded noise. Raises InvalidInput.

    >>> import conclave
    >>> curve = conclave.privacy_curve("gnmax", queries=100, sigma=40.0, view="label", sensitivity=1.0, classes=2,
    ...                                accountant="exact_composition")
    >>> round(curve.epsilon_at(1e-5), 2)
    1.07
    """
    check_whole("queries", queries, least=1)
    seen, made, account = charged_parts(mechanism, view=view, name=accountant, noise=noise)
    moved = one_unit(sensitivity, made, classes=classes)
    curve = curve_of_queries(account, made, moved, queries=queries, view=seen, classes=classes)
    if curve.delta[-1] >= 1:
        raise InvalidInput(
            f"queries is {queries}; allowed: so few that at some epsilon up to {LARGEST:g} their delta is below 1"
        )
    return curve


def privacy_loss_distribution(curve: PrivacyCurve) -> Any:  # dp_accounting, which is optional, has no stubs
    """The curve as a `PrivacyLossDistribution` of dp_accounting, to be composed with others; it dominates the curve.

    Needs the package dp-accounting. Raises InvalidInput without it.

    >>> import conclave
    >>> curve = conclave.privacy_curve("gnmax", queries=100, sigma=40.0, view="label", sensitivity=1.0, classes=2)
    >>> loss = conclave.privacy_loss_distribution(curve)
    >>> abs(loss.get_epsilon_for_delta(1e-5) - curve.epsilon_at(1e-5)) < 1e-3
    True
    """
    try:
        from dp_accounting.pld import pld_pmf
        from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
    except ModuleNotFoundError as missing:
        raise InvalidInput(f"a privacy-loss distribution needs dp-accounting: {install('accounting')}") from missing
    masses, unbounded = curve.losses()
    return PrivacyLossDistribution(pld_pmf.create_pmf(masses, SPACING, unbounded, True))


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


def charged_parts(
    mechanism: str, *, view: str, name: str | None, noise: dict[str, float]
) -> tuple[View, Mechanism, Accountant]:
    """The view, the mechanism, and the accountant of this name, or the usual one. Raises InvalidInput."""
    seen = check_view(view)
    made = MECHANISMS[mechanism].build(view=seen, given=noise)
    account = default_accountant(made, seen) if name is None else accountant_of(name)
    account.check(made, seen)
    return seen, made, account


def one_unit(sensitivity: float, mechanism: Mechanism, *, classes: int) -> Sensitivity:
    """What one unit moves; sensitivity: > 0, in votes. Raises InvalidInput."""
    check_whole("classes", classes, least=2)
    moved = numbers("sensitivity", sensitivity).reshape(-1)
    if len(moved) != 1:
        raise InvalidInput(f"sensitivity is of {len(moved)} units; allowed: a number")
    check_sensitivity(moved)
    return Sensitivity.always(moved, delta_squared=mechanism.squared_move(classes))
