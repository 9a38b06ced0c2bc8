"""The data-dependent cost of one GNMax query as a function of q, and its critical points (Papernot et al. 2018, B.4).

q bounds the probability that GNMax's label is not the plurality. The curve is Theorem 6's bound below q0 and the
Gaussian bound from there on. One step (one unit's votes) leads from q to between B_L(q) and B_U(q). Smooth
sensitivity needs two conditions on the curve's shape, C5 and C6, which depend on noise, order and classes only.
Everything here is data-independent. Derivations: docs/explanation/smooth-sensitivity.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy
from jaxtyping import Float64
from numpy import ndarray

_GRID = np.concatenate(([0.0], np.geomspace(1e-9, 1.0, 6_000)))
# A y this close to y0 counts as y0: rounding must not put a point on the lower side of a jump of the curve.
_SLACK = 1e-12


@dataclass(frozen=True)
class CriticalPoints:
    """Where the curve stops growing, and whether its shape is as the algorithms need it.

    log_q0: from q0 on the data-independent bound is used; log_q1: ln B_L(q0), one step below; plateau: the local
    sensitivity at q1, its maximum; c5: the curve does not decrease on (0, q0]; c6: nor does curve(B_U(q)) - curve(q)
    on (0, q1] (Papernot et al. 2018, Appendix B.4.2).
    """

    log_q0: float
    log_q1: float
    plateau: float
    c5: bool
    c6: bool


class GNMaxCurve:
    """RDP of one query at one order as a function of ln q, and how far a step moves q. Built by `gnmax_curve`.

    noise = sigma/s, s being the weight of the unit whose cost this is; step = (largest weight of a unit)/sigma.
    In the variable y = mu2 = noise sqrt(-ln q), Theorem 6 at Proposition 10's mu1 = y + 1 and mu2 = y reads
    e^((a-1) cost) = (1-q) ((1-q)/(1-T))^(a-1) + q e^((a-1)(2y+1)/v), v = noise^2, q = e^(-y^2/v), T = e^(-(y-1)^2/v).
    """

    def __init__(self, *, noise: float, step: float, order: float, classes: int) -> None:
        self._noise, self._order, self._v = noise, order, noise**2
        # A step changes every gap by at most twice the weight; a gap's noise has standard deviation sqrt(2) sigma.
        self._shift = np.sqrt(2.0) * step
        self._log_others = np.log(classes - 1)
        self.independent = order / self._v
        self._y0 = self._least_y()
        log_q0 = np.array([-self._y0 * self._y0 / self._v])
        log_q1 = self._lower(log_q0)
        at_q1 = self.cost(log_q1)
        plateau = np.maximum(self.independent - at_q1, at_q1 - self.cost(self._lower(log_q1)))
        c5 = self._grows()
        c6 = c5 and self._grows_faster(log_q1)
        self.points = CriticalPoints(float(log_q0[0]), float(log_q1[0]), float(plateau[0]), c5, c6)

    def cost(self, log_q: Float64[ndarray, " points"]) -> Float64[ndarray, " points"]:
        """RDP of one query: Theorem 6 below q0, the Gaussian bound from q0 on."""
        y = self._y(log_q)
        dependent = self._scaled(np.maximum(y, self._y0)) / (self._order - 1)
        below = y > self._y0 * (1 + _SLACK)
        return np.where(below, np.minimum(dependent, self.independent), self.independent)

    def climb(self, log_q: Float64[ndarray, " points"]) -> Float64[ndarray, " points"]:
        """Local sensitivity at q < q1: curve(B_U(q)) - curve(q) (Algorithm 3).

        The other term of Algorithm 3, curve(q) - curve(B_L(q)), is the same function at B_L(q), so smaller under C6.
        """
        return np.maximum(self.cost(self._upper(log_q)) - self.cost(log_q), 0.0)

    def descent(self, log_q: Float64[ndarray, " points"]) -> Float64[ndarray, " points"]:
        """Local sensitivity at q > q0: the Gaussian bound - curve(B_L(q)) (Algorithm 3)."""
        return self.independent - self.cost(self._lower(log_q))

    def _y(self, log_q: Float64[ndarray, " points"]) -> Float64[ndarray, " points"]:
        return self._noise * np.sqrt(-log_q)

    def _z(self, log_q: Float64[ndarray, " points"]) -> Float64[ndarray, " points"]:
        """z with q = (classes - 1) Phi(-z)."""
        return -scipy.special.ndtri_exp(log_q - self._log_others)

    def _lower(self, log_q: Float64[ndarray, " points"]) -> Float64[ndarray, " points"]:
        """ln B_L(q) (Papernot et al. 2018, Prop. 13)."""
        return self._log_others + scipy.special.log_ndtr(-(self._z(log_q) + self._shift))

    def _upper(self, log_q: Float64[ndarray, " points"]) -> Float64[ndarray, " points"]:
        """ln B_U(q) (Papernot et al. 2018, Prop. 13)."""
        return np.minimum(self._log_others + scipy.special.log_ndtr(-(self._z(log_q) - self._shift)), 0.0)

    def _parts(
        self, y: Float64[ndarray, " points"]
    ) -> tuple[Float64[ndarray, " points"], Float64[ndarray, " points"], Float64[ndarray, " points"]]:
        """ln q, X = ln(1-q) + (a-1) ln((1-q)/(1-T)) less its first term, and (a-1)(2y+1)/v.

        T - q = T (1 - e^(-(2y-1)/v)) keeps its digits where T and q are close.
        """
        log_q = -y * y / self._v
        t_less_q = np.exp(-((y - 1) ** 2) / self._v) * -np.expm1(-(2 * y - 1) / self._v)
        log_ratio = (1 - self._order) * np.log1p(t_less_q / np.expm1(log_q))
        return log_q, log_ratio, (self._order - 1) * (2 * y + 1) / self._v

    def _scaled(self, y: Float64[ndarray, " points"]) -> Float64[ndarray, " points"]:
        """(a - 1) times Theorem 6's bound; small values from a sum of positive terms, so that nothing cancels."""
        log_q, log_ratio, rise = self._parts(y)
        q = np.exp(log_q)
        small = (1 - q) * np.expm1(np.minimum(log_ratio, 1.0)) + q * np.expm1(np.minimum(rise, 700.0))
        large = np.logaddexp(np.log1p(-q) + log_ratio, log_q + rise)
        return np.where((small < 0.5) & (rise < 700.0), np.log1p(np.minimum(small, 1.0)), large)

    def _least_y(self) -> float:
        """y at q0: the least at which Theorem 6 is used.

        Not below max(noise + 1, order - 0.99), the authors' limit, from which on its conditions hold: order < mu1,
        and ln((y+1)/(y-1)) <= (2y-1)/v because ln(1 + 2/noise) < 2/noise. And not where it passes the Gaussian bound.
        """
        limit = (self._order - 1) * self.independent

        def excess(y: float) -> float:
            return float(self._scaled(np.array([y]))[0]) - limit

        low = float(max(self._noise + 1, self._order - 0.99))
        if excess(low) < 0:
            return low
        high = 2 * low
        while excess(high) > 0:
            high *= 2
        return float(scipy.optimize.brentq(excess, low, high, xtol=1e-15 * low, rtol=1e-15))

    def _grows(self) -> bool:
        """C5: the slope is positive on a grid, beyond the end of which both of its terms are."""
        width = self._v * np.log(self._order / (self._order - 1)) + self._noise + 2
        return bool(np.isfinite(self._log_slope(self._y0 + width * _GRID)).all())

    def _grows_faster(self, log_q1: Float64[ndarray, " one"]) -> bool:
        """C6: d curve(B_U(q))/dq >= d curve(q)/dq on a grid below q1, beyond the end of which the margin grows."""
        z1 = self._z(log_q1)[0]
        z = z1 + 20 * (z1 + 1) * _GRID
        log_q, log_u = (self._log_others + scipy.special.log_ndtr(-at) for at in (z, z - self._shift))
        slope, slope_u = self._log_slope(self._y(log_q)), self._log_slope(np.maximum(self._y(log_u), self._y0))
        margin = slope_u + _log_hazard(z - self._shift) - slope - _log_hazard(z)
        return bool((margin >= 0).all())

    def _log_slope(self, y: Float64[ndarray, " points"]) -> Float64[ndarray, " points"]:
        """ln of (a - 1) d cost/d ln q, NaN where that is not positive.

        e^((a-1) cost) times it is q times e^X ((a-1)(1-1/y) e^t/(1-T) - a/(1-q)) + (1 - (a-1)/y) e^rise, with
        t = (2y-1)/v; both terms are divided by e^top, so that neither overflows.
        """
        log_q, log_ratio, rise = self._parts(y)
        rest, t = -np.expm1(log_q), (2 * y - 1) / self._v
        x = np.log(rest) + log_ratio
        top = np.maximum(x + t, rise)
        gain = (self._order - 1) * (1 - 1 / y) / -np.expm1(-((y - 1) ** 2) / self._v)
        slope = np.exp(x + t - top) * gain - np.exp(x - top) * self._order / rest
        slope = slope + np.exp(rise - top) * (1 - (self._order - 1) / y)
        log_slope = log_q + top + np.log(np.where(slope > 0, slope, 1.0)) - self._scaled(y)
        return np.where(slope > 0, log_slope, np.nan)


def _log_hazard(z: Float64[ndarray, " points"]) -> Float64[ndarray, " points"]:
    """ln(phi(z)/Phi(-z)), less a constant: ln q falls at this rate in z."""
    return -np.log(scipy.special.erfcx(z / np.sqrt(2.0)))


@lru_cache(maxsize=256)
def gnmax_curve(*, noise: float, step: float, order: float, classes: int) -> GNMaxCurve:
    """The curve, with its critical points and conditions checked once. noise, step > 0; order > 1; classes >= 2."""
    return GNMaxCurve(noise=noise, step=step, order=order, classes=classes)
