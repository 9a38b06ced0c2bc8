"""GNMax: the argmax of the histogram plus independent Gaussian noise (Papernot et al. 2018, section 4.1)."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import sqrt
from typing import ClassVar

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.bounds import label_only
from protocols.bounds.distributed_noise import distributed_gaussian_rdp
from protocols.bounds.label_pairs import LabelPairs, PairKind
from protocols.bounds.lattice_gaussian import lattice_mu_squared, rounding_distance
from protocols.bounds.lattice_label_only import lattice_label_pairs, lattice_label_rdp
from protocols.bounds.lattice_sampling import sampled_lattice_histogram_rdp, sampled_lattice_label_rdp
from protocols.bounds.secret_sampling import sampled_label_gaussian_rdp
from protocols.errors import InvalidInput
from protocols.mechanisms.gaussian_mechanism import GaussianMechanism
from protocols.mechanisms.mechanism import Lattice, QueryCost, Sensitivity
from protocols.mechanisms.parameter import View, parameter
from protocols.noise import Noise, check_sigma, float_noise_distance, gaussian, lattice_noise_distance
from protocols.votes import LATTICE

# Papernot et al. 2018, Table 1, MNIST with 250 teachers: sigma2 = 40, so 0.16 a vote.
SIGMA = parameter("the standard deviation of the label noise, in votes", unit="votes", role="noise", default=0.16)


class NoisyHistogram(GaussianMechanism):
    """What is released is a function of one noisy histogram, the only noise: a query has one price, answered or not."""

    def noisy(
        self, counts: Float64[ndarray, "queries classes"], noise: Noise, *, view: View
    ) -> Float64[ndarray, "queries classes"]:
        return noisy_histogram(counts, noise, sigma=self.sigma, view=view)

    def noise_rdp(self, sensitivity: Sensitivity, orders: Float64[ndarray, " orders"], *, view: View) -> QueryCost:
        cost = histogram_rdp(sensitivity, orders, sigma=self.sigma, lattice=self.lattice)
        return QueryCost(cost, np.zeros_like(cost))

    def gaussian_dp(self, sensitivity: Sensitivity, *, view: View) -> QueryCost:
        cost = histogram_mu_squared(sensitivity, sigma=self.sigma, lattice=self.lattice)
        return QueryCost(cost, np.zeros_like(cost))

    def noise_distance(self, *, classes: int, total_weight: float) -> float:
        if self.lattice is not None:
            return integer_noise_distance(self.lattice, draws=2 * classes)
        return float_noise_distance(sigma=self.sigma, classes=classes, total_weight=total_weight)


class OneHistogram(NoisyHistogram):
    """One label of it: of labels alone, a number of queries that is fixed beforehand is composed exactly."""

    @classmethod
    def accountants(cls, *, view: View, on_lattice: bool, secret_coins: bool) -> tuple[str, ...]:
        known = super().accountants(view=view, on_lattice=on_lattice, secret_coins=secret_coins)
        return ("exact_composition", *known) if view == "label" and not secret_coins else known


@dataclass(frozen=True, kw_only=True)
class GNMax(OneHistogram):
    """argmax(n + N(0, sigma^2) drawn independently per class); every query is answered.

    sigma: standard deviation in votes, > 0. (Individualized PATE says "the same noise in each dimension": that
    would cancel in the argmax.) lattice: of integer noise, None for real-valued noise.
    """

    sigma: float = field(metadata=SIGMA)
    lattice: Lattice | None = None
    name: ClassVar[str] = "gnmax"
    title: ClassVar[str] = "GNMax"
    one_histogram: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_sigma("sigma", self.sigma)

    def label_only_rdp(
        self, sensitivity: Sensitivity, orders: Float64[ndarray, " orders"], *, classes: int
    ) -> QueryCost:
        cost = noisy_argmax_rdp(sensitivity, orders, sigma=self.sigma, classes=classes, lattice=self.lattice)
        return QueryCost(cost, np.zeros_like(cost))

    def label_pairs(self, sensitivity: Sensitivity, *, classes: int) -> LabelPairs:
        return label_pairs(sensitivity, sigma=self.sigma, classes=classes, lattice=self.lattice)

    def released_words(self, *, total_weight: float) -> str:
        return f"GNMax: the class with the most noisy votes; {sigma_words(self.sigma)}"


def sigma_words(sigma: float) -> str:
    """The noise on each count, for the words of every mechanism with Gaussian noise."""
    return f"label noise σ = {sigma:g} votes on each class"


def noisy_histogram(
    counts: Float64[ndarray, "queries classes"], noise: Noise, *, sigma: float, view: View
) -> Float64[ndarray, "queries classes"]:
    """counts + sigma N(0, 1) per cell; rounded to the lattice if the histogram itself is seen.

    Rounding a Gaussian on votes that lie on the lattice is post-processing, so the Gaussian-DP cost is unchanged.
    Integer noise lies on a coarser lattice, and is not rounded.
    """
    noisy = counts + gaussian(noise, counts.shape, sigma=sigma)
    return np.rint(noisy * LATTICE) / LATTICE if view == "histogram" else noisy


def histogram_rdp(
    sensitivity: Sensitivity, orders: Float64[ndarray, " orders"], *, sigma: float, lattice: Lattice | None
) -> Float64[ndarray, "units orders"]:
    """a Delta^2 s^2/(2 sigma^2): the Gaussian mechanism with L2 sensitivity Delta s (Mironov 2017, Prop. 7).

    The same for discrete Gaussians (Canonne, Kamath, Steinke 2020, Thm 4); for a sum of several of them, see
    distributed_noise.py. Less for a vote that enters by a secret coin (secret_sampling.py, lattice_sampling.py); in a
    sum of several parties' noise it is charged as if it always entered, which bounds it (quasi-convexity).
    """
    if lattice is not None and lattice.shares > 1:
        return distributed_gaussian_rdp(
            whole_units(sensitivity, lattice),
            orders,
            share_sigma=sigma * lattice.units / sqrt(lattice.shares),
            honest=lattice.shares,
            squared_move=sensitivity.delta_squared,
            dimension=lattice.classes,
        )
    if sensitivity.sampled:
        d = sensitivity.class_votes / sigma
        if lattice is None:
            return sampled_label_gaussian_rdp(d, sensitivity.rate, orders)
        units = whole_units(sensitivity, lattice)
        return sampled_lattice_histogram_rdp(units, sensitivity.rate, orders, sigma_units=sigma * lattice.units)
    return orders[None, :] * (sensitivity.delta_squared / 2) * (sensitivity.votes[:, None] / sigma) ** 2


def noisy_argmax_rdp(
    sensitivity: Sensitivity,
    orders: Float64[ndarray, " orders"],
    *,
    sigma: float,
    classes: int,
    lattice: Lattice | None,
) -> Float64[ndarray, "units orders"]:
    """The label-only bound of one label; the Gaussian one for votes that enter by a secret coin."""
    votes = sensitivity.class_votes
    if lattice is not None:
        units, sigma_units = whole_units(sensitivity, lattice), sigma * lattice.units
        if sensitivity.sampled:
            return sampled_lattice_label_rdp(units, sensitivity.rate, orders, sigma_units=sigma_units, classes=classes)
        return lattice_label_rdp(units, orders, sigma_units=sigma_units, classes=classes)
    whole = label_only.label_rdp(votes[:, None] / sigma, orders[None, :], classes=classes)
    # Leaving out votes by a coin before the release never costs more than letting them all enter (quasi-convexity).
    return (
        np.minimum(whole, histogram_rdp(sensitivity, orders, sigma=sigma, lattice=None))
        if sensitivity.sampled
        else whole
    )


def label_pairs(sensitivity: Sensitivity, *, sigma: float, classes: int, lattice: Lattice | None) -> LabelPairs:
    """What one label reveals of a unit's single vote. Raises InvalidInput for a vote that enters by a secret coin."""
    if sensitivity.sampled:
        raise InvalidInput("accountant 'exact_composition' does not hold for secret sampling; allowed: label_only")
    votes = sensitivity.class_votes
    if lattice is not None:
        units = whole_units(sensitivity, lattice)
        return lattice_label_pairs(units, sigma_units=sigma * lattice.units, classes=classes)
    return LabelPairs(PairKind(min(classes, 3)), votes / sigma)


