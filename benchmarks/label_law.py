"""The label's distribution under GNMax, and the cost of one pair of histograms: exact, by quadrature in logarithms.

p_c = integral of phi(t - n_c) prod_{k != c} Phi(t - n_k) dt, counts in units of sigma (docs/explanation/mathematics.md,
section 10.3). The integrand is log-concave with curvature of at least one, so its mass lies within nine standard
deviations of its peak; the trapezoid rule converges exponentially on it, and its steps are halved until two of them
agree. Classes of equal count are one group, and outcomes with peaks close together share their nodes.

A pair is a histogram before and after a unit's vote moved. Unit: whoever's votes moved; adjacency: that pair, in both
directions; view "label": the threshold bit and the label, one mechanism with m + 1 outcomes. Results depend on votes
and are Private.
"""

from __future__ import annotations

import numpy as np
import scipy
from jaxtyping import Bool, Float64, Int64
from numpy import ndarray

from protocols.bounds.rdp import check_orders
from protocols.errors import InvalidInput
from protocols.mechanisms.winner_law import gaussian_reaching_log_law
from protocols.noise import check_sigma
from protocols.research.data_dependent import check_counts
from protocols.research.private import Private

_SQRT_2 = np.sqrt(2.0)
_SQRT_2_OVER_PI = np.sqrt(2 / np.pi)
_LOG_SQRT_2PI = 0.5 * np.log(2 * np.pi)
# Nodes reach this many standard deviations beyond the peaks: what is left out is below 1e-17 of the integral.
_REACH = 9.0
# Outcomes whose peaks lie in one cell of this width, in sigma, share their nodes.
_CELL = 4.0
_FIRST_STEP = 0.25
# The error of the trapezoid rule is squared when its step is halved, so two steps that agree so well leave none.
_AGREE = 1e-8
_HALVINGS = 12
_NEWTON_STEPS = 100
_PEAK_WITHIN = 0.02
# With more distinct counts than this, rivals are binned, by a hundredth of their depth, to find peaks.
_MANY = 200
_BINS = 100.0
# Numbers held at a time.
_CHUNK = 1_000_000


def label_log_probabilities(
    counts: Float64[ndarray, "rows classes"], *, sigma: float | int
) -> Private[Float64[ndarray, "rows classes"]]:
    """ln P[GNMax's label = c] for every histogram and class, exact to 1e-12 and the rounding of the logarithm itself.

    counts: weighted votes, >= 0, of 2 classes or more; sigma: of the independent noise of each class, votes. Finite
    for any gap. Memory is bounded by chunks. Raises InvalidInput.
    """
    check_counts(counts)
    check_sigma("sigma", float(sigma))
    return Private(_log_law(counts, float(sigma)))


