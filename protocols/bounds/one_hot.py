"""What a unit's one-hot contribution costs when only labels are seen: it moves within a query, or from one to another.

A unit votes once in the whole study: weight s in one cell of queries x classes. Replace-one either moves that weight
to another class of the same query (the label bound D2), or takes it out of one query and puts it into another: two
one-cell shifts, whose noises are independent, so their costs add. Given the noisy counts of the other classes, a
one-cell shift is a threshold bit: D1(a, d) = sup_t D_a(Bern(Phi(t)) || Bern(Phi(t + d))), the bound of a threshold
test, by joint quasi-convexity (van Erven & Harremoes 2014, Thm 13). The cost is max(D2, 2 D1). Proof:
docs/explanation/record-votes.md, section 3. Adjacency: replace-one. View: label.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.bounds import label_only
from protocols.bounds.lattice_label_only import lattice_bit_rdp, lattice_label_rdp
from protocols.errors import InvalidInput


def one_hot_label_rdp(
    d: Float64[ndarray, " units"],
    orders: Float64[ndarray, " orders"],
    *,
    classes: int,
    nearest: int = 1,
    threshold_d: Float64[ndarray, " units"] | None = None,
) -> Float64[ndarray, "units orders"]:
    """RDP of all labels of a study in which each unit votes with weight s/sqrt(nearest) in `nearest` queries, once.

    d = s/sigma >= 0 of the labels' noise; threshold_d = s/sigma1 of the threshold's, None where every query is
    answered; orders > 1; classes >= 2; nearest >= 1. `nearest` max(D2 + T, 2 D1 + 2 T) at d/sqrt(nearest): a query that
    both of two neighbours vote in costs at most D2 + T, each other one D1 + T, and there are at most 2 `nearest` of
    those. Both directions. Never above the Gaussian bound, a d^2 (+ a threshold_d^2). Raises InvalidInput.
    """
    shift = _each(d, nearest)[:, None]
    swap = label_only.label_rdp(shift, orders[None, :], classes=classes)
    leave = 2.0 * label_only.threshold_rdp(shift, orders[None, :])
    if threshold_d is not None:
        bit = label_only.threshold_rdp(_each(threshold_d, nearest)[:, None], orders[None, :])
        swap, leave = swap + bit, leave + 2.0 * bit
    return nearest * np.maximum(swap, leave)


def lattice_one_hot_label_rdp(
    units: Int64[ndarray, " units"],
    orders: Float64[ndarray, " orders"],
    *,
    sigma_units: float | int,
    classes: int,
    nearest: int = 1,
    threshold_sigma_units: float | int | None = None,
) -> Float64[ndarray, "units orders"]:
    """The same under discrete Gaussian noise; units: the lattice units in each of the `nearest` queries, >= 0.

    A one-cell shift is a threshold bit on the lattice too: given the other classes' noisy counts, which side of their
    maximum the count falls on; a tie goes one way or the other by the classes' order, which moves the threshold by a
    whole unit. Raises InvalidInput where a sigma is below 64 units or a value is out of range.
    """
    _each(np.zeros(0), nearest)
    swap = lattice_label_rdp(units, orders, sigma_units=sigma_units, classes=classes)
    leave = 2.0 * lattice_bit_rdp(units, orders, sigma_units=sigma_units)
    if threshold_sigma_units is not None:
        bit = lattice_bit_rdp(units, orders, sigma_units=threshold_sigma_units)
        swap, leave = swap + bit, leave + 2.0 * bit
    return nearest * np.maximum(swap, leave)


def _each(d: Float64[ndarray, " units"], nearest: int) -> Float64[ndarray, " units"]:
    if nearest < 1:
        raise InvalidInput(f"nearest is {nearest}; allowed: from 1")
    return d / sqrt(nearest)
