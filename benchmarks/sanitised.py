"""What releasing a data-dependent cost with Gaussian noise scaled to its smooth sensitivity (GNSS) would cost.

Papernot et al. 2018, Appendix B.2, release f + N(0, (sigma_ss SS)^2). Their cost of doing so is too small
in places; `corrected_cost` is the supremum over all pairs of neighbours, and the one that is charged here.
Derivation: benchmarks/smooth-sensitivity.md. Adversary: sees the released figure, and everything else that was
released; adjacency is replace-one, as for the smooth sensitivity.

Nothing is released here: parameters that are chosen from private votes are returned as a Private.

The best release of a data-dependent cost on given votes: order, beta and sigma_ss by the authors' objective.

Papernot et al. 2018 (Appendix B) chose theirs with the votes in view, and so does this: everything here is Private, and
nothing is released. A real release fixes its parameters beforehand (GnssParameters).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial

import numpy as np
from jaxtyping import Bool, Float64
from numpy import ndarray

from benchmarks.exact_accountants import check_few_weights, check_one_vote
from benchmarks.smooth import VoteSetting, critical_points, distance_bounds, gnmax_rdp, smooth_sensitivity
from protocols.bounds.rdp import check_orders, rdp_to_epsilon
from protocols.errors import InvalidInput
from protocols.mechanisms.confident_gnmax import ConfidentGNMax
from protocols.mechanisms.gnmax import GNMax
from protocols.research.data_dependent import (
    Circumstances,
    DataDependentAccountant,
    Figures,
    Least,
    QueryVotes,
    Units,
    gaussian_decision,
)
from protocols.research.private import Private

Number = float | int | Float64[ndarray, "..."]


def corrected_cost(*, order: Number, beta: Number, sigma_ss: Number) -> Float64[ndarray, "..."]:
    """RDP at `order` of one GNSS release: the supremum over neighbours, attained.

    a e^(-2 beta)/(2 sigma_ss^2 v) + (-beta a - ln(v)/2)/(a - 1), v = 1 - a (1 - e^(-2 beta)) > 0: two Gaussians whose
    scales differ by e^beta and whose means by the smaller scale over sigma_ss (Gil, Alajaji, Linder 2013). All
    arguments broadcast; order > 1, beta > 0, sigma_ss > 0. Raises InvalidInput where v <= 0: the cost is infinite.
    """
    a, b, sigma = _checked(order, beta, sigma_ss)
    v = _v(a, b)
    if (v <= 0).any():
        worst = int(v.argmin())
        limit = -np.log1p(-1 / a.ravel()[worst]) / 2
        raise InvalidInput(
            f"beta is {b.ravel()[worst]:g} at order {a.ravel()[worst]:g}, where a release has no finite cost; allowed: "
            f"v = 1 - order (1 - e^(-2 beta)) > 0, that is beta < {limit:g}"
        )
    return np.asarray(a * np.exp(-2 * b) / (2 * sigma**2 * v) + (-b * a - np.log(v) / 2) / (a - 1))


def understated_published_cost(*, order: Number, beta: Number, sigma_ss: Number) -> Float64[ndarray, "..."]:
    """The cost that Papernot et al. 2018, Theorem 23, states: too small for some parameters. Never charge it.

    a e^(2 beta)/sigma_ss^2 + (beta a - ln(1 - 2 a beta)/2)/(a - 1). Kept to reproduce their Table 2. Arguments as in
    `corrected_cost`. Raises InvalidInput unless 2 order beta < 1.
    """
    a, b, sigma = _checked(order, beta, sigma_ss)
    if (2 * a * b >= 1).any():
        raise InvalidInput(f"2 order beta is {(2 * a * b).max():g}; allowed: below 1")
    return np.asarray(a * np.exp(2 * b) / sigma**2 + (b * a - np.log1p(-2 * a * b) / 2) / (a - 1))


def best_sigma_ss(
    *, order: Number, beta: Number, sensitivity: Number, published: bool = False
) -> Float64[ndarray, "..."]:
    """sigma_ss that minimises the release's cost plus two standard deviations of its noise.

    The authors' objective: the upper end of a two-sigma interval of the sanitised figure. c/sigma_ss^2 + 2 SS sigma_ss
    is least at (c/SS)^(1/3), c being the factor of 1/sigma_ss^2 in the cost (corrected, or the published one).
    sensitivity: SS(beta) > 0. For a figure that is to be published, SS must come from public votes or a guess:
    a sigma_ss computed from the private votes is private itself. Raises InvalidInput as the costs do.
    """
    a, b, ss = _checked(order, beta, sensitivity, last="sensitivity")
    cost = understated_published_cost if published else corrected_cost
    cost(order=a, beta=b, sigma_ss=1.0)
    factor = a * np.exp(2 * b) if published else a * np.exp(-2 * b) / (2 * _v(a, b))
    return np.asarray((factor / ss) ** (1 / 3))


@dataclass(frozen=True, kw_only=True)
class GnssParameters:
    """The parameters of a release, fixed before anybody looks at the votes.

    beta: smoothness, > 0; sigma_ss: noise in units of SS, > 0; sigma_log: noise of ln SS in units of beta, > 0, if
    the standard deviation is to be released too, else None. Raises InvalidInput where the cost is not finite.
    """

    order: float | int
    beta: float | int
    sigma_ss: float | int
    sigma_log: float | int | None

    def __post_init__(self) -> None:
        corrected_cost(order=self.order, beta=self.beta, sigma_ss=self.sigma_ss)
        if self.sigma_log is not None and not (np.isfinite(self.sigma_log) and self.sigma_log > 0):
            raise InvalidInput(f"sigma_log is {self.sigma_log}; allowed: finite and > 0, or None")

    @property
    def cost(self) -> float:
        """RDP of the release: `corrected_cost`, and order/(2 sigma_log^2) for ln SS, which moves by at most beta."""
        figure = float(corrected_cost(order=self.order, beta=self.beta, sigma_ss=self.sigma_ss))
        return figure if self.sigma_log is None else figure + self.order / (2 * self.sigma_log**2)


def best_parameters(
    bounds: Private[Float64[ndarray, " distances"]],
    *,
    order: float | int,
    betas: Float64[ndarray, " betas"],
    published: bool = False,
) -> Private[GnssParameters]:
    """beta and sigma_ss that minimise cost + 2 SS sigma_ss over `betas`: for research, or from public pilot votes.

    bounds: of `distance_bounds`. Private, being chosen with full view of the votes (the authors say the same of
    theirs); a release takes parameters that were fixed beforehand. published: with the understated cost, as the
    authors chose theirs. Raises InvalidInput for a beta at which the cost is not finite.
    """
    cost = understated_published_cost if published else corrected_cost

    def choose(ss: Float64[ndarray, " betas"]) -> GnssParameters:
        sigma = best_sigma_ss(order=order, beta=betas, sensitivity=ss, published=published)
        best = int((cost(order=order, beta=betas, sigma_ss=sigma) + 2 * ss * sigma).argmin())
        return GnssParameters(order=order, beta=float(betas[best]), sigma_ss=float(sigma[best]), sigma_log=None)

    return smooth_sensitivity(bounds, beta=betas).map(choose)


def _v(a: Float64[ndarray, "..."], b: Float64[ndarray, "..."]) -> Float64[ndarray, "..."]:
    return np.asarray(1 + a * np.expm1(-2 * b))


def _checked(
    order: Number, beta: Number, scale: Number, *, last: str = "sigma_ss"
) -> tuple[Float64[ndarray, "..."], Float64[ndarray, "..."], Float64[ndarray, "..."]]:
    """The arguments as float64 arrays of one shape. Raises InvalidInput for a value out of range."""
    a, b, c = np.broadcast_arrays(*(np.asarray(value, dtype=np.float64) for value in (order, beta, scale)))
    check_orders(a.ravel())
    for name, value in (("beta", b), (last, c)):
        bad = value[~(np.isfinite(value) & (value > 0))]
        if bad.size:
            raise InvalidInput(f"{name} is {bad.ravel()[0]}; allowed: finite and > 0")
    return a, b, c


# Orders that are searched, and smoothness parameters (beta times order).
FIGURE_ORDERS = (3.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 17.0, 20.0, 25.0, 30.0)
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
        for order in FIGURE_ORDERS
    ]
    shapes = [critical_points(setting) for setting in every]
    held = [setting for setting, shape in zip(every, shapes, strict=True) if shape.c5 and shape.c6]
    if not held:
        raise InvalidInput(
            f"condition C5 or C6 (Papernot et al. 2018, Appendix B.4) fails at sigma {sigma:g} for a unit of "
            f"{sensitivity:g} votes at all orders from {FIGURE_ORDERS[0]:g} to {FIGURE_ORDERS[-1]:g}; allowed: more "
            "noise"
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


class SmoothSensitivity(DataDependentAccountant):
    """Papernot 2018 as it could be released: with noise scaled to its smooth sensitivity, at the corrected cost.

    Order, beta and sigma_ss are those of the least epsilon plus two standard deviations on these votes, as the authors
    chose theirs; a real release must fix them beforehand. Nothing is released here.
    """

    name = "smooth_sensitivity"
    statement = "papernot_2018_sanitised"
    source = "Papernot et al. 2018, Appendix B, with the corrected cost"
    units = "record, or party with one vote"
    mechanisms = (GNMax, ConfidentGNMax)

    def check(self, given: Circumstances) -> None:
        super().check(given)
        check_one_vote(self.name, given)
        if not given.everyone:
            raise InvalidInput(
                f"accountant {self.name!r} needs every party in every query; allowed: participation 'all', dropout 0"
            )
        check_few_weights(self.name, given.sensitivity)
        for s in np.unique(given.sensitivity).tolist():
            settings_that_hold(sigma=given.mechanism.label_sigma, sensitivity=s, cast=given.cast, classes=given.classes)

    def figures(self, evidence: QueryVotes, units: Units) -> Private[Figures]:
        distinct, at = np.unique(np.stack([units.sensitivity, units.delta]), axis=1, return_inverse=True)
        best = [
            best_release(
                evidence.counts,
                answered=evidence.answered,
                sigma=gaussian_decision(evidence).sigma,
                sigma_threshold=gaussian_decision(evidence).sigma_threshold,
                sensitivity=s,
                cast=units.cast,
                delta=delta,
            )
            for s, delta in distinct.T.tolist()
        ]

        def of_units(each: list[BestRelease]) -> Figures:
            releases = [each[position] for position in at.ravel()]
            epsilon, order, std = np.array([(one.epsilon, one.order, one.std) for one in releases]).T
            return Figures(happened=Least(epsilon, order), std=std, details=tuple(asdict(one) for one in releases))

        return Private.gather(best).map(of_units)
