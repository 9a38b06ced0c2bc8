"""GNMax: the argmax of the histogram plus independent Gaussian noise (Papernot et al. 2018, section 4.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.accounting import label_only
from protocols.accounting.secret_sampling import sampled_label_gaussian_rdp
from protocols.errors import InvalidInput
from protocols.mechanisms.mechanism import GaussianMechanism, QueryCost, Sensitivity, View
from protocols.noise import StandardNormal, check_sigma, float_noise_distance
from protocols.votes import LATTICE


@dataclass(frozen=True, kw_only=True)
class GNMax(GaussianMechanism):
    """argmax(n + N(0, sigma^2) drawn independently per class); every query is answered.

    sigma: standard deviation in votes, > 0. (Individualized PATE says "the same noise in each dimension": that
    would cancel in the argmax.)
    """

    sigma: float
    name: ClassVar[str] = "gnmax"

    def __post_init__(self) -> None:
        check_sigma("sigma", self.sigma)

    @classmethod
    def parameters(cls, *, view: View) -> tuple[str, ...]:
        return ("sigma",)

    def release(
        self,
        counts: Float64[ndarray, "queries classes"],
        noise: StandardNormal,
        *,
        view: View,
        predictions: Float64[ndarray, "queries classes"] | None = None,
        total_weight: float | None = None,
    ) -> Int64[ndarray, " queries"]:
        return noisy_histogram(counts, noise, sigma=self.sigma, view=view).argmax(axis=1)

    def noise_rdp(self, sensitivity: Sensitivity, orders: Float64[ndarray, " orders"], *, view: View) -> QueryCost:
        cost = histogram_rdp(sensitivity, orders, sigma=self.sigma)
        return QueryCost(cost, np.zeros_like(cost))

    def label_only_rdp(
        self, sensitivity: Sensitivity, orders: Float64[ndarray, " orders"], *, classes: int
    ) -> QueryCost:
        cost = label_rdp(sensitivity, orders, sigma=self.sigma, classes=classes)
        return QueryCost(cost, np.zeros_like(cost))

    def gaussian_dp(self, sensitivity: Sensitivity, *, view: View) -> QueryCost:
        cost = histogram_mu_squared(sensitivity, sigma=self.sigma)
        return QueryCost(cost, np.zeros_like(cost))

    def float_noise_distance(self, *, classes: int, total_weight: float) -> float:
        return float_noise_distance(sigma=self.sigma, classes=classes, total_weight=total_weight)


def noisy_histogram(
    counts: Float64[ndarray, "queries classes"], noise: StandardNormal, *, sigma: float, view: View
) -> Float64[ndarray, "queries classes"]:
    """counts + sigma N(0, 1) per cell; rounded to the lattice where the histogram itself is seen.

    Rounding a Gaussian on votes that lie on the lattice is post-processing, so the Gaussian-DP cost stands.
    """
    noisy = counts + sigma * noise(counts.shape)
    return np.rint(noisy * LATTICE) / LATTICE if view == "histogram" else noisy


def histogram_rdp(
    sensitivity: Sensitivity, orders: Float64[ndarray, " orders"], *, sigma: float
) -> Float64[ndarray, "units orders"]:
    """a s^2/sigma^2: the Gaussian mechanism with L2 sensitivity sqrt(2) s (Mironov 2017, Prop. 7).

    Less for a vote that enters by a secret coin (secret_sampling.py).
    """
    d = sensitivity.votes / sigma
    if sensitivity.sampled:
        return sampled_label_gaussian_rdp(d, sensitivity.rate, orders)
    return orders[None, :] * d[:, None] ** 2


def label_rdp(
    sensitivity: Sensitivity, orders: Float64[ndarray, " orders"], *, sigma: float, classes: int
) -> Float64[ndarray, "units orders"]:
    """The label-only bound of one label; the Gaussian one for votes that enter by a secret coin."""
    whole = label_only.label_rdp(sensitivity.votes[:, None] / sigma, orders[None, :], classes=classes)
    # Leaving out votes by a coin before the release never costs more than letting them all enter (quasi-convexity).
    return np.minimum(whole, histogram_rdp(sensitivity, orders, sigma=sigma)) if sensitivity.sampled else whole


def histogram_mu_squared(sensitivity: Sensitivity, *, sigma: float) -> Float64[ndarray, "units orders"]:
    """2 s^2/sigma^2 = mu^2 of the same mechanism (Dong, Roth, Su, arXiv 1905.02383, Thm 2.7)."""
    if sensitivity.sampled:
        raise InvalidInput("accountant 'gaussian_dp' does not hold for secret sampling; allowed: label_only, gaussian")
    return 2.0 * (sensitivity.votes[:, None] / sigma) ** 2
