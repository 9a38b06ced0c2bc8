"""How large, or how small, q can become when d units move their votes (Papernot et al. 2018, Algorithm 4).

One step moves one unit's votes: a whole vote where all units weigh the same, otherwise any part of the largest
weight. Why these moves are the extreme ones: docs/explanation/smooth-sensitivity.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from jaxtyping import Bool, Float64, Int64
from numpy import ndarray

from protocols.research.smooth_sensitivity.gnmax_curve import CriticalPoints

# Counts this close to a multiple of the weight, in steps and relative, are whole votes.
WHOLE = 1e-9


@dataclass(frozen=True, repr=False)
class SortedHistograms:
    """Histograms in units of a step, sorted: the top count and the others, in falling order.

    empty: classes that have no votes in any row, left out of `others`; whole: whether a step is one whole vote;
    sigma: noise in steps.
    """

    top: Float64[ndarray, " rows"]
    others: Float64[ndarray, "rows width"]
    empty: int
    whole: bool
    sigma: float

    def where(self, rows: Bool[ndarray, " rows"] | Int64[ndarray, " chosen"]) -> SortedHistograms:
        """The rows chosen by a mask or by index."""
        return SortedHistograms(self.top[rows], self.others[rows], self.empty, self.whole, self.sigma)

    def log_q(self, d: Float64[ndarray, " rows"], *, climb: bool) -> Float64[ndarray, " rows"]:
        """ln of the largest (climb) or least q within distance d of each row.

        q = min(sum_j P[N(0, 2 sigma^2) > gap_j], 1 - 1/m) (Papernot et al. 2018, Prop. 7). Climbing, d votes leave
        the top for the runner-up; descending, they leave the largest others for the top, d <= what those have.
        """
        if climb:
            top, others = self.top - d, self.others.copy()
            others[:, 0] += d
        else:
            top, others = self.top + d, self._levelled(d)
        scale = np.sqrt(2.0) * self.sigma
        log_tails = scipy.special.log_ndtr((others - top[:, None]) / scale)
        if self.empty:
            last = np.log(self.empty) + scipy.special.log_ndtr(-top / scale)
            log_tails = np.concatenate([log_tails, last[:, None]], axis=1)
        largest = log_tails.max(axis=1)
        log_sum = largest + np.log(np.exp(log_tails - largest[:, None]).sum(axis=1))
        classes = 1 + self.others.shape[1] + self.empty
        return np.minimum(log_sum, np.log1p(-1 / classes))

    def steps_to_plateau(self, points: CriticalPoints, *, climb: bool, most: int) -> Int64[ndarray, " rows"]:
        """The first d at which the extreme q has entered [q1, q0], at most `most`; by bisection, q being monotone.

        Descending, at the latest the first d past unanimity: Algorithm 4 takes the plateau from there on.
        """
        end = (self.top - self.others[:, 0]) / 2 if climb else self.others.sum(axis=1)
        low = np.zeros(len(end), dtype=np.int64)
        high = np.minimum(np.floor(end * (1 + WHOLE)).astype(np.int64) + 1, most)
        while (low < high).any():
            middle = (low + high) // 2
            log_q = self.log_q(np.minimum(middle.astype(np.float64), end), climb=climb)
            outside = log_q < points.log_q1 if climb else log_q > points.log_q0
            # Where low == high the search is over, whatever q is there.
            low, high = np.where(outside & (low < high), middle + 1, low), np.where(outside, high, middle)
        return low

    def _levelled(self, d: Float64[ndarray, " rows"]) -> Float64[ndarray, "rows width"]:
        """The other counts after d votes left them, always from the largest.

        The votes above level L add up to d at L = max_k (n_1 + ... + n_k - d)/k. Whole votes go down to ceil(L), and
        those that are left over from one class each.
        """
        rank = np.arange(1, self.others.shape[1] + 1)
        level = ((np.cumsum(self.others, axis=1) - d[:, None]) / rank).max(axis=1)
        level = np.maximum(level, 0.0)[:, None]
        if not self.whole:
            return np.minimum(self.others, level)
        lowered = np.minimum(self.others, np.ceil(level - WHOLE))
        left = d - (self.others - lowered).sum(axis=1)
        return lowered - (rank <= left[:, None])
