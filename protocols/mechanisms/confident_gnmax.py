"""Confident-GNMax: answer only if the noisy plurality passes a threshold (Papernot et al. 2018, section 4.2)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.bounds import label_only
from protocols.bounds.lattice_label_only import lattice_bit_rdp
from protocols.bounds.lattice_sampling import sampled_lattice_bit_rdp
from protocols.bounds.secret_sampling import sampled_bit_gaussian_rdp, sampled_label_gaussian_rdp
from protocols.errors import InvalidInput
from protocols.mechanisms.decision import Decision
from protocols.mechanisms.gaussian_mechanism import GaussianMechanism
from protocols.mechanisms.gnmax import (
    SIGMA,
    histogram_mu_squared,
    histogram_rdp,
    integer_noise_distance,
    noisy_argmax_rdp,
    noisy_histogram,
    sigma_words,
    whole_units,
)
from protocols.mechanisms.mechanism import Lattice, QueryCost, Sensitivity
from protocols.mechanisms.parameter import View, parameter
from protocols.noise import Noise, check_sigma, float_noise_distance, gaussian
from protocols.votes import ABSTAIN

# Papernot et al. 2018, Table 1, MNIST with 250 teachers: T = 200, sigma1 = 150.
SIGMA_THRESHOLD = parameter(
    "the standard deviation of the threshold noise, in votes", unit="votes", role="noise", default=0.6, views=("label",)
)
THRESHOLD = parameter("the votes that the noisy plurality must reach", unit="votes", role="threshold", default=0.8)


@dataclass(frozen=True, kw_only=True)
class ConfidentGNMax(GaussianMechanism):
    """If max(n) + N(0, sigma_threshold^2) >= threshold: GNMax with sigma; otherwise ABSTAIN.

    sigma, sigma_threshold: standard deviations in votes, > 0; threshold: votes, finite; lattice: of
    integer noise, None for real-valued noise.
    Under the view "histogram" one noisy histogram is seen, and the threshold is tested on it: that test costs
    nothing beyond the histogram, which is paid in full for refused queries too; sigma_threshold is then None.
    """

    sigma: float = field(metadata=SIGMA)
    sigma_threshold: float | None = field(metadata=SIGMA_THRESHOLD)
    threshold: float = field(metadata=THRESHOLD)
    lattice: Lattice | None = None
    name: ClassVar[str] = "confident_gnmax"
    title: ClassVar[str] = "Confident-GNMax"

    def __post_init__(self) -> None:
        check_sigma("sigma", self.sigma)
        if self.sigma_threshold is not None:
            check_sigma("sigma_threshold", self.sigma_threshold)
        if not np.isfinite(self.threshold):
            raise InvalidInput(f"threshold is {self.threshold}; allowed: a finite number of votes")

    def release(
        self,
        counts: Float64[ndarray, "queries classes"],
        noise: Noise,
        *,
        view: View,
        predictions: Float64[ndarray, "queries classes"] | None = None,
        total_weight: float | None = None,
    ) -> Int64[ndarray, " queries"]:
        return self.release_where(counts, counts, self.threshold, noise, view=view)

    def release_where(
        self,
        counts: Float64[ndarray, "queries classes"],
        tested: Float64[ndarray, "queries classes"],
        threshold: float,
        noise: Noise,
        *,
        view: View,
    ) -> Int64[ndarray, " queries"]:
        """GNMax of `counts` where the noisy maximum of `tested` reaches the threshold; otherwise ABSTAIN.

        `tested` must be counts minus public offsets: a moved vote then changes its maximum by at most the vote's
        weight.
        """
        if view == "histogram":
            noisy = noisy_histogram(counts, noise, sigma=self.sigma, view=view)
            passed = (noisy + (tested - counts)).max(axis=1) >= threshold
        else:
            bit_noise = gaussian(noise, (len(counts),), sigma=self.bit_sigma(view))
            passed = tested.max(axis=1) + bit_noise >= threshold
            noisy = noisy_histogram(counts, noise, sigma=self.sigma, view=view)
        return np.where(passed, noisy.argmax(axis=1), ABSTAIN)

    def needed(self, *, second_round: bool) -> float:
        return self.threshold

    def decision(self, *, second_round: bool) -> Decision:
        return Decision(sigma=self.sigma, threshold=self.threshold, sigma_threshold=self.sigma_threshold)

    def noise_rdp(self, sensitivity: Sensitivity, orders: Float64[ndarray, " orders"], *, view: View) -> QueryCost:
        label = histogram_rdp(sensitivity, orders, sigma=self.sigma, lattice=self.lattice)
        if view == "histogram":
            return QueryCost(label, np.zeros_like(label))
        bit = self._bit_rdp(sensitivity, orders, view=view)
        if sensitivity.sampled and self.lattice is not None:
            always = sensitivity.unsampled
            return QueryCost(bit, histogram_rdp(always, orders, sigma=self.sigma, lattice=self.lattice))
        if sensitivity.sampled:
            whole = histogram_rdp(sensitivity.unsampled, orders, sigma=self.sigma, lattice=None)
            return self._one_coin(sensitivity, orders, bit, whole)
        return QueryCost(bit, label)

    def label_only_rdp(
        self, sensitivity: Sensitivity, orders: Float64[ndarray, " orders"], *, classes: int
    ) -> QueryCost:
        sigma, lattice = self.bit_sigma("label"), self.lattice
        whole = noisy_argmax_rdp(sensitivity.unsampled, orders, sigma=self.sigma, classes=classes, lattice=lattice)
        if lattice is not None:
            # For a vote under a secret coin, the bit is amplified; the label is not, because the bit reveals
            # something about the coin.
            return QueryCost(self._lattice_bit_rdp(sensitivity, orders, lattice), whole)
        bit = label_only.threshold_rdp(sensitivity.votes[:, None] / sigma, orders[None, :])
        if sensitivity.sampled:
            bit = np.minimum(bit, self._bit_rdp(sensitivity, orders, view="label"))
            return self._one_coin(sensitivity, orders, bit, whole)
        return QueryCost(bit, whole)

    def gaussian_dp(self, sensitivity: Sensitivity, *, view: View) -> QueryCost:
        label = histogram_mu_squared(sensitivity, sigma=self.sigma, lattice=self.lattice)
        if view == "histogram":
            return QueryCost(label, np.zeros_like(label))
        _ = sensitivity.class_votes  # the maximum moves by s, the counts by sqrt(2) s
        bit = histogram_mu_squared(sensitivity, sigma=self.bit_sigma(view), lattice=self.lattice) / 2
        return QueryCost(bit, label)

    def noise_distance(self, *, classes: int, total_weight: float) -> float:
        if self.lattice is not None:
            return integer_noise_distance(self.lattice, draws=2 * (classes + 1))
        label = float_noise_distance(sigma=self.sigma, classes=classes, total_weight=total_weight)
        bit = float_noise_distance(sigma=self.bit_sigma("label"), classes=1, total_weight=total_weight)
        return label + bit

    def released_words(self, *, total_weight: float) -> str:
        return f"Confident-GNMax: {self.confident_words(total_weight)}"

    def confident_words(self, total_weight: float) -> str:
        """In words: when a label is released."""
        test = "tested on the same noisy counts"
        if self.sigma_threshold is not None:
            test = f"tested with noise σ = {self.sigma_threshold:g} votes"
        reach = f"{self.threshold:g} of {total_weight:.4g} votes"
        return f"a label only where the leading class reaches {reach}, {test}; {sigma_words(self.sigma)}"

    def _one_coin(
        self,
        sensitivity: Sensitivity,
        orders: Float64[ndarray, " orders"],
        bit: Float64[ndarray, "units orders"],
        whole: Float64[ndarray, "units orders"],
    ) -> QueryCost:
        """The smaller of two bounds for a bit and a label that share one secret coin, for each unit and order.

        The bit reveals something about the coin, so the label's cost must not assume a fresh one. The bounds are: the
        bit, and the label of a vote that always enters (`whole`); or both at once as one Gaussian release, charged for
        every query (docs/explanation/secret-sampling.md, "One coin, two releases").
        """
        d = sensitivity.votes * np.hypot(1 / self.bit_sigma("label"), 1 / self.sigma)
        both = sampled_label_gaussian_rdp(d, sensitivity.rate, orders)
        together = both < bit + whole
        return QueryCost(np.where(together, both, bit), np.where(together, 0.0, whole))

    def _bit_rdp(
        self, sensitivity: Sensitivity, orders: Float64[ndarray, " orders"], *, view: View
    ) -> Float64[ndarray, "units orders"]:
        """a s^2/(2 sigma^2): the maximum moves by at most s (Mironov 2017, Prop. 7; CKS20, Thm 4, on the lattice).

        Less by a secret coin.
        """
        d = sensitivity.class_votes / self.bit_sigma(view)
        if sensitivity.sampled and self.lattice is not None:
            return self._lattice_bit_rdp(sensitivity, orders, self.lattice)
        if sensitivity.sampled:
            return sampled_bit_gaussian_rdp(d, sensitivity.rate, orders)
        return orders[None, :] * d[:, None] ** 2 / 2

    def _lattice_bit_rdp(
        self, sensitivity: Sensitivity, orders: Float64[ndarray, " orders"], lattice: Lattice
    ) -> Float64[ndarray, "units orders"]:
        units, sigma_units = whole_units(sensitivity, lattice), self.bit_sigma("label") * lattice.units
        if sensitivity.sampled:
            return sampled_lattice_bit_rdp(units, sensitivity.rate, orders, sigma_units=sigma_units)
        return lattice_bit_rdp(units, orders, sigma_units=sigma_units)

    def bit_sigma(self, view: View) -> float:
        """sigma_threshold, which is needed for a view that does not show the histogram. Raises InvalidInput."""
        if self.sigma_threshold is None:
            raise InvalidInput(f"sigma_threshold is missing; the view {view!r} needs a number of votes > 0")
        return self.sigma_threshold
