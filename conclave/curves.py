"""delta(epsilon) of a planned number of queries, also as a privacy-loss distribution of dp_accounting."""

from __future__ import annotations

from typing import Any  # a type of dp_accounting, which is optional and has no stubs

import numpy as np

from conclave.arguments import check_whole
from protocols.budgets.accountant import accountant as accountant_of
from protocols.budgets.accountant import default_accountant
from protocols.budgets.privacy_curve import LARGEST, SPACING, PrivacyCurve, curve_of_queries
from protocols.errors import InvalidInput
from protocols.installing import install
from protocols.mechanisms import MECHANISMS, Sensitivity, check_view


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
    if not (np.isfinite(sensitivity) and sensitivity > 0):
        raise InvalidInput(f"sensitivity is {sensitivity}; allowed: a finite number of votes > 0")
    seen = check_view(view)
    made = MECHANISMS[mechanism].build(view=seen, given=noise)
    account = default_accountant(made, seen) if accountant is None else accountant_of(accountant)
    moved = Sensitivity.always(np.array([sensitivity], dtype=np.float64), delta_squared=made.squared_move(classes))
    curve = curve_of_queries(account, made, moved, queries=queries, view=seen, classes=classes)
    if curve.delta[-1] >= 1:
        raise InvalidInput(
            f"queries is {queries}; allowed: so few that at some epsilon up to {LARGEST:g} their delta is below 1"
        )
    return curve


def privacy_loss_distribution(curve: PrivacyCurve) -> Any:  # Any: see above
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
