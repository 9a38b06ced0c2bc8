"""Exact label distributions of GNMax, for a histogram and for every histogram that one unit can turn it into.

p_c = integral of phi(t - n_c) prod_{k != c} Phi(t - n_k) dt, counts in units of sigma; where the noisy maximum must
reach a floor, over t >= floor alone. All is in logarithms, so that outcomes of probability e^-15000 keep their relative
precision. Three things make it fast. Classes of equal count are one group with a multiplicity. The integrand of every
outcome has its own nodes around its own peak (it is log-concave, with curvature of at least one). And a move of weight
s from group i to group j multiplies the integrand by a function of i and one of j, so that all moves together are a
matrix product over the nodes.

Exact per-instance RDP of GNMax and its kin: the divergence between this histogram and every neighbour of it.

Adjacency replace-one; view "label". A unit has one vote of weight s on a query; replaced, it gives s to another class.
The label distributions before and after are integrals in one dimension, so the Renyi divergence is
exact, in both directions. A mechanism with a threshold is one mechanism with m + 1 outcomes: the refusal, and each
label together with the answer (docs/explanation/mathematics.md, section 10.3: threshold + p * label would be a mean);
where one draw decides, labels are integrals above the threshold, and the refusal is the product of what falls below.

For an arbitrary unit, any class with at least s votes may lose them; for a unit whose own vote is known, only the m - 1
moves out of its own class matter. The direction that is reported is the larger of the two totals. The figure belongs to
these votes and no others, so it is Private; only the worst case holds for all data.

A unit with several votes on a query is refused: only D(P || P') is convex in the move, so its vertices, which are
moves of all votes at once, bound one direction and not the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy
from jaxtyping import Bool, Float64, Int64
from numpy import ndarray

from protocols.bounds.rdp import check_orders, check_sensitivity
from protocols.errors import InvalidInput
from protocols.mechanisms.decision import Decision
from protocols.research.data_dependent import check_counts
from protocols.research.private import Private
from protocols.votes import ABSTAIN, check_votes

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


# Distinct counts of one histogram, and moves in units of sigma, up to which the quadrature is tested.
MOST_GROUPS = 150
LARGEST_MOVE = 50.0
# A unit's weight may exceed the count that contains its vote only by the rounding of that count.
_ROUNDING = 1e-9
# Cells [rows, outcomes, givers, getters] held at a time.
_CHUNK = 400_000
# Exponents from which sums are taken in logarithms.
_LARGE = 300.0


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class QuerySetting:
    """What is released about a query: GNMax's label, where a threshold is reached if there is one.

    sigma: of the label's noise, votes. threshold and sigma_threshold (votes): both None for GNMax; sigma_threshold None
    where the noisy maximum itself must reach the threshold (`Decision`). student_votes: for
    Interactive-GNMax, M p_j of each query and class (public), which is subtracted from the counts before the threshold
    test. Raises InvalidInput.
    """

    sigma: float
    threshold: float | None = None
    sigma_threshold: float | None = None
    student_votes: Float64[ndarray, "queries classes"] | None = None

    def __post_init__(self) -> None:
        _ = Decision(sigma=self.sigma, threshold=self.threshold, sigma_threshold=self.sigma_threshold)
        if self.student_votes is not None and self.sigma_threshold is None:
            raise InvalidInput(
                "student_votes are given without a test with noise of its own; allowed: both, for Interactive-GNMax"
            )

    @property
    def floor(self) -> float | None:
        """What the noisy maximum itself must reach, in units of sigma; None where nothing is asked of it."""
        return None if self.threshold is None or self.sigma_threshold is not None else self.threshold / self.sigma


@dataclass(frozen=True, eq=False, repr=False)
class Directions:
    """RDP in both directions: forward D(M(D) || M(D')), reverse D(M(D') || M(D)), each maximal over the moves."""

    forward: Float64[ndarray, "..."]
    reverse: Float64[ndarray, "..."]


def query_rdp(
    counts: Float64[ndarray, "queries classes"],
    orders: Float64[ndarray, " orders"],
    *,
    setting: QuerySetting,
    sensitivity: float | int,
    own_votes: Int64[ndarray, " votes"] | None = None,
) -> Private[Directions]:
    """RDP of each query for a unit of weight `sensitivity` (votes, > 0), shape [queries, orders] in each direction.

    counts: weighted, >= 0, at most 150 distinct ones a query; own_votes: class ids of the unit's own votes, or ABSTAIN
    where it publicly takes no part and so pays nothing; None for any unit of this weight. orders > 1. Absolute error
    about 1e-13 a query, and 1e-15/(a - 1) near order 1. Raises InvalidInput.
    """
    units = np.array([float(sensitivity)])
    made = _checked_blocks(counts, orders, setting, units, None if own_votes is None else own_votes[None])
    both = np.zeros((2, len(counts), len(orders)))
    for block in made:
        costs = _costs(block.distinct, orders, setting, float(sensitivity))
        if own_votes is None:
            both[:, block.queries] = costs.max(axis=2)[:, block.rows]
        else:
            giver, there = _givers(block, own_votes)
            both[:, block.queries] = costs[:, block.rows, giver] * there[:, None]
    return Private(Directions(both[0], both[1]))


def total_rdp(
    counts: Float64[ndarray, "queries classes"],
    orders: Float64[ndarray, " orders"],
    *,
    setting: QuerySetting,
    sensitivity: Float64[ndarray, " units"],
    own_votes: Int64[ndarray, "voters votes"] | None = None,
) -> Private[Float64[ndarray, "units orders"]]:
    """Sum over queries in each direction, and the larger of the two sums; arguments as in `query_rdp`.

    The cost of a histogram is computed once for all units of one weight; each picks its own moves from it.
    """
    made = _checked_blocks(counts, orders, setting, sensitivity, own_votes)
    total = np.zeros((2, len(sensitivity), len(orders)))
    distinct, weight = np.unique(sensitivity, return_inverse=True)
    for index, s in enumerate(distinct):
        units = np.flatnonzero(weight == index)
        for block in made:
            rows, groups = block.distinct.counts.shape
            costs = _costs(block.distinct, orders, setting, float(s))
            if own_votes is None:
                often = np.bincount(block.rows, minlength=rows).astype(np.float64)
                total[:, units] += (often @ costs.max(axis=2))[:, None]
                continue
            flat = costs.reshape(2, rows * groups, len(orders))
            for unit in units:
                giver, there = _givers(block, own_votes[unit])
                often = np.bincount((block.rows * groups + giver)[there], minlength=rows * groups).astype(np.float64)
                total[:, unit] += often @ flat
    return Private(total.max(axis=0))


def _checked_blocks(
    counts: Float64[ndarray, "queries classes"],
    orders: Float64[ndarray, " orders"],
    setting: QuerySetting,
    sensitivity: Float64[ndarray, " units"],
    own_votes: Int64[ndarray, "voters votes"] | None,
) -> list[Block]:
    """The queries in blocks; checks all arguments first. Raises InvalidInput."""
    check_counts(counts)
    check_orders(orders)
    check_sensitivity(sensitivity)
    largest = sensitivity.max() / setting.sigma
    if largest > LARGEST_MOVE:
        raise InvalidInput(
            f"a vote of weight {sensitivity.max():g} at sigma {setting.sigma:g} is {largest:g} sigma; allowed: at most "
            f"{LARGEST_MOVE:g} for exact accounting"
        )
    taken_off = setting.student_votes
    if taken_off is not None and (taken_off.shape != counts.shape or not np.isfinite(taken_off).all()):
        raise InvalidInput(f"student_votes of shape {taken_off.shape}; allowed: finite ones of shape {counts.shape}")
    if own_votes is not None:
        _check_own(own_votes, counts, sensitivity)
    elif not (counts.max(axis=1) >= sensitivity.max() * (1 - _ROUNDING)).all():
        raise InvalidInput(
            f"a query has no class with {sensitivity.max():g} votes, the weight of a unit; allowed: counts that hold "
            "every unit's vote"
        )
    compared = counts if taken_off is None else counts - taken_off
    if setting.sigma_threshold is None:
        compared = np.zeros_like(counts)
    made = blocks(counts, compared, sigma=setting.sigma)
    most = made[-1].distinct.counts.shape[1]
    if most > MOST_GROUPS:
        raise InvalidInput(
            f"a query has {most} distinct counts; allowed: at most {MOST_GROUPS} for exact accounting (classes with "
            "equal counts are one)"
        )
    return made


def _check_own(
    own_votes: Int64[ndarray, "voters votes"],
    counts: Float64[ndarray, "queries classes"],
    sensitivity: Float64[ndarray, " units"],
) -> None:
    queries, classes = counts.shape
    if own_votes.shape != (len(sensitivity), queries):
        raise InvalidInput(f"own_votes of shape {own_votes.shape}; allowed: {(len(sensitivity), queries)}")
    check_votes(own_votes, classes=classes)
    there = own_votes != ABSTAIN
    held = counts[np.arange(queries), np.maximum(own_votes, 0)]
    if (there & (held < sensitivity[:, None] * (1 - _ROUNDING))).any():
        raise InvalidInput("a unit's own vote is for a class whose count is below its weight; allowed: counts with it")


def _givers(
    block: Block, own_votes: Int64[ndarray, " queries"]
) -> tuple[Int64[ndarray, " block"], Bool[ndarray, " block"]]:
    """The group of a unit's own vote on each query of the block, and whether it has one."""
    own = own_votes[block.queries]
    return block.member[np.arange(len(own)), np.maximum(own, 0)], own != ABSTAIN


