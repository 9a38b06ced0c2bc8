"""LNMax: the argmax of the histogram plus independent Laplace noise (Papernot et al. 2017, section 2.1).

The worst case that budgets are charged is Mironov's RDP of the Laplace mechanism on the two counts that a moved vote
changes, which is never above the data-independent part of the 2017 moments accountant (moments2017.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.bounds.laplace import float_laplace_distance, laplace_histogram_rdp, laplace_noise
from protocols.errors import InvalidInput
from protocols.mechanisms.mechanism import Mechanism, NoiseLaw, QueryCost, Sensitivity, View
from protocols.noise import LatticeNoise, Noise
from protocols.votes import LATTICE


@dataclass(frozen=True, kw_only=True)
class LNMax(Mechanism):
    """argmax(n + Lap(1/gamma) drawn independently per class); every query is answered.

    gamma: inverse scale per vote, from 1e-9 to 1e9; the noise has standard deviation sqrt(2)/gamma votes.
    """

    gamma: float
    name: ClassVar[str] = "lnmax"
    noise_law: ClassVar[NoiseLaw] = "laplace"

    def __post_init__(self) -> None:
        if not (np.isfinite(self.gamma) and 1e-9 <= self.gamma <= 1e9):
            raise InvalidInput(f"gamma is {self.gamma}; allowed: a finite number > 0, from 1e-9 to 1e9 per vote")

    @classmethod
    def parameters(cls, *, view: View) -> tuple[str, ...]:
        return ("gamma",)

    def release(
        self,
        counts: Float64[ndarray, "queries classes"],
        noise: Noise,
        *,
        view: View,
        predictions: Float64[ndarray, "queries classes"] | None = None,
        total_weight: float | None = None,
    ) -> Int64[ndarray, " queries"]:
        if isinstance(noise, LatticeNoise):
            raise InvalidInput("lnmax has no integer noise; allowed: a mechanism with Gaussian noise")
        noisy = counts + laplace_noise(noise, counts.shape, gamma=self.gamma)
        # What is seen is rounded to the lattice of the votes, which is post-processing.
        return (np.rint(noisy * LATTICE) / LATTICE if view == "histogram" else noisy).argmax(axis=1)

    def noise_rdp(self, sensitivity: Sensitivity, orders: Float64[ndarray, " orders"], *, view: View) -> QueryCost:
        if sensitivity.sampled:
            raise InvalidInput("lnmax has no bound for secret sampling; allowed: gnmax, confident_gnmax")
        cost = laplace_histogram_rdp(sensitivity.votes, orders, gamma=self.gamma)
        return QueryCost(cost, np.zeros_like(cost))

    def noise_distance(self, *, classes: int, total_weight: float) -> float:
        return float_laplace_distance(gamma=self.gamma, classes=classes, total_weight=total_weight)
