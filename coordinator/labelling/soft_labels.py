"""Soft labels of a pool from the noisy cells of record votes. Post-processing of what was released: it costs nothing.

A pool record lies in one query of each partition (QueryMap). Its label is modelled as multinomial, with an effect of
each of its queries: ln p(class c | x) = b_c + sum_q t_qc + const. The effects are those under which the pool gives the
released cells best, each cell weighed by its noise, with a normal prior around no effect. So what stands no higher than
the noise moves nothing, and a cell that no pool record lies in is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import scipy.optimize
import scipy.sparse
import scipy.special
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.errors import InvalidInput

# Prior variance of the effects of all of a record's queries together, in ln of probabilities.
_PRIOR_VARIANCE = 1.0
# Of how often each class occurs at all.
_CLASS_VARIANCE = 4.0
# Of a record's probability of a class among the pool records of a query; their mean is known only so well.
_SPREAD_IN_QUERY = 0.05
# How much the private records may differ from the pool in the share of a query, as a standard deviation of it.
_SHARE_SPREAD = 0.1
# Pool records that are looked at while fitting, at most: more do not change the shares by as much as their spread.
_MOST_FITTED = 4000
_MOST_STEPS = 300


@dataclass(frozen=True, eq=False)
class SoftLabels:
    """The probability of each class for each record of the pool, and how far each query stands above its noise.

    reliability: in [0, 1], the share of a query's information that is not the prior's: tot^2/4 over itself plus noise.
    """

    probabilities: Float64[ndarray, "pool classes"] = field(repr=False)
    reliability: Float64[ndarray, " queries"] = field(repr=False)


def soft_labels(
    cells: Float64[ndarray, "queries classes"],
    members: Int64[ndarray, "pool votes"],
    *,
    records: float | int,
    sigma: float | int,
    records_spread: float = 0.0,
) -> SoftLabels:
    """Soft labels of a pool.

    cells: the released sums, divided by what one record adds to a cell, so that they count records; members: the
    queries that each pool record lies in (nearest first); records: the public number of protected units; sigma: the
    standard deviation of each cell's noise, in the same unit; records_spread: that of the number of records, where it
    is not known. Raises InvalidInput where a value is out of range.
    """
    check_cells(cells, members, records=records, sigma=sigma)
    queries = len(cells)
    fitted = members[:: -(-len(members) // _MOST_FITTED)]
    share = np.bincount(fitted.ravel(), minlength=queries) / len(fitted)
    used = np.flatnonzero(share)
    place = np.full(queries, -1)
    place[used] = np.arange(len(used))
    expected = records * share[used]
    sums, totals = centred(cells[used], expected, sigma=sigma, unknown=records_spread / records)
    variance = sigma**2 + totals / 4 + 1 + totals**2 * _SPREAD_IN_QUERY / (share[used] * len(fitted))
    precision = np.full(len(used) + 1, members.shape[1] / _PRIOR_VARIANCE)
    precision[-1] = 1 / _CLASS_VARIANCE
    effects = _fit(indicator(place[fitted], len(used)), sums, totals, variance, precision)
    inside = place[members]
    # A pool record in a query that no fitted one lies in has no effect of it.
    each = np.where((inside >= 0)[..., None], effects[:-1][inside], 0.0).sum(axis=1)
    reliability = np.zeros(queries)
    reliability[used] = totals**2 / (totals**2 + 4 * variance)
    return SoftLabels(scipy.special.softmax(each + effects[-1], axis=1), reliability)


def check_cells(
    cells: Float64[ndarray, "queries classes"],
    members: Int64[ndarray, "pool votes"],
    *,
    records: float | int,
    sigma: float | int,
) -> None:
    """Raises InvalidInput unless these are finite sums of at least one record, and the pool lies in their queries."""
    if not (np.isfinite(cells).all() and np.isfinite(sigma) and sigma >= 0 and records >= 1):
        raise InvalidInput(
            f"cells with noise {sigma} of {records} records; allowed: finite sums and noise >= 0, of at least 1 record"
        )
    if members.min() < 0 or members.max() >= len(cells):
        raise InvalidInput(
            f"the pool lies in queries {members.min()} to {members.max()}; allowed: 0 to {len(cells) - 1}"
        )


def centred(
    cells: Float64[ndarray, "used classes"],
    expected: Float64[ndarray, " used"],
    *,
    sigma: float | int,
    unknown: float,
) -> tuple[Float64[ndarray, "used classes"], Float64[ndarray, " used"]]:
    """Cells with the total that is likeliest, given the noisy one and the share that the pool has of the query.

    unknown: the spread of the number of records, as a part of it.
    """
    classes = cells.shape[1]
    noisy, noise = cells.sum(axis=1), classes * sigma**2
    spread = (_SHARE_SPREAD * expected) ** 2 + (unknown * expected) ** 2 + expected
    totals = np.maximum((noisy * spread + expected * noise) / (noise + spread), 0.0)
    return cells - ((noisy - totals) / classes)[:, None], totals


def indicator(places: Int64[ndarray, "pool votes"], used: int) -> scipy.sparse.csr_matrix:
    """[pool, used]: 1 where a pool record lies in a query."""
    rows, votes = places.shape
    return scipy.sparse.csr_matrix(
        (np.ones(rows * votes), (np.repeat(np.arange(rows), votes), places.ravel())), shape=(rows, used)
    )


def _fit(
    inside: scipy.sparse.csr_matrix,
    sums: Float64[ndarray, "used classes"],
    totals: Float64[ndarray, " used"],
    variance: Float64[ndarray, " used"],
    precision: Float64[ndarray, " effects"],
) -> Float64[ndarray, "effects classes"]:
    """Effects of the queries, and of none (the last row): the maximum of the posterior."""
    used, classes = sums.shape
    mean = scipy.sparse.diags(1.0 / np.asarray(inside.sum(axis=0)).ravel()) @ inside.T
    weight = 1.0 / variance[:, None]

    def loss(flat: Float64[ndarray, " parameters"]) -> tuple[float, Float64[ndarray, " parameters"]]:
        effects = flat.reshape(used + 1, classes)
        chances = scipy.special.softmax(inside @ effects[:-1] + effects[-1], axis=1)
        rest = sums - totals[:, None] * (mean @ chances)
        value = (rest * rest * weight).sum() / 2 + (precision[:, None] * effects**2).sum() / 2
        pull = mean.T @ (-rest * weight * totals[:, None])
        slope = chances * (pull - (pull * chances).sum(axis=1, keepdims=True))
        gradient = np.concatenate([inside.T @ slope, slope.sum(axis=0)[None]]) + precision[:, None] * effects
        return float(value), gradient.ravel()

    found = scipy.optimize.minimize(
        loss, np.zeros((used + 1) * classes), jac=True, method="L-BFGS-B", options={"maxiter": _MOST_STEPS}
    )
    effects: Float64[ndarray, "effects classes"] = found.x.reshape(used + 1, classes)
    return effects