def _costs(
    distinct: GroupedHistograms, orders: Float64[ndarray, " orders"], setting: QuerySetting, s: float
) -> Float64[ndarray, "directions rows givers orders"]:
    """The largest divergence, forward and reverse, over the moves out of each group; 0 where no unit can give."""
    rows, groups = distinct.counts.shape
    costs = np.zeros((2, rows, groups, len(orders)))
    step = max(1, _CHUNK // ((groups + 3) * groups * groups))
    for start in range(0, rows, step):
        part = distinct.part(slice(start, start + step))
        before, after, often = _outcomes(part, setting, s)
        size = part.sizes[:, :, None] - np.eye(groups, dtype=np.int64)
        possible = (part.counts[:, :, None] * setting.sigma >= s * (1 - _ROUNDING)) & (size > 0)
        for direction, (p, q) in enumerate(((before, after), (after, before))):
            for index, divergence in enumerate(_divergences(p, q, often, orders)):
                costs[direction, start : start + step, :, index] = np.where(possible, divergence, 0.0).max(axis=2)
    return costs


def _outcomes(
    histograms: GroupedHistograms, setting: QuerySetting, s: float
) -> tuple[
    Float64[ndarray, "rows outcomes givers getters"],
    Float64[ndarray, "rows outcomes givers getters"],
    Float64[ndarray, "rows outcomes givers getters"],
]:
    """Log-probabilities of every outcome before and after each move, and the number of outcomes that have them.

    Outcomes: a class of each group that takes no part in the move, the one that gives, the one that gets, the refusal.
    """
    rows, groups = histograms.counts.shape
    law = moves(histograms, shift=s / setting.sigma, floor=setting.floor)
    shape = (rows, groups, groups, groups)
    giver, getter = law.before[:, None, :, None], law.before[:, None, None, :]
    pair = (rows, 1, groups, groups)
    before = [
        np.broadcast_to(law.before[:, :, None, None], shape),
        *(np.broadcast_to(x, pair) for x in (giver, getter)),
    ]
    after = [law.others, law.giver[:, None], law.getter[:, None]]
    same = np.eye(groups)
    left = histograms.sizes[:, :, None, None] - same[None, :, :, None] - same[None, :, None, :]
    often = [np.maximum(left, 0.0), np.ones(pair), np.ones(pair)]
    if setting.floor is not None:
        for side, refused in zip((before, after), _refusals(histograms, setting.floor, s / setting.sigma), strict=True):
            side.append(refused[:, None])
        often.append(np.ones(pair))
    if setting.threshold is not None and setting.sigma_threshold is not None:
        top = histograms.compared.max(axis=1)[:, None, None]
        gap = [(np.broadcast_to(x, (rows, groups, groups)) - setting.threshold) / setting.sigma_threshold
               for x in (top, _largest_after(histograms, s))]  # fmt: skip
        for side, g in zip((before, after), gap, strict=True):
            answered = scipy.special.log_ndtr(g)[:, None]
            side[:] = [*(x + answered for x in side), scipy.special.log_ndtr(-g)[:, None]]
        often.append(np.ones(pair))
    return np.concatenate(before, axis=1), np.concatenate(after, axis=1), np.concatenate(often, axis=1)


def _refusals(
    histograms: GroupedHistograms, floor: float, shift: float
) -> tuple[Float64[ndarray, "rows givers getters"], Float64[ndarray, "rows givers getters"]]:
    """ln P[no noisy count reaches the floor], before and after each move."""
    missed, groups = scipy.special.log_ndtr(floor - histograms.counts), histograms.counts.shape[1]
    before = (histograms.sizes * missed).sum(axis=1)[:, None, None]
    giver = scipy.special.log_ndtr(floor - histograms.counts + shift) - missed
    getter = scipy.special.log_ndtr(floor - histograms.counts - shift) - missed
    return np.broadcast_to(before, (len(before), groups, groups)), before + giver[:, :, None] + getter[:, None, :]


def _largest_after(histograms: GroupedHistograms, s: float) -> Float64[ndarray, "rows givers getters"]:
    """The largest value that is compared with the threshold after each move."""
    held, groups = histograms.compared, histograms.compared.shape[1]
    same = np.eye(groups, dtype=np.int64)
    left = histograms.sizes[:, :, None, None] - same[None, :, :, None] - same[None, :, None, :]
    others = np.where(left > 0, held[:, :, None, None], -np.inf).max(axis=1)
    return np.maximum(others, np.maximum(held[:, :, None] - s, held[:, None, :] + s))


def _divergences(
    p: Float64[ndarray, "rows outcomes givers getters"],
    q: Float64[ndarray, "rows outcomes givers getters"],
    often: Float64[ndarray, "rows outcomes givers getters"],
    orders: Float64[ndarray, " orders"],
) -> Iterator[Float64[ndarray, "rows givers getters"]]:
    """D_a(P || Q) = ln(sum_c p_c^a q_c^(1-a))/(a - 1) (van Erven & Harremoes 2014, eq. 2), by order.

    The sum is 1 + sum q h(r), h(r) = e^(a r) - 1 - a (e^r - 1) >= 0, r = ln(p/q), since the sum of p and that of q are
    both 1: no digits are lost where P and Q are close. Where e^(a r) is large the sum is taken in logarithms.
    """
    r = np.where(often > 0, p - q, 0.0)
    weight = often * np.exp(q)
    drift = (weight * np.expm1(np.minimum(r, _LARGE))).sum(axis=1)
    largest = r.max(axis=1)
    for order in orders:
        exponent = order * r
        large = order * largest > _LARGE
        if large.any():
            np.minimum(exponent, _LARGE, out=exponent)
        np.expm1(exponent, out=exponent)
        exponent *= weight
        excess = exponent.sum(axis=1) - order * drift
        divergence = np.log1p(np.maximum(excess, 0.0)) / (order - 1)
        if large.any():
            divergence = np.where(large, _large_divergence(p, q, often, float(order)), divergence)
        yield divergence


def _large_divergence(
    p: Float64[ndarray, "rows outcomes givers getters"],
    q: Float64[ndarray, "rows outcomes givers getters"],
    often: Float64[ndarray, "rows outcomes givers getters"],
    order: float,
) -> Float64[ndarray, "rows givers getters"]:
    """The divergence, computed from the logarithms of the terms."""
    with np.errstate(divide="ignore"):
        logs = np.where(often > 0, order * p + (1 - order) * q + np.log(often), -np.inf)
    top = logs.max(axis=1)
    return np.maximum(top + np.log(np.exp(logs - top[:, None]).sum(axis=1)), 0.0) / (order - 1)
