"""Exact label distributions of GNMax, for a histogram and for every histogram that one unit can turn it into.

p_c = integral of phi(t - n_c) prod_{k != c} Phi(t - n_k) dt, counts in units of sigma; where the noisy maximum must
reach a floor, over t >= floor alone. All is in logarithms, so that outcomes of probability e^-15000 keep their relative
precision. Three things make it fast. Classes of equal count are one group with a multiplicity. The integrand of every
outcome has its own nodes around its own peak (it is log-concave, with curvature of at least one). And a move of weight
s from group i to group j multiplies the integrand by a function of i and one of j, so that all moves together are a
matrix product over the nodes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from jaxtyping import Float64, Int64
from numpy import ndarray

_LOG_SQRT_2PI = 0.5 * np.log(2 * np.pi)
# The nodes reach this many standard deviations beyond the peak: what is left out is below 2e-17 of the integral.
_REACH = 8.6
# Step of the trapezoid rule, in standard deviations of the integrand's sharpest part.
_STEP = 0.6
_NEWTON_STEPS = 7
# Above a floor the integrand does not vanish at the first node: Gauss-Legendre on panels at most so many standard
# deviations wide, over each of which the tail falls by at most so many nats.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_PANEL, _PANEL_FALL = 4.0, 4.0


@dataclass(frozen=True, eq=False, repr=False)
class GroupedHistograms:
    """Distinct histograms with as many groups of equal classes each.

    counts: of each group in units of sigma, descending; compared: what is compared with a threshold, in votes (equal
    for the classes of a group); sizes: how many classes a group has, >= 1.
    """

    counts: Float64[ndarray, "rows groups"]
    compared: Float64[ndarray, "rows groups"]
    sizes: Int64[ndarray, "rows groups"]

    def part(self, rows: slice) -> GroupedHistograms:
        """Some of the rows."""
        return GroupedHistograms(self.counts[rows], self.compared[rows], self.sizes[rows])


@dataclass(frozen=True, eq=False, repr=False)
class Block:
    """Queries whose histograms have equally many groups.

    queries: their positions; rows: the row of `distinct` of each; member: the group of each class.
    """

    queries: Int64[ndarray, " queries"]
    rows: Int64[ndarray, " queries"]
    member: Int64[ndarray, "queries classes"]
    distinct: GroupedHistograms


@dataclass(frozen=True, eq=False, repr=False)
class Moves:
    """Log-probabilities of one class of each group, before and after weight moves from group i to group j.

    before: [rows, groups]; others: of a class of group c that neither gave nor got, [rows, c, i, j]; giver, getter: of
    the class that gave and of the one that got, [rows, i, j].
    """

    before: Float64[ndarray, "rows groups"]
    others: Float64[ndarray, "rows groups givers getters"]
    giver: Float64[ndarray, "rows givers getters"]
    getter: Float64[ndarray, "rows givers getters"]


def blocks(
    counts: Float64[ndarray, "queries classes"], compared: Float64[ndarray, "queries classes"], *, sigma: float
) -> list[Block]:
    """The queries by number of groups; permutations of a histogram are one. counts, compared, sigma: votes."""
    order = np.lexsort((-compared, -counts), axis=1)
    sorted_counts = np.take_along_axis(counts, order, axis=1)
    sorted_compared = np.take_along_axis(compared, order, axis=1)
    differs = (np.diff(sorted_counts, axis=1) != 0) | (np.diff(sorted_compared, axis=1) != 0)
    rank = np.concatenate([np.zeros((len(counts), 1), dtype=np.int64), differs], axis=1).cumsum(axis=1)
    member = np.empty_like(rank)
    np.put_along_axis(member, order, rank, axis=1)
    groups = rank[:, -1] + 1
    made = []
    for number in np.unique(groups):
        queries = np.flatnonzero(groups == number)
        at = np.arange(len(queries))[:, None]
        table = np.zeros((3, len(queries), number))
        table[0][at, rank[queries]] = sorted_counts[queries]
        table[1][at, rank[queries]] = sorted_compared[queries]
        np.add.at(table[2], (at, rank[queries]), 1.0)
        rows, inverse = np.unique(np.hstack(list(table)), axis=0, return_inverse=True)
        values, held, sizes = np.hsplit(rows, 3)
        distinct = GroupedHistograms(values / sigma, held, sizes.astype(np.int64))
        made.append(Block(queries, inverse.reshape(-1), member[queries], distinct))
    return made


def moves(histograms: GroupedHistograms, *, shift: float, floor: float | None = None) -> Moves:
    """The label distribution before and after every move of `shift` = s/sigma from one group to another.

    floor: what the noisy maximum must reach, in units of sigma, for there to be a label; None: it always is one.
    """
    v, sizes = histograms.counts, histograms.sizes.astype(np.float64)
    t, log_step = _nodes(v, v, sizes, shift, floor)
    weight, base = _integrand(t, log_step, v, v, sizes)
    before = _log_sum(weight)
    others = _log_product(weight, _log_ndtr(_gap(t, v) + shift) - base, _log_ndtr(_gap(t, v) - shift) - base)
    # The class that gave has a density at its lower count, the one that got at its higher: other peaks, other nodes.
    t, log_step = _nodes(v - shift, v, sizes, shift, floor)
    weight, base = _integrand(t, log_step, v - shift, v, sizes)
    giver = _log_sum(weight[:, :, None, :] + _log_ndtr(_gap(t, v) - shift) - base)
    t, log_step = _nodes(v + shift, v, sizes, shift, floor)
    weight, base = _integrand(t, log_step, v + shift, v, sizes)
    getter = _log_sum(weight[:, :, None, :] + _log_ndtr(_gap(t, v) + shift) - base).swapaxes(1, 2)
    return Moves(before, others, giver, getter)


def _nodes(
    centre: Float64[ndarray, "rows outcomes"],
    v: Float64[ndarray, "rows groups"],
    sizes: Float64[ndarray, "rows groups"],
    shift: float,
    floor: float | None,
) -> tuple[Float64[ndarray, "rows outcomes nodes"], Float64[ndarray, "rows outcomes some"]]:
    """Nodes around the peak of phi(t - centre_c) prod Phi(t - v_k), k all classes but c, and the log of their weights.

    The peak by Newton's method from the left, where it cannot overshoot: the slope is convex and decreasing.
    """
    rivals = sizes[:, None, :] - np.eye(v.shape[1])
    gap = v[:, None, :]
    t = np.maximum(centre, (centre + v[:, :1]) / 2)
    for _ in range(_NEWTON_STEPS):
        slope, curvature = _slope(t, centre, gap, rivals)
        t = t + np.maximum(slope, 0.0) / curvature
    _, curvature = _slope(t, centre, gap, rivals)
    left = _REACH / np.sqrt(curvature) + shift
    _, sharpest = _slope(t - 4 / np.sqrt(curvature), centre, gap, rivals)
    if floor is not None:
        # Beyond a floor above the peak the log of the integrand falls by at least beyond u + u^2/2.
        beyond = np.maximum(floor - t - shift, 0.0)
        start = np.maximum(t - left, floor)
        end = np.where(beyond > 0, floor - beyond + np.sqrt(beyond**2 + _REACH**2), t + _REACH + shift)
        return _panels(start, end, np.maximum(np.sqrt(sharpest) / _PANEL, beyond / _PANEL_FALL))
    length = left + _REACH + shift
    count = int(np.ceil((length * np.sqrt(sharpest)).max() / _STEP)) + 1
    h = length / (count - 1)
    return (t - left)[:, :, None] + h[:, :, None] * np.arange(count), np.log(h)[:, :, None]


def _panels(
    start: Float64[ndarray, "rows outcomes"],
    end: Float64[ndarray, "rows outcomes"],
    per_length: Float64[ndarray, "rows outcomes"],
) -> tuple[Float64[ndarray, "rows outcomes nodes"], Float64[ndarray, "rows outcomes nodes"]]:
    """Gauss-Legendre nodes from start to end, and the logs of their weights, on at least so many panels a length."""
    panels = int(np.ceil(((end - start) * per_length).max())) + 1
    half = (end - start)[:, :, None] / (2 * panels)
    middle = start[:, :, None] + half * (2 * np.arange(panels) + 1)
    nodes = middle[..., None] + half[..., None] * _NODES
    return nodes.reshape(*start.shape, -1), np.log(half) + np.log(np.tile(_WEIGHTS, panels))


def _slope(
    t: Float64[ndarray, "rows outcomes"],
    centre: Float64[ndarray, "rows outcomes"],
    v: Float64[ndarray, "rows 1 groups"],
    rivals: Float64[ndarray, "rows outcomes groups"],
) -> tuple[Float64[ndarray, "rows outcomes"], Float64[ndarray, "rows outcomes"]]:
    """First derivative of the log of the integrand, and minus its second."""
    u = t[:, :, None] - v
    mills = np.exp(-u * u / 2 - _LOG_SQRT_2PI - scipy.special.log_ndtr(u))
    return centre - t + (rivals * mills).sum(axis=2), 1 + (rivals * mills * np.maximum(mills + u, 0.0)).sum(axis=2)


def _integrand(
    t: Float64[ndarray, "rows outcomes nodes"],
    log_step: Float64[ndarray, "rows outcomes some"],
    centre: Float64[ndarray, "rows outcomes"],
    v: Float64[ndarray, "rows groups"],
    sizes: Float64[ndarray, "rows groups"],
) -> tuple[Float64[ndarray, "rows outcomes nodes"], Float64[ndarray, "rows outcomes groups nodes"]]:
    """ln[phi(t - centre_c) prod_{k != c} Phi(t - v_k) weight] at the nodes of each outcome c, and ln Phi(t - v_k)."""
    base = _log_ndtr(_gap(t, v))
    own = np.arange(v.shape[1])
    product = np.einsum("rk,rckn->rcn", sizes, base) - base[:, own, own]
    u = t - centre[:, :, None]
    return product - u * u / 2 - _LOG_SQRT_2PI + log_step, base


def _gap(
    t: Float64[ndarray, "rows outcomes nodes"], v: Float64[ndarray, "rows groups"]
) -> Float64[ndarray, "rows outcomes groups nodes"]:
    return t[:, :, None, :] - v[:, None, :, None]


def _log_ndtr(u: Float64[ndarray, "..."]) -> Float64[ndarray, "..."]:
    """ln Phi(u); 0 where it is above -1e-20, as it is for most rivals at most nodes."""
    near = u < 9.2
    values = np.zeros_like(u)
    values[near] = scipy.special.log_ndtr(u[near])
    return values


def _log_product(
    weight: Float64[ndarray, "rows outcomes nodes"],
    give: Float64[ndarray, "rows outcomes groups nodes"],
    get: Float64[ndarray, "rows outcomes groups nodes"],
) -> Float64[ndarray, "rows outcomes givers getters"]:
    """ln sum_n exp(weight + give_i + get_j) for every i and j: a matrix product, scaled so that nothing overflows."""
    left, right = weight[:, :, None, :] + give, get
    top_left, top_right = left.max(axis=3, keepdims=True), right.max(axis=3, keepdims=True)
    product = np.exp(left - top_left) @ np.exp(right - top_right).swapaxes(2, 3)
    return np.log(product) + top_left + top_right.swapaxes(2, 3)


def _log_sum(terms: Float64[ndarray, "... nodes"]) -> Float64[ndarray, "..."]:
    top = terms.max(axis=-1)
    return np.log(np.exp(terms - top[..., None]).sum(axis=-1)) + top
