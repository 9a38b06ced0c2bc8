"""How Gaussian noise decides one query under the view "label": what an exact law, an audit and a plan go by.

Three mechanisms differ in their threshold alone. Without one every query gets the argmax of its noisy counts (GNMax).
With noise of its own, the test comes before the label (Confident-GNMax, Papernot et al. 2018, section 4.2). Without
it, the noisy maximum itself must reach the threshold (thresholded GNMax, docs/explanation/one-draw.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.errors import InvalidInput
from protocols.mechanisms.winner_law import gaussian_reaching_log_law, gaussian_winner_log_law, with_threshold
from protocols.noise import check_sigma


@dataclass(frozen=True, kw_only=True)
class Decision:
    """N(0, sigma^2) on each count, and the votes that the maximum must reach, if any must be reached.

    sigma: votes, > 0; threshold: votes, finite, None where every query is answered; sigma_threshold: of the noise that
    the test alone draws, votes; None where the test draws none and compares the noisy maximum. Raises InvalidInput.
    """

    sigma: float
    threshold: float | None = None
    sigma_threshold: float | None = None

    def __post_init__(self) -> None:
        check_sigma("sigma", self.sigma)
        if self.threshold is None and self.sigma_threshold is not None:
            raise InvalidInput(f"sigma_threshold is {self.sigma_threshold} without a threshold; allowed: both")
        if self.threshold is not None and not np.isfinite(self.threshold):
            raise InvalidInput(f"threshold is {self.threshold}; allowed: a finite number of votes")
        if self.sigma_threshold is not None:
            check_sigma("sigma_threshold", self.sigma_threshold)

    @property
    def one_draw(self) -> bool:
        """Whether the noisy counts whose argmax is released are also what is held against the threshold."""
        return self.threshold is not None and self.sigma_threshold is None

    def log_law(
        self,
        counts: Float64[ndarray, "*pairs levels"],
        multiplicity: Int64[ndarray, " levels"],
        *,
        offsets: Float64[ndarray, "*pairs levels"] | None = None,
    ) -> Float64[ndarray, "*pairs outcomes"]:
        """ln P[a class of this level is released], and in a last column, if there is a threshold, ln P[no answer].

        multiplicity: classes that have each count; offsets: taken off the counts before they are tested, votes.
        Raises InvalidInput for offsets where one draw decides: its cost is proved without them.
        """
        if self.threshold is None:
            return gaussian_winner_log_law(counts, multiplicity, sigma=self.sigma)
        if self.sigma_threshold is None:
            if offsets is not None:
                raise InvalidInput("offsets are given where one draw decides; allowed: a test with noise of its own")
            return gaussian_reaching_log_law(counts, multiplicity, sigma=self.sigma, threshold=self.threshold)
        winner = gaussian_winner_log_law(counts, multiplicity, sigma=self.sigma)
        tested = counts if offsets is None else counts - offsets
        margin = np.asarray((tested.max(axis=-1) - self.threshold) / self.sigma_threshold)
        return with_threshold(winner, margin)
