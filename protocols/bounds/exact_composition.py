"""Exact composition: the (epsilon, delta) of a planned number of queries, as the value of a game.

U_0(z) = max(0, 1 - e^-z), U_k(z) = sup over what one query can be of E_P[U_(k-1)(z + L)], L = ln P/Q;
delta_N(epsilon) = U_N(-epsilon) holds for N fully adaptive queries, and is attained: nothing that uses these pairs
alone is tighter. As a function of t = e^-z, U is convex, so chords between points of a grid are upper bounds, and the
pairs of label_pairs.py are finitely many. After DEPTH queries whole blocks are composed by their curves. Proof, margin
and limits: docs/explanation/exact-composition.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, exp, sqrt
from typing import Final

import numpy as np
import scipy
from jaxtyping import Float64
from numpy import ndarray

from protocols.bounds.gaussian import gdp_delta, gdp_epsilon, gdp_mu
from protocols.bounds.label_pairs import SLACK, PairKind, QuerySteps, grid_of, steps_of, weights_of
from protocols.errors import InvalidInput

# Queries that are played one by one; the curve of a block of so many is composed with itself.
DEPTH: Final = 128
# Queries that are played with all pairs.
_EARLY: Final = 24
# Variance of a loss in units of d^2, about: 2 times 0.64; standard deviations of losses on the grid.
_VARIANCE, _DEVIATIONS = 1.29, 7.5
# float64 dot products, relative; a Fourier transform of values in [0, 1], absolute.
_ROUNDING, _TRANSFORM = 1.0 + 1e-13, 2e-14
_COLUMNS: Final = 128
# By how much float64 errors may make values fall that do not.
_FALLING: Final = 1e-12
LARGEST_EPSILON: Final = 50.0
_BISECTIONS: Final = 60
_MOST_VALUES: Final = 64


@dataclass(frozen=True, eq=False)
class Value:
    """U at the grid points z = (first + i) spacing, upper bounds; nothing is known between them but convexity in t."""

    spacing: float
    first: int
    values: Float64[ndarray, " points"]

    def padded(self, below: int, above: int) -> Float64[ndarray, " padded"]:
        """The values with so many more points on either side: the lowest, and the chord to U = 1 at infinity."""
        top = np.exp(-self.spacing * np.arange(1, above + 1)) * (self.values[-1] - 1.0) + 1.0
        return np.concatenate([np.full(below, self.values[0]), self.values, top])

    def at(self, z: Float64[ndarray, "..."]) -> Float64[ndarray, "..."]:
        """Upper bounds at any z: the chord in t = e^-z."""
        grid = np.exp(-self.spacing * (self.first + np.arange(len(self.values))))
        t = np.exp(-z)
        inside = np.interp(t, grid[::-1], self.values[::-1])
        return np.where(t < grid[-1], 1.0 + (self.values[-1] - 1.0) * t / grid[-1], inside)


@dataclass(frozen=True, eq=False)
class _Law:
    """The law of a privacy loss: weights from the first offset on, in grid points, and the weight of infinity."""

    first: int
    weights: Float64[ndarray, " offsets"]
    certain: float


@dataclass(frozen=True, eq=False)
class Composition:
    """The values of up to `depth` queries one by one, and of any number in blocks; see `compose`.

    rows: U_0, ..., U_depth on one grid.
    """

    kind: PairKind
    shift: float
    spacing: float
    first: int
    rows: Float64[ndarray, "queries points"]
    factor: float
    drift: float
    _powers: dict[int, _Law] = field(default_factory=dict, repr=False)
    _values: dict[int, Value] = field(default_factory=dict, repr=False)

    @property
    def depth(self) -> int:
        """The queries that were played one by one."""
        return len(self.rows) - 1

    def delta(self, queries: int, epsilon: Float64[ndarray, "..."]) -> Float64[ndarray, "..."]:
        """An upper bound of delta(epsilon) of so many queries, in [0, 1]; never above Gaussian DP's.

        queries: >= 0; epsilon: from 0 to 50. Raises InvalidInput.
        """
        epsilon = np.asarray(epsilon, dtype=np.float64)
        if queries < 0 or not ((epsilon >= 0) & (epsilon <= LARGEST_EPSILON)).all():
            raise InvalidInput(
                f"{queries} queries at epsilon {epsilon}; allowed: >= 0, and epsilon from 0 to {LARGEST_EPSILON:g}"
            )
        if not queries:
            return np.zeros_like(epsilon)
        value = self._played(queries).at(queries * self.drift - epsilon)
        slack = queries * SLACK * (1.0 + np.exp(epsilon))
        gaussian = gdp_delta(np.full_like(epsilon, self.shift * sqrt(2.0 * queries)), epsilon)
        return np.minimum(value * self.factor**queries + slack, gaussian)

    def epsilon(self, queries: int, delta: float) -> float:
        """The least epsilon, rounded up by 1e-12 or less, with delta(epsilon) <= delta; infinite if it is above 50.

        Raises InvalidInput unless delta is in (0, 1).
        """
        least = float(gdp_epsilon(np.array([self.shift * sqrt(2.0 * queries)]), np.array([delta]))[0])
        low, high = 0.0, min(least, LARGEST_EPSILON)
        if self.delta(queries, np.array([high]))[0] > delta:
            return float("inf")
        if self.delta(queries, np.array([low]))[0] <= delta:
            return low
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            fits = bool(self.delta(queries, np.array([middle]))[0] <= delta)
            low, high = (low, middle) if fits else (middle, high)
        return high

    def queries(self, epsilon: float, delta: float, *, limit: int) -> int:
        """The most queries, at most `limit`, that are (epsilon, delta)-DP together; 0 if one is not."""
        at = np.array([epsilon], dtype=np.float64)

        def fits(count: int) -> bool:
            return bool(self.delta(count, at)[0] <= delta)

        if limit < 1 or epsilon > LARGEST_EPSILON or fits(limit):
            return max(limit, 0) if epsilon <= LARGEST_EPSILON else 0
        # Gaussian DP affords no more, so it is a first guess from below; labels cost at least 0.6 of it.
        low = min(int(gdp_mu(at, np.array([delta]))[0] ** 2 / (2 * self.shift**2)), limit)
        low = low if fits(low) else 0
        high = min(max(ceil(1.75 * low), low + 2), limit)
        while high < limit and fits(high):
            low, high = high, min(2 * high, limit)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    def _played(self, queries: int) -> Value:
        if queries not in self._values:
            if len(self._values) >= _MOST_VALUES:
                self._values.clear()
            value = self._composed(queries)
            self._values[queries] = value
            return value
        return self._values[queries]

    def _composed(self, queries: int) -> Value:
        blocks, rest = divmod(queries, max(self.depth, 1))
        if queries <= self.depth:
            return Value(self.spacing, self.first, self.rows[queries])
        value = self._widened(Value(self.spacing, self.first, self.rows[rest]), queries)
        power = 0
        while blocks:
            if blocks & 1:
                value = _after(self._power(power), value)
            blocks, power = blocks >> 1, power + 1
        return value

    def _power(self, power: int) -> _Law:
        """The law of the loss of 2^power blocks."""
        if power not in self._powers:
            if power == 0:
                value = Value(self.spacing, self.first, self.rows[self.depth])
            else:
                value = self._widened(self._played((self.depth << power) // 2), self.depth << power)
                value = _after(self._power(power - 1), value)
            self._powers[power] = _law_of(value)
        return self._powers[power]

    def _widened(self, value: Value, queries: int) -> Value:
        """The same on the grid of so many queries."""
        low, high = _reach(queries, self.shift, self.spacing)
        above = high - value.first - len(value.values) + 1
        return Value(self.spacing, low, value.padded(value.first - low, above))


def compose(kind: PairKind, shift: float, *, queries: int) -> Composition:
    """The composition for up to so many queries, and more, for votes of weight d = shift standard deviations.

    Every figure of it is an upper bound for every histogram, every adaptive choice of queries, and both directions;
    never below the true value, and above it by 0.8 % of epsilon at shift 0.2 and epsilon 4.6, and by more where these
    are larger (docs/explanation/exact-composition.md, section 6). Adjacency: replace-one, one vote. shift: in (0, 6].
    Raises InvalidInput.
    """
    early, late = steps_of(kind, shift)
    depth = max(1, min(queries, DEPTH))
    low, high = _reach(depth, shift, early.spacing)
    z = early.spacing * np.arange(low, high + 1)
    rows = np.empty((depth + 1, len(z)))
    rows[0] = np.maximum(0.0, -np.expm1(-z))
    for played in range(1, depth + 1):
        steps = early if played <= _EARLY else late
        rows[played] = _one_more(steps, rows[played - 1], low, _reach(played, shift, steps.spacing))
    return assembled(kind, shift, rows)


def assembled(kind: PairKind, shift: float, rows: Float64[ndarray, "queries points"]) -> Composition:
    """The composition whose queries, played one by one, have these values. shift: in (0, 6].

    Raises InvalidInput for rows that cannot be such values: of another grid, outside [0, 1], not those of no query in
    the first row, or falling with more queries or with z.
    """
    spacing, drift = grid_of(shift)
    low, high = _reach(len(rows) - 1, shift, spacing)
    start = np.maximum(0.0, -np.expm1(-spacing * np.arange(low, high + 1)))
    if rows.shape[1] != len(start) or not (
        (rows >= 0).all()
        and (rows <= 1).all()
        and np.array_equal(rows[0], start)
        and all((np.diff(rows, axis=axis) >= -_FALLING).all() for axis in (0, 1))
    ):
        raise InvalidInput(
            f"these are not the values of {len(rows) - 1} queries at shift {shift:g}; allowed: their own"
        )
    return Composition(kind, shift, spacing, low, rows, exp(drift) * _ROUNDING, drift)


def _reach(queries: int, shift: float, spacing: float) -> tuple[int, int]:
    """The least and the largest grid point that matter: losses rarely get further."""
    deviation = shift * sqrt(_VARIANCE * queries)
    further = _DEVIATIONS * deviation + 6 * shift
    below = min(further + 0.7 * deviation**2, LARGEST_EPSILON + 5)
    # Above 100 U is 1 but for e^-100, and the chord beyond is as good.
    return -ceil(below / spacing), ceil(min(further, 100.0) / spacing)


def _one_more(
    steps: QuerySteps, before: Float64[ndarray, " points"], first: int, reach: tuple[int, int]
) -> Float64[ndarray, " points"]:
    """U of one query more. Outside the reach it is the value at its lower end, and the chord to 1 at infinity."""
    low, high = reach[0] - first, reach[1] - first + 1
    margin = int(steps.offsets[-1])
    padded = Value(steps.spacing, first, before).padded(margin, margin)
    shifted = np.stack([padded[margin + low + o : margin + high + o] for o in steps.offsets.tolist()])
    found = np.empty(high - low)
    for start in range(0, high - low, _COLUMNS):
        gained = steps.weights @ shifted[:, start : start + _COLUMNS]
        gained += steps.certain[:, None]
        found[start : start + _COLUMNS] = gained.max(axis=0)
    value = Value(steps.spacing, reach[0], np.minimum(found, 1.0))
    return value.padded(low, len(before) - high)


def _law_of(value: Value) -> _Law:
    """The law of a loss whose hockey-stick curve is U: H(e^epsilon) = U(-epsilon)."""
    offsets = -(value.first + np.arange(len(value.values)))[::-1]
    weights, certain = weights_of(value.values[None, ::-1], np.exp(offsets * value.spacing))
    return _Law(int(offsets[0]), weights[0], float(certain[0]))


def _after(law: _Law, value: Value) -> Value:
    """E[U(z + L)] for a loss L of this law, on the grid of U."""
    count, size = len(law.weights), len(value.values)
    below, above = max(-law.first, 0), max(law.first + count - 1, 0)
    padded = value.padded(below, above)
    transform = scipy.fft.next_fast_len(len(padded) + count - 1, real=True)
    product = scipy.fft.rfft(padded, transform) * scipy.fft.rfft(law.weights[::-1], transform)
    start = below + law.first + count - 1
    found = scipy.fft.irfft(product, transform)[start : start + size]
    bounded = np.clip(found + law.certain + _TRANSFORM, 0.0, 1.0)
    return Value(value.spacing, value.first, np.maximum.accumulate(bounded))
