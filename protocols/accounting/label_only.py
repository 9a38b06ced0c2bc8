"""Worst-case cost of releasing only a label or only a threshold bit (the label view).

The bounds hold for every histogram: they are data-independent and may be charged to a budget and published.
They are strictly below the Gaussian mechanism's, because an observer of the label does not see the noisy
histogram. They must not be used for an observer who does (view = histogram). Adjacency is replace-one: one
unit of total vote weight s moves its votes, its soft votes and its abstentions in any way. Derivation, error
bounds and limits: docs/explanation/label-only-bound.md.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from protocols.accounting.label_only_table import ORDERS, covers, interpolate, load
from protocols.accounting.label_supremum import bit_supremum, label_supremum
from protocols.errors import InvalidInput

__all__ = ["ORDERS", "label_rdp", "threshold_rdp"]

_TOLERANCE = 2e-5


def threshold_rdp(
    d: float | Float64[ndarray, "..."], orders: float | Float64[ndarray, "..."]
) -> Float64[ndarray, "..."]:
    """RDP of one noisy threshold test of which the bit alone is seen: an upper bound for all histograms.

    d = s/sigma1 >= 0, finite: the unit's total vote weight over the threshold's noise; orders > 1, finite;
    both broadcast. Holds in both directions. Never above the Gaussian bound a d^2/2; 0 at d = 0. Fast for
    orders in ORDERS (a table), about a millisecond for each other pair. Raises InvalidInput.
    """
    shifts, wanted = _checked(d, orders)
    return _bit(shifts.ravel(), wanted.ravel()).reshape(shifts.shape)


def label_rdp(
    d: float | Float64[ndarray, "..."], orders: float | Float64[ndarray, "..."], *, classes: int
) -> Float64[ndarray, "..."]:
    """RDP of one GNMax label that alone is seen: an upper bound for all histograms.

    d = s/sigma2 >= 0, finite: the unit's total vote weight over the label's noise; orders > 1, finite; both
    broadcast; classes >= 2. Two classes are a threshold bit with shift sqrt(2) d; three or more have one
    bound for any number. Holds in both directions. Never above the Gaussian bound a d^2; 0 at d = 0. Fast for
    orders in ORDERS (a table), some milliseconds for each other pair. Raises InvalidInput.
    """
    if classes < 2:
        raise InvalidInput(f"classes = {classes}; allowed: 2 or more")
    shifts, wanted = _checked(d, orders)
    flat, flat_orders = shifts.ravel(), wanted.ravel()
    if classes == 2:
        # Rounding of sqrt(2) d must not lift it above the Gaussian bound.
        return np.minimum(_bit(np.sqrt(2.0) * flat, flat_orders), flat_orders * flat**2).reshape(shifts.shape)
    bound = np.empty_like(flat)
    tabled = covers(flat, flat_orders)
    if tabled.any():
        bound[tabled] = flat_orders[tabled] * interpolate(load().label, flat[tabled], flat_orders[tabled])
    bound[~tabled] = label_supremum(flat[~tabled], flat_orders[~tabled], tolerance=_TOLERANCE)
    return bound.reshape(shifts.shape)


def _bit(shifts: Float64[ndarray, " problems"], orders: Float64[ndarray, " problems"]) -> Float64[ndarray, " problems"]:
    """The threshold bound, from the table where it has the order and the shift."""
    bound = np.empty_like(shifts)
    tabled = covers(shifts, orders)
    if tabled.any():
        bound[tabled] = orders[tabled] / 2.0 * interpolate(load().bit, shifts[tabled], orders[tabled])
    bound[~tabled] = bit_supremum(shifts[~tabled], orders[~tabled], tolerance=_TOLERANCE)
    return bound


def _checked(
    d: float | Float64[ndarray, "..."], orders: float | Float64[ndarray, "..."]
) -> tuple[Float64[ndarray, "..."], Float64[ndarray, "..."]]:
    """Both as float64 arrays of their common shape, once their ranges are checked."""
    shifts, wanted = np.asarray(d, dtype=np.float64), np.asarray(orders, dtype=np.float64)
    if not (np.isfinite(shifts) & (shifts >= 0.0)).all():
        raise InvalidInput(f"d spans [{shifts.min()}, {shifts.max()}]; allowed: finite, >= 0")
    if not (np.isfinite(wanted) & (wanted > 1.0)).all():
        raise InvalidInput(f"orders span [{wanted.min()}, {wanted.max()}]; allowed: finite, > 1")
    try:
        shifts, wanted = np.broadcast_arrays(shifts, wanted)
    except ValueError as error:
        raise InvalidInput(f"d of shape {shifts.shape} and orders of shape {wanted.shape} do not broadcast") from error
    return shifts, wanted