def integer_noise_distance(lattice: Lattice, *, draws: int) -> float:
    """Total variation distance between integer noise in a ring and what is accounted for (lattice_gaussian.py)."""
    return lattice_noise_distance(draws=draws) + draws * rounding_distance(shares=lattice.shares)


def whole_units(sensitivity: Sensitivity, lattice: Lattice) -> Int64[ndarray, " units"]:
    """What each unit moves in lattice units, rounded up: the cost never decreases in what is moved."""
    return np.ceil(sensitivity.votes * lattice.units).astype(np.int64)


def histogram_mu_squared(
    sensitivity: Sensitivity, *, sigma: float, lattice: Lattice | None
) -> Float64[ndarray, "units orders"]:
    """Delta^2 s^2/sigma^2 = mu^2 of the same mechanism (Dong, Roth, Su, arXiv 1905.02383, Thm 2.7).

    A part in 1,000 more, or less, for integer noise (lattice_gaussian.py).
    """
    if sensitivity.sampled:
        raise InvalidInput("accountant 'gaussian_dp' does not hold for secret sampling; allowed: label_only, gaussian")
    if lattice is not None:
        moved = sqrt(sensitivity.delta_squared) * sensitivity.votes * lattice.units
        return lattice_mu_squared(moved, sigma_units=sigma * lattice.units, shares=lattice.shares)[:, None]
    return sensitivity.delta_squared * (sensitivity.votes[:, None] / sigma) ** 2
