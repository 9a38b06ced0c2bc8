"""LNMax: the argmax of the histogram plus independent Laplace noise (Papernot et al. 2017, section 2.1).

The worst case that budgets are charged is Mironov's RDP of the Laplace mechanism on the two counts that a moved vote
changes, which is never above the data-independent part of the 2017 moments accountant (research/data_dependent.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.bounds.laplace import float_laplace_distance, laplace_histogram_rdp, laplace_noise
from protocols.errors import InvalidInput
from protocols.mechanisms.mechanism import Mechanism, QueryCost, Sensitivity
from protocols.mechanisms.parameter import View, parameter
from protocols.mechanisms.winner_law import laplace_winner_log_law
from protocols.noise import LatticeNoise, Noise
from protocols.votes import LATTICE


@dataclass(frozen=True, kw_only=True)
class LNMax(Mechanism):
    """argmax(n + Lap(1/gamma) drawn independently per class); every query is answered.

    gamma: inverse scale per vote, from 1e-9 to 1e9; the noise has standard deviation sqrt(2)/gamma votes.
    """

    gamma: float = field(
        metadata=parameter(
            "the inverse scale of Laplace noise, per vote",
            unit="per vote",
            role="noise",
            default=2**0.5 / 0.16,  # Laplace noise of the standard deviation that Gaussian noise has by default
        )
    )
    name: ClassVar[str] = "lnmax"
    title: ClassVar[str] = "LNMax"
    noise_law: ClassVar[str] = "laplace"
    rdp_source: ClassVar[str] = "Mironov 2017, Prop. 6"

    def __post_init__(self) -> None:
        if not (np.isfinite(self.gamma) and 1e-9 <= self.gamma <= 1e9):
            raise InvalidInput(f"gamma is {self.gamma}; allowed: a finite number > 0, from 1e-9 to 1e9 per vote")

    @property
    def label_sigma(self) -> float:
        return 2**0.5 / self.gamma

    @classmethod
    def accountants(cls, *, view: View, on_lattice: bool, secret_coins: bool) -> tuple[str, ...]:
        return () if on_lattice or secret_coins else ("laplace",)

    def noisy(
        self, counts: Float64[ndarray, "queries classes"], noise: Noise, *, view: View
    ) -> Float64[ndarray, "queries classes"]:
        if isinstance(noise, LatticeNoise):
            raise InvalidInput("lnmax has no integer noise; allowed: a mechanism with Gaussian noise")
        noisy = counts + laplace_noise(noise, counts.shape, gamma=self.gamma)
        # What is seen is rounded to the lattice of the votes, which is post-processing.
        return np.rint(noisy * LATTICE) / LATTICE if view == "histogram" else noisy

    def noise_rdp(self, sensitivity: Sensitivity, orders: Float64[ndarray, " orders"], *, view: View) -> QueryCost:
        if sensitivity.sampled:
            raise InvalidInput("lnmax has no bound for secret sampling; allowed: gnmax, confident_gnmax")
        cost = laplace_histogram_rdp(sensitivity.class_votes, orders, gamma=self.gamma)
        return QueryCost(cost, np.zeros_like(cost))

    def outcome_log_law(
        self,
        counts: Float64[ndarray, "*pairs levels"],
        multiplicity: Int64[ndarray, " levels"],
        *,
        offsets: Float64[ndarray, "*pairs levels"] | None = None,
    ) -> Float64[ndarray, "*pairs outcomes"]:
        return laplace_winner_log_law(counts, multiplicity, gamma=self.gamma)

    def noise_log_density(self, z: Float64[ndarray, "..."]) -> Float64[ndarray, "..."]:
        return -np.abs(z)

    def released_words(self, *, total_weight: float) -> str:
        return f"LNMax: the class with most noisy votes; Laplace noise of scale {1 / self.gamma:g} votes on each class"

    def noise_distance(self, *, classes: int, total_weight: float) -> float:
        return float_laplace_distance(gamma=self.gamma, classes=classes, total_weight=total_weight)
