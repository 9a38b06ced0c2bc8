"""Confident-GNMax: answer only where the noisy plurality passes a threshold (Papernot et al. 2018, section 4.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.accounting import label_only
from protocols.errors import InvalidInput
from protocols.mechanisms.gnmax import histogram_mu_squared, histogram_rdp, noisy_histogram
from protocols.mechanisms.mechanism import Mechanism, QueryCost, View
from protocols.noise import StandardNormal, check_sigma, float_noise_distance
from protocols.votes import ABSTAIN


@dataclass(frozen=True, kw_only=True)
class ConfidentGNMax(Mechanism):
    """If max(n) + N(0, sigma_threshold^2) >= threshold: GNMax with sigma; otherwise ABSTAIN.

    sigma, sigma_threshold: standard deviations in votes, > 0; threshold: votes, finite.
    Under the view "histogram" one noisy histogram is seen, and the threshold is tested on it: that test costs
    nothing beyond the histogram, which is paid in full for refused queries too; sigma_threshold is then None.
    """

    sigma: float
    sigma_threshold: float | None
    threshold: float
    name: ClassVar[str] = "confident_gnmax"

    def __post_init__(self) -> None:
        check_sigma("sigma", self.sigma)
        if self.sigma_threshold is not None:
            check_sigma("sigma_threshold", self.sigma_threshold)
        if not np.isfinite(self.threshold):
            raise InvalidInput(f"threshold is {self.threshold}; allowed: a finite number of votes")

    @classmethod
    def parameters(cls, *, view: View) -> tuple[str, ...]:
        return ("sigma", "threshold") if view == "histogram" else ("sigma", "sigma_threshold", "threshold")

    @classmethod
    def build(
        cls, *, sigma: float, sigma_threshold: float | None, threshold: float | None, view: View
    ) -> ConfidentGNMax:
        if threshold is None:
            raise InvalidInput("threshold is missing; confident_gnmax needs a number of votes")
        if view == "label" and sigma_threshold is None:
            raise InvalidInput("sigma_threshold is missing; the view 'label' needs a number of votes > 0")
        if view == "histogram" and sigma_threshold is not None:
            raise InvalidInput(
                f"sigma_threshold is {sigma_threshold:g}; the view 'histogram' tests the threshold on the seen "
                "histogram and has no use for it: leave it out"
            )
        return cls(sigma=sigma, sigma_threshold=sigma_threshold, threshold=threshold)

    def release(
        self, counts: Float64[ndarray, "queries classes"], noise: StandardNormal, *, view: View
    ) -> Int64[ndarray, " queries"]:
        if view == "histogram":
            noisy = noisy_histogram(counts, noise, sigma=self.sigma, view=view)
            passed = noisy.max(axis=1) >= self.threshold
        else:
            bit_noise = self._bit_sigma(view) * noise((len(counts),))
            passed = counts.max(axis=1) + bit_noise >= self.threshold
            noisy = noisy_histogram(counts, noise, sigma=self.sigma, view=view)
        return np.where(passed, noisy.argmax(axis=1), ABSTAIN)

    def gaussian_rdp(
        self, sensitivity: Float64[ndarray, " units"], orders: Float64[ndarray, " orders"], *, view: View
    ) -> QueryCost:
        label = histogram_rdp(sensitivity, orders, sigma=self.sigma)
        if view == "histogram":
            return QueryCost(label, np.zeros_like(label))
        return QueryCost(histogram_rdp(sensitivity, orders, sigma=self._bit_sigma(view)) / 2, label)

    def label_only_rdp(
        self, sensitivity: Float64[ndarray, " units"], orders: Float64[ndarray, " orders"], *, classes: int
    ) -> QueryCost:
        s, a = sensitivity[:, None], orders[None, :]
        return QueryCost(
            label_only.threshold_rdp(s / self._bit_sigma("label"), a),
            label_only.label_rdp(s / self.sigma, a, classes=classes),
        )

    def gaussian_dp(self, sensitivity: Float64[ndarray, " units"], *, view: View) -> QueryCost:
        label = histogram_mu_squared(sensitivity, sigma=self.sigma)
        if view == "histogram":
            return QueryCost(label, np.zeros_like(label))
        return QueryCost(histogram_mu_squared(sensitivity, sigma=self._bit_sigma(view)) / 2, label)

    def float_noise_distance(self, *, classes: int, total_weight: float) -> float:
        label = float_noise_distance(sigma=self.sigma, classes=classes, total_weight=total_weight)
        bit = float_noise_distance(sigma=self._bit_sigma("label"), classes=1, total_weight=total_weight)
        return label + bit

    def _bit_sigma(self, view: View) -> float:
        if self.sigma_threshold is None:
            raise InvalidInput(f"sigma_threshold is missing; the view {view!r} needs a number of votes > 0")
        return self.sigma_threshold