def pair_rdp(
    before: Float64[ndarray, "rows classes"],
    after: Float64[ndarray, "others their_classes"],
    orders: Float64[ndarray, " orders"],
    *,
    sigma: float | int,
    answered_before: Float64[ndarray, "bits 2"] | None,
    answered_after: Float64[ndarray, "bits 2"] | None,
    floor: float | None = None,
) -> Private[Float64[ndarray, "directions=2 rows orders"]]:
    """D_a(before || after) and D_a(after || before) of bit and label together, for each row; 0 where both are equal.

    With p the probability of an answer and P_c the label's, and p', P'_c after the move (the bit's noise and the
    label's are independent, so the outcomes are: none, 1 - p; class c, p P_c):

        (a - 1) D_a = ln[(1-p)^a (1-p')^(1-a) + p^a p'^(1-a) sum_c P_c^a P'_c^(1-a)]

    answered_...: ln(1 - p) and ln p in two columns (see `log_answered`), None for a mechanism that always answers or
    draws no noise for its threshold; floor: the votes that the noisy maximum itself must reach, if it must.
    orders > 1. Raises InvalidInput.
    """
    check_counts(before)
    check_counts(after)
    check_orders(orders)
    check_sigma("sigma", float(sigma))
    if before.shape != after.shape:
        raise InvalidInput(f"before of shape {before.shape} and after of shape {after.shape}; allowed: the same shape")
    if (answered_before is None) != (answered_after is None):
        raise InvalidInput("answer probabilities are given on one side only; allowed: both or neither")
    bits = [np.zeros((len(before), 0)) if bit is None else bit for bit in (answered_before, answered_after)]
    for bit in bits:
        if len(bit) != len(before) or not (bit <= 0).all():
            raise InvalidInput(f"log answer probabilities of shape {bit.shape}; allowed: <= 0, one row per histogram")
    # One move is often made by many records: each distinct pair is computed once, each distinct histogram too.
    pairs, member = np.unique(np.concatenate([before, after, *bits], axis=1), axis=0, return_inverse=True)
    classes, width = before.shape[1], bits[0].shape[1]
    result = np.empty((2, len(pairs), len(orders)))
    step = max(1, _CHUNK // ((classes + width) * 2))
    for start in range(0, len(pairs), step):
        part = pairs[start : start + step]
        both = np.concatenate([part[:, :classes], part[:, classes : 2 * classes]])
        distinct, which = np.unique(both, axis=0, return_inverse=True)
        law = (_log_law(distinct, float(sigma)) if floor is None else _reaching(distinct, float(sigma), floor))[
            which.ravel()
        ]
        laws = []
        for side, log_labels in enumerate(np.split(law, 2)):
            bit = part[:, 2 * classes + side * width : 2 * classes + (side + 1) * width]
            laws.append(np.concatenate([bit[:, :1], bit[:, 1:] + log_labels], axis=1) if width else log_labels)
        log_p, log_q, log_size = _alike(*laws)
        result[0, start : start + step] = _renyi(log_p, log_q, log_size, orders)
        result[1, start : start + step] = _renyi(log_q, log_p, log_size, orders)
    return Private(result[:, member.ravel()])


def _reaching(
    counts: Float64[ndarray, "rows classes"], sigma: float, floor: float
) -> Float64[ndarray, "rows outcomes"]:
    """ln P of each class that wins with a noisy count of at least `floor`, and last of none; a class once a level."""
    law = np.empty((len(counts), counts.shape[1] + 1))
    for row, histogram in zip(law, counts, strict=True):
        levels, member, classes = np.unique(histogram, return_inverse=True, return_counts=True)
        found = gaussian_reaching_log_law(levels, classes, sigma=sigma, threshold=floor)
        row[:-1], row[-1] = (found[:-1] - np.log(classes))[member], found[-1]
    return law


def log_answered(
    tested: Float64[ndarray, " rows"], *, sigma_threshold: float | int, threshold: float | int
) -> Float64[ndarray, "rows 2"]:
    """ln(1 - p) and ln p, p = P[tested + N(0, sigma_threshold^2) >= threshold]; tested: the number that is tested."""
    check_sigma("sigma_threshold", float(sigma_threshold))
    if not (np.isfinite(tested).all() and np.isfinite(threshold)):
        raise InvalidInput(f"the threshold is {threshold} or a tested count is not finite; allowed: finite numbers")
    g = (tested - threshold) / sigma_threshold
    return np.stack([scipy.special.log_ndtr(-g), scipy.special.log_ndtr(g)], axis=1)


def _alike(
    log_p: Float64[ndarray, "rows outcomes"], log_q: Float64[ndarray, "rows outcomes"]
) -> tuple[Float64[ndarray, "rows some"], Float64[ndarray, "rows some"], Float64[ndarray, "rows some"]]:
    """Outcomes that are equal on both sides merged into one, and ln of how many each represents (-inf: none).

    Of 10,000 classes most have no votes.
    """
    order = np.lexsort((log_q, log_p), axis=1)
    pair = [np.take_along_axis(logs, order, axis=1) for logs in (log_p, log_q)]
    new = np.zeros(log_p.shape, dtype=bool)
    for logs in pair:
        new[:, 1:] |= logs[:, 1:] != logs[:, :-1]
    rank, at = new.cumsum(axis=1), np.arange(len(log_p))[:, None]
    size = np.zeros((len(log_p), int(rank[:, -1].max()) + 1))
    np.add.at(size, (at, rank), 1.0)
    some = [np.zeros_like(size), np.zeros_like(size)]
    for reduced, logs in zip(some, pair, strict=True):
        reduced[at, rank] = logs
    with np.errstate(divide="ignore"):
        return some[0], some[1], np.log(size)


def _renyi(
    log_p: Float64[ndarray, "rows outcomes"],
    log_q: Float64[ndarray, "rows outcomes"],
    log_size: Float64[ndarray, "rows outcomes"],
    orders: Float64[ndarray, " n"],
) -> Float64[ndarray, "rows n"]:
    """D_a(P || Q) = ln(1 + sum Q [r^a - 1 - a (r - 1)])/(a - 1), r = P/Q.

    Both sum to 1, so what is taken away sums to 0; each term is >= 0 (r^a is convex), and nothing cancels.
    log_size: ln of how many outcomes each column stands for.
    """
    rows, outcomes = log_p.shape
    a = orders[None, :, None]
    result = np.empty((rows, len(orders)))
    step = max(1, _CHUNK // (outcomes * len(orders)))
    for start in range(0, rows, step):
        part = slice(start, start + step)
        log_r = (log_p[part] - log_q[part])[:, None, :]
        terms = _log_excess(log_r, a) + (log_q[part] + log_size[part])[:, None, :]
        top = np.maximum(terms.max(axis=2), -1e6)
        with np.errstate(divide="ignore"):
            total = top + np.log(np.exp(terms - top[:, :, None]).sum(axis=2))
        result[part] = np.logaddexp(0.0, total)
    return result / (orders - 1)


def _log_excess(
    log_r: Float64[ndarray, "rows 1 outcomes"], a: Float64[ndarray, "1 orders 1"]
) -> Float64[ndarray, "rows orders outcomes"]:
    """ln(r^a - 1 - a (r - 1)); -inf at r = 1. A series in ln r where a ln r is small."""
    grown = a * log_r
    near = np.abs(grown) + np.abs(log_r) < 0.1
    # e^y - 1 - y for y = a ln r, less a times the same for y = ln r.
    excess = _second_order(np.where(near, grown, 0.0)) - a * _second_order(np.where(near, log_r, 0.0))
    with np.errstate(divide="ignore"):
        small = np.log(np.maximum(excess, 0.0))
        # Where r^a is large the rest is taken from it; where it is small, there is no danger of overflow.
        shrunk = np.minimum(grown, 0.0)
        plain = np.exp(shrunk) - 1.0 - a * np.expm1(np.minimum(log_r, 0.0))
        rest = np.exp(-np.maximum(grown, 0.0)) * (1.0 - a) + a * np.exp(np.minimum((1.0 - a) * log_r, 0.0))
        large = np.maximum(grown, 0.0) + np.log1p(-np.minimum(rest, 1.0))
        return np.where(near, small, np.where(grown > 0.0, large, np.log(np.maximum(plain, 0.0))))


def _second_order(y: Float64[ndarray, "..."]) -> Float64[ndarray, "..."]:
    """e^y - 1 - y for |y| < 0.1: Taylor's series."""
    total = np.zeros_like(y)
    for power in range(10, 1, -1):
        total = (total + 1.0) * y / power if power > 2 else (total + 1.0) * y * y / 2
    return total


def _log_law(counts: Float64[ndarray, "rows classes"], sigma: float) -> Float64[ndarray, "rows classes"]:
    """`label_log_probabilities`, for rows with equally many distinct counts at a time."""
    descending = np.argsort(-counts, axis=1, kind="stable")
    ordered = np.take_along_axis(counts, descending, axis=1)
    rank = (np.diff(ordered, axis=1, prepend=ordered[:, :1]) != 0).cumsum(axis=1)
    law = np.empty_like(counts)
    for groups in np.unique(rank[:, -1]) + 1:
        rows = np.flatnonzero(rank[:, -1] + 1 == groups)
        step = max(1, _CHUNK // (int(groups) * counts.shape[1]))
        for start in range(0, len(rows), step):
            part = rows[start : start + step]
            at = np.arange(len(part))[:, None]
            # In units of sigma below the plurality, so that nothing is lost where all counts are large.
            v, sizes = np.empty((len(part), groups)), np.zeros((len(part), groups))
            v[at, rank[part]] = (ordered[part] - ordered[part, :1]) / sigma
            np.add.at(sizes, (at, rank[part]), 1.0)
            law[part[:, None], descending[part]] = np.take_along_axis(_group_law(v, sizes), rank[part], axis=1)
    return law


def _group_law(
    v: Float64[ndarray, "rows groups"], sizes: Float64[ndarray, "rows groups"]
) -> Float64[ndarray, "rows groups"]:
    """ln of the probability of one class of each group; v: counts in sigma, distinct, descending."""
    peaks = _peaks(v, sizes)
    cell = np.floor((peaks - peaks.min()) / _CELL).astype(np.int64)
    # One problem for each row and each cell in which it has a peak.
    rows = np.repeat(np.arange(len(v))[:, None], v.shape[1], axis=1)
    problems, owner = np.unique(np.stack([rows.ravel(), cell.ravel()]), axis=1, return_inverse=True)
    owner = owner.reshape(v.shape)
    row = problems[0]
    low, high = np.full(len(row), np.inf), np.full(len(row), -np.inf)
    np.minimum.at(low, owner, peaks)
    np.maximum.at(high, owner, peaks)
    law = np.empty((len(row), v.shape[1]))
    mine = np.zeros(law.shape, dtype=bool)
    mine[owner, np.arange(v.shape[1])[None, :]] = True
    left = np.arange(len(row))
    intervals = 2 * int(np.ceil((_CELL + 2 * _REACH) / _FIRST_STEP / 2))
    for _ in range(_HALVINGS):
        agree = np.empty(len(left), dtype=bool)
        step = max(1, _CHUNK // (v.shape[1] * (intervals + 1)))
        for start in range(0, len(left), step):
            part = left[start : start + step]
            fine, coarse = _trapezoid(v[row[part]], sizes[row[part]], low[part], high[part], intervals)
            law[part] = fine
            agree[start : start + step] = _agrees(fine, coarse, mine[part])
        left = left[~agree]
        if len(left) == 0:
            break
        intervals *= 2
    assert len(left) == 0, "the quadrature of a log-concave integrand did not converge"
    return np.take_along_axis(law[owner], np.arange(v.shape[1])[None, :, None], axis=2)[:, :, 0]


def _agrees(
    fine: Float64[ndarray, "problems groups"], coarse: Float64[ndarray, "problems groups"], mine: Bool[ndarray, "p g"]
) -> Bool[ndarray, " problems"]:
    # Logarithms that are large themselves agree to their rounding only.
    allowed = np.maximum(_AGREE, 1e-13 * np.abs(fine))
    return ~((np.abs(fine - coarse) > allowed) & mine).any(axis=1)


def _trapezoid(
    v: Float64[ndarray, "problems groups"],
    sizes: Float64[ndarray, "problems groups"],
    low: Float64[ndarray, " problems"],
    high: Float64[ndarray, " problems"],
    intervals: int,
) -> tuple[Float64[ndarray, "problems groups"], Float64[ndarray, "problems groups"]]:
    """ln of the integral for every group by all nodes, and by every second one."""
    h = (high - low + 2 * _REACH) / intervals
    t = (low - _REACH)[:, None] + h[:, None] * np.arange(intervals + 1)
    u = t[:, None, :] - v[:, :, None]
    base = scipy.special.log_ndtr(u)
    terms = (sizes[:, :, None] * base).sum(axis=1)[:, None, :] - base - u * u / 2
    top = terms.max(axis=2)
    each = np.exp(terms - top[:, :, None])
    scale = top - _LOG_SQRT_2PI + np.log(h)[:, None]
    with np.errstate(divide="ignore"):
        return scale + np.log(each.sum(axis=2)), scale + np.log(2 * each[:, :, ::2].sum(axis=2))


def _peaks(
    v: Float64[ndarray, "rows groups"], sizes: Float64[ndarray, "rows groups"]
) -> Float64[ndarray, "rows groups"]:
    """Approximately where phi(t - v_c) prod Phi(t - v_k), k all classes but c, is largest."""
    rivals, weights, own = _rivals(v, sizes)
    peaks = np.empty_like(v)
    step = max(1, _CHUNK // rivals.size)
    for start in range(0, v.shape[1], step):
        part = slice(start, start + step)
        mine = own[:, part, None] == np.arange(rivals.shape[1])
        peaks[:, part] = _newton(v[:, part], v[:, :1], rivals[:, None, :], weights[:, None, :] - mine)
    return peaks


def _newton(
    centre: Float64[ndarray, "rows outcomes"],
    top: Float64[ndarray, "rows 1"],
    rivals: Float64[ndarray, "rows 1 rivals"],
    weights: Float64[ndarray, "rows outcomes rivals"],
) -> Float64[ndarray, "rows outcomes"]:
    """Newton's method from the left, where it cannot overshoot: the slope is convex and decreasing in t."""
    t = (centre + top) / 2
    for _ in range(_NEWTON_STEPS):
        u = t[:, :, None] - rivals
        mills = _SQRT_2_OVER_PI / scipy.special.erfcx(-u / _SQRT_2)
        slope = np.maximum(centre - t + (weights * mills).sum(axis=2), 0.0)
        move = slope / (1 + (weights * mills * np.maximum(mills + u, 0.0)).sum(axis=2))
        t = t + move
        if move.max() < _PEAK_WITHIN:
            break
    return t


def _rivals(
    v: Float64[ndarray, "rows groups"], sizes: Float64[ndarray, "rows groups"]
) -> tuple[Float64[ndarray, "rows rivals"], Float64[ndarray, "rows rivals"], Int64[ndarray, "rows groups"]]:
    """The counts, the number of classes with each, and the index of each group among them; binned if there are many.

    Only for the search for peaks, which need not be exact: bins grow with the depth, and each is replaced by its mean.
    """
    rows, groups = v.shape
    own = np.tile(np.arange(groups), (rows, 1))
    if groups <= _MANY:
        return v, sizes, own
    own = np.floor(_BINS * np.log1p(-v)).astype(np.int64)
    own = (np.diff(own, axis=1, prepend=own[:, :1]) != 0).cumsum(axis=1)
    at = np.arange(rows)[:, None]
    weights, means = np.zeros((2, rows, int(own.max()) + 1))
    np.add.at(weights, (at, own), sizes)
    np.add.at(means, (at, own), sizes * v)
    return np.divide(means, weights, out=np.zeros_like(means), where=weights > 0), weights, own
