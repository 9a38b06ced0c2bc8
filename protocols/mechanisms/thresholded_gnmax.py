"""Thresholded GNMax: one noisy histogram, and its argmax where the noisy maximum itself reaches a threshold.

Confident-GNMax (Papernot et al. 2018) draws a second noise for its threshold test. Here the test is made on the noisy
counts whose argmax is released, so a query costs one label whether it is answered or not
(docs/explanation/one-draw.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Final

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.bounds.label_pairs import LabelPairs
from protocols.errors import InvalidInput
from protocols.mechanisms.decision import Decision
from protocols.mechanisms.gnmax import OneHistogram, label_pairs, noisy_argmax_rdp, sigma_words
from protocols.mechanisms.mechanism import Lattice, QueryCost, Sensitivity
from protocols.mechanisms.parameter import View, parameter
from protocols.noise import Noise, check_sigma
from protocols.votes import ABSTAIN

# Abstaining is one outcome more than the classes: with two classes the bound of three or more holds.
_LEAST_CLASSES: Final = 3


@dataclass(frozen=True, kw_only=True)
class ThresholdedGNMax(OneHistogram):
    """h = n + N(0, sigma^2), independent per class: argmax(h) where max(h) >= threshold, else ABSTAIN.

    sigma: standard deviation in votes, > 0; threshold: votes, finite; lattice: of integer noise, None for real-valued
    noise. Under either view nothing but h is drawn, so there is nothing to add when a query is answered.
    """

    # docs/explanation/one-draw.md, section 7.
    sigma: float = field(
        metadata=parameter(
            "the standard deviation of the label noise, in votes",
            unit="votes", role="noise", default=0.3, default_of_two=0.46,
        )
    )  # fmt: skip
    threshold: float = field(
        metadata=parameter(
            "the votes that the noisy maximum must reach",
            unit="votes", role="threshold", default=0.65, default_of_two=0.7,
        )
    )  # fmt: skip
    lattice: Lattice | None = None
    name: ClassVar[str] = "thresholded_gnmax"
    title: ClassVar[str] = "Thresholded GNMax"
    one_histogram: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_sigma("sigma", self.sigma)
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
        noisy = self.noisy(counts, noise, view=view)
        return np.where(noisy.max(axis=1) >= self.threshold, noisy.argmax(axis=1), ABSTAIN)

    def needed(self, *, second_round: bool) -> float:
        return self.threshold

    def decision(self, *, second_round: bool) -> Decision:
        return Decision(sigma=self.sigma, threshold=self.threshold)

    def label_only_rdp(
        self, sensitivity: Sensitivity, orders: Float64[ndarray, " orders"], *, classes: int
    ) -> QueryCost:
        at_least = max(classes, _LEAST_CLASSES)
        cost = noisy_argmax_rdp(sensitivity, orders, sigma=self.sigma, classes=at_least, lattice=self.lattice)
        return QueryCost(cost, np.zeros_like(cost))

    def label_pairs(self, sensitivity: Sensitivity, *, classes: int) -> LabelPairs:
        return label_pairs(sensitivity, sigma=self.sigma, classes=max(classes, _LEAST_CLASSES), lattice=self.lattice)

    def released_words(self, *, total_weight: float) -> str:
        reach = f"{self.threshold:g} of {total_weight:.4g} votes"
        return (
            f"Thresholded GNMax: a label only where the largest noisy count reaches {reach}; {sigma_words(self.sigma)}"
        )
