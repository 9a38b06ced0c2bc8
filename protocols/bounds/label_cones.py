"""Log-probabilities of the outcomes of a noisy vote, and how they change when one vote moves.

Two experiments, both with standard normal noise (docs/explanation/label-only-bound.md):

* the *bit* at a point g: passed with probability Phi(g), else not; the moved vote leads to g + d;
* the *label* at a point (x, y): for A ~ N(x, 1) and B ~ N(y, 1) the outcomes are A (A > 0, A > B),
  B (B > 0, B > A) and other (A < 0, B < 0); the moved vote leads to (x - d, y + d). Points are given in the
  rotated axes u = (x - y)/sqrt(2), w = (x + y)/sqrt(2), so that a move changes u alone, by -sqrt(2) d.

Everything is kept as logarithms: the suprema lie where outcomes have probability e^-300.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from jaxtyping import Float64, Int64
from numpy import ndarray

_LOG_SQRT_2PI = 0.5 * np.log(2.0 * np.pi)
_SQRT_HALF = np.sqrt(0.5)
_BIT_SIGNS = np.array([[1.0], [-1.0]])
# For shifts below it the log-ratio comes from the integrated derivative instead of a difference of logarithms.
_SMALL_SHIFT = 0.01
_STEP_NODES, _STEP_WEIGHTS = (half / 2.0 for half in np.polynomial.legendre.leggauss(5))
_STEP_NODES = _STEP_NODES + 0.5
_WEDGE_NODES, _WEDGE_WEIGHTS = np.polynomial.legendre.leggauss(40)
# Beyond this many standard deviations the wedge integrand is below 2^-53 of its peak.
_WEDGE_REACH = 8.6


@dataclass(frozen=True)
class LocalModel:
    """What an upper bound on a whole cell needs to know at the cell's centre.

    log_p: log-probability of each outcome before the move; log_ratio: log-probability after the move minus
    before; slope, bend: gradient and Hessian of log_p with respect to the point; ratio_slope, ratio_bend: of log_ratio.
    """

    log_p: Float64[ndarray, "outcomes cells"]
    log_ratio: Float64[ndarray, "outcomes cells"]
    slope: Float64[ndarray, "axes outcomes cells"]
    bend: Float64[ndarray, "axes axes outcomes cells"]
    ratio_slope: Float64[ndarray, "axes outcomes cells"]
    ratio_bend: Float64[ndarray, "axes axes outcomes cells"]

    def take(self, rows: Int64[ndarray, " chosen"]) -> LocalModel:
        """The model of the chosen cells, each as often as it is named."""
        return LocalModel(
            self.log_p[..., rows],
            self.log_ratio[..., rows],
            self.slope[..., rows],
            self.bend[..., rows],
            self.ratio_slope[..., rows],
            self.ratio_bend[..., rows],
        )


def bit_model(points: Float64[ndarray, "cells 1"], shifts: Float64[ndarray, " cells"]) -> LocalModel:
    """The outcomes (passed, not passed) at `points` and after moving each point by +shift, shift > 0."""
    before, after = points[:, 0], points[:, 0] + shifts
    log_p = np.stack([scipy.special.log_ndtr(before), scipy.special.log_ndtr(-before)])
    log_q = np.stack([scipy.special.log_ndtr(after), scipy.special.log_ndtr(-after)])
    log_ratio = log_q - log_p
    small = shifts < _SMALL_SHIFT
    along = _log_phi(before[small, None] + shifts[small, None] * _STEP_NODES)
    rates = np.exp(along - log_p[:, small, None]) @ _STEP_WEIGHTS
    log_ratio[:, small] = np.log1p(shifts[small] * rates * _BIT_SIGNS)
    slope, bend = _bit_derivatives(before, log_p)
    moved_slope, moved_bend = _bit_derivatives(after, log_q)
    return LocalModel(log_p, log_ratio, slope, bend, moved_slope - slope, moved_bend - bend)


def label_model(points: Float64[ndarray, "cells 2"], shifts: Float64[ndarray, " cells"]) -> LocalModel:
    """The outcomes (A, B, other) at the points (u, w) and after moving x by -shift and y by +shift > 0."""
    x, y = (points[:, 1] + points[:, 0]) * _SQRT_HALF, (points[:, 1] - points[:, 0]) * _SQRT_HALF
    log_p = log_label_probabilities(x, y)
    log_ratio = np.empty_like(log_p)
    small = shifts < _SMALL_SHIFT
    log_ratio[:, small] = np.log1p(_relative_growth(x[small], y[small], shifts[small], log_p[:, small]))
    large = ~small
    moved = log_label_probabilities(x[large] - shifts[large], y[large] + shifts[large])
    log_ratio[:, large] = moved - log_p[:, large]
    slope, bend = _label_derivatives(x, y, log_p)
    moved_slope, moved_bend = _label_derivatives(x - shifts, y + shifts, log_p + log_ratio)
    return LocalModel(log_p, log_ratio, slope, bend, moved_slope - slope, moved_bend - bend)


def log_label_probabilities(
    x: Float64[ndarray, " cells"], y: Float64[ndarray, " cells"]
) -> Float64[ndarray, "3 cells"]:
    """log P[A > 0, A > B], log P[B > 0, B > A] and log P[A < 0, B < 0] for A ~ N(x, 1), B ~ N(y, 1)."""
    difference = (x - y) * _SQRT_HALF
    return np.stack(
        [_log_wedge(x, difference), _log_wedge(y, -difference), scipy.special.log_ndtr(-x) + scipy.special.log_ndtr(-y)]
    )


def _log_wedge(h: Float64[ndarray, " cells"], k: Float64[ndarray, " cells"]) -> Float64[ndarray, " cells"]:
    """log P[X < h, Y < k] for standard normals of correlation 1/sqrt(2).

    Plackett's identity, as in Genz 2004, "Numerical computation of rectangular bivariate and trivariate
    normal and t probabilities", eq. (3): the value for independent normals plus an integral over the angle
    from 0 to 45 degrees. Both terms are positive, so nothing cancels however small the probability is. With
    t the angle's tangent the integrand is exp(-(k^2 + (h sqrt(1 + t^2) - k t)^2)/2)/(1 + t^2); quadrature
    covers the part of [0, 1] where it is not negligible relative to its peak.
    """
    swap = np.abs(h) > np.abs(k)
    far = np.where(swap, h, k)
    near = np.where(swap, k, h)
    mirrored = far < 0.0
    far, near = np.abs(far), np.where(mirrored, -near, near)
    ratio = np.clip(near / np.maximum(far, 1e-300), 0.0, _SQRT_HALF)
    peak_t = ratio / np.sqrt(1.0 - ratio**2)
    peak = near * np.sqrt(1.0 + peak_t**2) - far * peak_t
    reach = np.hypot(_WEDGE_REACH, peak)
    centre, half = np.arcsin(near / np.hypot(far, reach)), np.arctan2(reach, far)
    low = np.tan(np.clip(centre - half, 0.0, np.pi / 4.0))
    high = np.tan(np.clip(centre + half, 0.0, np.pi / 4.0))
    t = (low + high)[:, None] / 2.0 + (high - low)[:, None] / 2.0 * _WEDGE_NODES
    square = 1.0 + t * t
    gap = near[:, None] * np.sqrt(square) - far[:, None] * t
    integral = (np.exp((peak**2)[:, None] / 2.0 - gap * gap / 2.0) / square) @ _WEDGE_WEIGHTS
    log_integral = np.log(integral * (high - low) / (4.0 * np.pi)) - (far**2 + peak**2) / 2.0
    return np.minimum(np.logaddexp(scipy.special.log_ndtr(h) + scipy.special.log_ndtr(k), log_integral), 0.0)


def _bit_derivatives(
    points: Float64[ndarray, " cells"], log_p: Float64[ndarray, "2 cells"]
) -> tuple[Float64[ndarray, "1 2 cells"], Float64[ndarray, "1 1 2 cells"]]:
    """Gradients and Hessians of the two log-probabilities."""
    slope = _BIT_SIGNS * np.exp(_log_phi(points) - log_p)
    return slope[None], (-slope * (points + slope))[None, None]


def _label_derivatives(
    x: Float64[ndarray, " cells"], y: Float64[ndarray, " cells"], log_p: Float64[ndarray, "3 cells"]
) -> tuple[Float64[ndarray, "2 3 cells"], Float64[ndarray, "2 2 3 cells"]]:
    """Gradients and Hessians of the three log-probabilities in (u, w)."""
    # Densities of the outcomes' boundaries A = B, A = 0, B = 0 and of their common corner, over p.
    tie = np.exp(_log_tie(x, y) - log_p[:2])
    a_zero = np.exp(_log_phi(x) + scipy.special.log_ndtr(-y) - log_p[::2])
    b_zero = np.exp(_log_phi(y) + scipy.special.log_ndtr(-x) - log_p[1:])
    corner = np.exp(_log_phi(x) + _log_phi(y) - log_p)
    turn = (x - y) * tie
    a_bend, b_bend = x * a_zero / 2.0, y * b_zero / 2.0
    slope, bend = np.empty((2, 3, len(x))), np.empty((2, 2, 3, len(x)))
    slope[0, 0] = np.sqrt(2.0) * tie[0] + a_zero[0] * _SQRT_HALF
    slope[1, 0] = a_zero[0] * _SQRT_HALF
    slope[0, 1] = -np.sqrt(2.0) * tie[1] - b_zero[0] * _SQRT_HALF
    slope[1, 1] = b_zero[0] * _SQRT_HALF
    slope[0, 2] = (b_zero[1] - a_zero[1]) * _SQRT_HALF
    slope[1, 2] = -(b_zero[1] + a_zero[1]) * _SQRT_HALF
    bend[0, 0, 0] = corner[0] / 2.0 - a_bend[0] - turn[0]
    bend[1, 1, 0] = -corner[0] / 2.0 - a_bend[0]
    bend[0, 1, 0] = corner[0] / 2.0 - a_bend[0]
    bend[0, 0, 1] = corner[1] / 2.0 - b_bend[0] + turn[1]
    bend[1, 1, 1] = -corner[1] / 2.0 - b_bend[0]
    bend[0, 1, 1] = b_bend[0] - corner[1] / 2.0
    bend[0, 0, 2] = a_bend[1] + b_bend[1] - corner[2]
    bend[1, 1, 2] = a_bend[1] + b_bend[1] + corner[2]
    bend[0, 1, 2] = a_bend[1] - b_bend[1]
    bend[1, 0] = bend[0, 1]
    return slope, bend - slope[:, None] * slope[None, :]


def _relative_growth(
    x: Float64[ndarray, " cells"],
    y: Float64[ndarray, " cells"],
    shifts: Float64[ndarray, " cells"],
    log_p: Float64[ndarray, "3 cells"],
) -> Float64[ndarray, "3 cells"]:
    """(after - before)/before of each outcome for a small move, by integrating its derivative on the way."""
    steps = shifts[:, None] * _STEP_NODES
    x_t, y_t = x[:, None] - steps, y[:, None] + steps
    tie, a_zero, b_zero = (
        _log_tie(x_t, y_t),
        _log_phi(x_t) + scipy.special.log_ndtr(-y_t),
        _log_phi(y_t) + scipy.special.log_ndtr(-x_t),
    )
    log_a, log_b, log_other = log_p[:, :, None]
    rates = np.stack(
        [
            -2.0 * np.exp(tie - log_a) - np.exp(a_zero - log_a),
            2.0 * np.exp(tie - log_b) + np.exp(b_zero - log_b),
            np.exp(a_zero - log_other) - np.exp(b_zero - log_other),
        ]
    )
    growth: Float64[ndarray, "3 cells"] = shifts * (rates @ _STEP_WEIGHTS)
    return growth


def _log_tie(x: Float64[ndarray, "..."], y: Float64[ndarray, "..."]) -> Float64[ndarray, "..."]:
    """log of the density with which A = B > 0 is met as y grows: -d/dy P[A > 0, A > B]."""
    tie: Float64[ndarray, "..."] = (
        _log_phi((x - y) * _SQRT_HALF) + np.log(_SQRT_HALF) + scipy.special.log_ndtr((x + y) * _SQRT_HALF)
    )
    return tie


def _log_phi(z: Float64[ndarray, "..."]) -> Float64[ndarray, "..."]:
    density: Float64[ndarray, "..."] = -0.5 * z * z - _LOG_SQRT_2PI
    return density
