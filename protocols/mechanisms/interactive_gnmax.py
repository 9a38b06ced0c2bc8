"""Interactive-GNMax: a second round answers only where student and parties differ (Papernot et al. 2018, section 4.3).

Round one is Confident-GNMax. A student is trained on its labels; round two tests max_j(n_j - M p_j), with p the
student's public predictions and M the nominal, public total weight (never the votes cast: those are private). If that
passes, the answer is GNMax of the raw votes; if it does not and the student is confident, the student's own label is
reinforced, which costs nothing beyond the test: it is computed from what is public.

Subtracting public offsets from the counts leaves the sensitivity of their maximum at s, so both rounds cost what
Confident-GNMax costs. One pair of sigmas serves both rounds, so a party's cost per query is one number.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.errors import InvalidInput
from protocols.mechanisms.confident_gnmax import SIGMA_THRESHOLD, THRESHOLD, ConfidentGNMax
from protocols.mechanisms.decision import Decision
from protocols.mechanisms.gaussian_mechanism import GaussianMechanism
from protocols.mechanisms.gnmax import SIGMA
from protocols.mechanisms.mechanism import Lattice, QueryCost, Sensitivity
from protocols.mechanisms.parameter import View, parameter
from protocols.noise import Noise, float_noise_distance
from protocols.ranges import check
from protocols.votes import ABSTAIN


@dataclass(frozen=True, kw_only=True)
class InteractiveGNMax(GaussianMechanism):
    """Confident-GNMax in round one; in round two the threshold is on the parties' difference from the student.

    sigma, sigma_threshold, threshold: as in ConfidentGNMax, for round one; interactive_threshold: votes, finite, for
    round two; reinforce_confidence: in (0, 1], the largest predicted probability from which the student's own label
    is reinforced; round_one: queries of the first round, >= 1. Under the view "histogram" sigma_threshold is None: the
    test is on what is seen. lattice: of integer noise, None for real-valued noise; offsets are then rounded to it.
    """

    sigma: float = field(metadata=SIGMA)
    sigma_threshold: float | None = field(metadata=SIGMA_THRESHOLD)
    threshold: float = field(metadata=THRESHOLD)
    interactive_threshold: float = field(
        metadata=parameter(
            "the votes by which parties and student must differ in round two",
            unit="votes",
            role="threshold",
            default=0.5,
        )
    )
    reinforce_confidence: float = field(
        metadata=parameter("the student's confidence from which its own label is reinforced, in (0, 1]", default=0.95)
    )
    round_one: int = field(
        metadata=parameter(
            "the queries of round one", unit="queries", default_words="half of what the poorest budget affords"
        )
    )
    lattice: Lattice | None = None
    name: ClassVar[str] = "interactive_gnmax"
    title: ClassVar[str] = "Interactive-GNMax"
    interactive: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _ = self._confident
        if not np.isfinite(self.interactive_threshold):
            raise InvalidInput(
                f"interactive_threshold is {self.interactive_threshold}; allowed: a finite number of votes"
            )
        if not 0 < self.reinforce_confidence <= 1:
            raise InvalidInput(f"reinforce_confidence is {self.reinforce_confidence}; allowed: in (0, 1]")
        check("study", "round_one", self.round_one)

    def release(
        self,
        counts: Float64[ndarray, "queries classes"],
        noise: Noise,
        *,
        view: View,
        predictions: Float64[ndarray, "queries classes"] | None = None,
        total_weight: float | None = None,
    ) -> Int64[ndarray, " queries"]:
        if predictions is None:
            return self._confident.release(counts, noise, view=view)
        if total_weight is None:
            raise InvalidInput("total_weight is missing; round two needs the nominal total weight, in votes")
        check_predictions(predictions, shape=counts.shape)
        tested = counts - self.offsets(predictions, total_weight)
        return self._confident.release_where(counts, tested, self.interactive_threshold, noise, view=view)

    def needed(self, *, second_round: bool) -> float:
        return self.interactive_threshold if second_round else self.threshold

    def decision(self, *, second_round: bool) -> Decision:
        return replace(self._confident.decision(second_round=False), threshold=self.needed(second_round=second_round))

    def offsets(
        self, predictions: Float64[ndarray, "queries classes"], total_weight: float
    ) -> Float64[ndarray, "queries classes"]:
        """M p_j, in votes; on the lattice rounded half up (banker's rounding would double the sensitivity)."""
        if self.lattice is None:
            return total_weight * predictions
        return np.floor(total_weight * predictions * self.lattice.units + 0.5) / self.lattice.units

    def reinforced(
        self, labels: Int64[ndarray, " queries"], predictions: Float64[ndarray, "queries classes"]
    ) -> Int64[ndarray, " queries"]:
        """The student's own label where round two gave no answer and the student is confident; ABSTAIN elsewhere."""
        confident = (labels == ABSTAIN) & (predictions.max(axis=1) >= self.reinforce_confidence)
        return np.where(confident, predictions.argmax(axis=1), ABSTAIN)

    def noise_rdp(self, sensitivity: Sensitivity, orders: Float64[ndarray, " orders"], *, view: View) -> QueryCost:
        return self._confident.noise_rdp(sensitivity, orders, view=view)

    def label_only_rdp(
        self, sensitivity: Sensitivity, orders: Float64[ndarray, " orders"], *, classes: int
    ) -> QueryCost:
        return self._confident.label_only_rdp(sensitivity, orders, classes=classes)

    def gaussian_dp(self, sensitivity: Sensitivity, *, view: View) -> QueryCost:
        return self._confident.gaussian_dp(sensitivity, view=view)

    def noise_distance(self, *, classes: int, total_weight: float) -> float:
        if self.lattice is not None:
            return self._confident.noise_distance(classes=classes, total_weight=total_weight)
        # The tested counts minus M p are at most twice as large, and are rounded once more.
        label = float_noise_distance(sigma=self.sigma, classes=classes, total_weight=total_weight)
        bit_sigma = self._confident.bit_sigma("label")
        bit = float_noise_distance(sigma=bit_sigma, classes=1, total_weight=4 * total_weight)
        return label + bit

    def released_words(self, *, total_weight: float) -> str:
        return (
            f"Interactive-GNMax: {self.round_one:,} queries of Confident-GNMax "
            f"({self._confident.confident_words(total_weight)}); then a student, and queries answered only where "
            f"parties and student differ by {self.interactive_threshold:g} votes; where they do not, the student's "
            f"own label is reinforced, free, from a confidence of {self.reinforce_confidence:g}"
        )

    @property
    def _confident(self) -> ConfidentGNMax:
        return ConfidentGNMax(
            sigma=self.sigma, sigma_threshold=self.sigma_threshold, threshold=self.threshold, lattice=self.lattice
        )


def check_predictions(predictions: Float64[ndarray, "queries classes"], *, shape: tuple[int, ...]) -> None:
    """Raises InvalidInput unless each row holds probabilities: in [0, 1], adding up to 1 within 1e-3."""
    if predictions.shape != shape:
        raise InvalidInput(f"predictions of shape {predictions.shape}; allowed: {shape}")
    if not ((predictions >= 0).all() and (abs(predictions.sum(axis=1) - 1) <= 1e-3).all()):
        raise InvalidInput(
            f"predictions span [{predictions.min()}, {predictions.max()}], rows add up to "
            f"[{predictions.sum(axis=1).min()}, {predictions.sum(axis=1).max()}]; allowed: probabilities adding up to 1"
        )
