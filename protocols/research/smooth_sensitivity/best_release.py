"""The best release of a data-dependent cost on given votes: order, beta and sigma_ss by the authors' objective.

Papernot et al. 2018 (Appendix B) chose theirs with the votes in view, and so does this: everything here is Private, and
nothing is released. A real release fixes its parameters beforehand (gnss.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from jaxtyping import Bool, Float64
from numpy import ndarray

from protocols.bounds.rdp import rdp_to_epsilon
from protocols.errors import InvalidInput
from protocols.research.published.private import Private
from protocols.research.smooth_sensitivity.gnss import GnssParameters, best_parameters, understated_published_cost
from protocols.research.smooth_sensitivity.smooth_sensitivity import (
    VoteSetting,
    critical_points,
    distance_bounds,
    gnmax_rdp,
    smooth_sensitivity,
)

# Orders that are searched, and smoothness parameters (beta times order).
ORDERS = (3.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 17.0, 20.0, 25.0, 30.0)
SMOOTHNESS = np.linspace(0.02, 0.46, 23)


@dataclass(frozen=True, kw_only=True)
class BestRelease:
    """One release: epsilon at the mean of the released RDP, and how it came about.

    std: standard deviation of the released RDP, and so of epsilon; sensitivity: smooth sensitivity at beta; costs: RDP
    of the release itself, corrected (which epsilon includes) and as published.
    """

    epsilon: float
    std: float
    order: float
    beta: float
    sigma_ss: float
    sensitivity: float
    corrected_cost: float
    published_cost: float

    @property
    def objective(self) -> float:
        """The upper end of the released figure's interval of two standard deviations."""
        return self.epsilon + 2 * self.std


def settings_that_hold(
    *, sigma: float, sensitivity: float, cast: Float64[ndarray, " votes"], classes: int
) -> list[VoteSetting]:
    """The settings, one per order, at which conditions C5 and C6 hold, whatever the votes.

    sigma: of the label's noise, votes; sensitivity: of the unit, votes; cast: the weight of each vote that may be cast.
    Raises InvalidInput without any.
    """
    every = [
        VoteSetting(sigma=sigma, order=order, classes=classes, weights=cast, sensitivity=sensitivity)
        for order in ORDERS
    ]
    shapes = [critical_points(setting) for setting in every]
    held = [setting for setting, shape in zip(every, shapes, strict=True) if shape.c5 and shape.c6]
    if not held:
        raise InvalidInput(
            f"condition C5 or C6 (Papernot et al. 2018, Appendix B.4) fails at sigma {sigma:g} for a unit of "
            f"{sensitivity:g} votes at all orders from {ORDERS[0]:g} to {ORDERS[-1]:g}; allowed: more noise"
        )
    return held


def best_release(
    counts: Float64[ndarray, "queries classes"],
    *,
    answered: Bool[ndarray, " queries"],
    sigma: float,
    sigma_threshold: float | None,
    sensitivity: float,
    cast: Float64[ndarray, " votes"],
    delta: float,
) -> Private[BestRelease]:
    """The release with the least epsilon plus two standard deviations, threshold tests at their worst case.

    counts: weighted votes of every query that was asked; sigma_threshold: None without a threshold. The other arguments
    as in `settings_that_hold`; raises InvalidInput as that does.
    """
    found = []
    for setting in settings_that_hold(sigma=sigma, sensitivity=sensitivity, cast=cast, classes=counts.shape[1]):
        order, weight = float(setting.order), answered.astype(np.float64)
        # Every query that was asked is tested, answered or not: a s^2/(2 sigma1^2) each.
        tests = 0.0 if sigma_threshold is None else len(answered) * order * (sensitivity / sigma_threshold) ** 2 / 2
        bounds = distance_bounds(counts, setting, answered=weight)
        rdp = gnmax_rdp(counts, setting, answered=weight).map(partial(np.add, tests))
        given = best_parameters(bounds, order=order, betas=SMOOTHNESS / order)
        parts = given.join(given.then(partial(_sensitivity, bounds)), lambda one, ss: (one, float(ss[0])))
        found.append(parts.join(rdp, partial(_release, delta)))
    return Private.gather(found).map(lambda each: min(each, key=lambda release: release.objective))


def _sensitivity(
    bounds: Private[Float64[ndarray, " distances"]], given: GnssParameters
) -> Private[Float64[ndarray, " betas"]]:
    return smooth_sensitivity(bounds, beta=given.beta)


def _release(delta: float, parts: tuple[GnssParameters, float], rdp: float) -> BestRelease:
    """One release; parts: its parameters, and the smooth sensitivity at their beta; rdp: without the release's cost."""
    given, ss = parts
    total, order = np.array([rdp + given.cost]), float(given.order)
    published = understated_published_cost(order=order, beta=given.beta, sigma_ss=given.sigma_ss)
    return BestRelease(
        epsilon=float(rdp_to_epsilon(total, np.array([order]), delta=delta)[0]),
        std=float(given.sigma_ss * ss),
        order=order,
        beta=float(given.beta),
        sigma_ss=float(given.sigma_ss),
        sensitivity=ss,
        corrected_cost=given.cost,
        published_cost=float(published),
    )
