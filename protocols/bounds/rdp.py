"""Renyi differential privacy: the curve, its composition, and its conversion to (epsilon, delta).

Adjacency is replace-one throughout; the code that makes a curve states for which unit and view it holds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from protocols.errors import InvalidInput


@dataclass(frozen=True)
class RdpCurve:
    """RDP at each order: the privacy cost of everything composed so far (Mironov 2017).

    orders: > 1; values: >= 0, same shape. Curves add per order (Mironov 2017, Prop. 1).
    """

    orders: Float64[ndarray, " orders"]
    values: Float64[ndarray, " values"]

    def __post_init__(self) -> None:
        check_orders(self.orders)
        if self.values.shape != self.orders.shape:
            raise InvalidInput(f"{len(self.values)} values for {len(self.orders)} orders; allowed: one each")
        if not (np.isfinite(self.values).all() and (self.values >= 0).all()):
            raise InvalidInput(f"RDP spans [{self.values.min()}, {self.values.max()}]; allowed: finite, >= 0")

    def __add__(self, other: RdpCurve) -> RdpCurve:
        if not np.array_equal(self.orders, other.orders):
            raise InvalidInput("curves of different orders do not add; use the same orders")
        return RdpCurve(self.orders, self.values + other.values)

    def __mul__(self, count: int | float) -> RdpCurve:
        return RdpCurve(self.orders, self.values * count)

    def to_epsilon(self, *, delta: float) -> tuple[float, float]:
        """(epsilon, order): the least epsilon at delta over the orders, and the order that attains it.

        Only for a curve that was fixed beforehand: a guarantee under stopping takes ONE order, chosen before
        anything was spent (docs/explanation/mathematics.md, section 5.2).
        """
        epsilon = rdp_to_epsilon(self.values, self.orders, delta=delta)
        best = int(epsilon.argmin())
        return float(epsilon[best]), float(self.orders[best])


def rdp_to_epsilon(
    rdp: Float64[ndarray, "..."], orders: Float64[ndarray, "..."], *, delta: float | Float64[ndarray, "..."]
) -> Float64[ndarray, "..."]:
    """epsilon = R + ln(1 - 1/a) - ln(delta a)/(a - 1), at least 0 (Canonne, Kamath, Steinke 2020, Prop. 12)."""
    check_orders(orders)
    check_delta(np.asarray(delta))
    bad = rdp[~(rdp >= 0)]
    if bad.size:
        raise InvalidInput(f"RDP is {bad.flat[0]}; allowed: >= 0")
    raw = rdp + np.log1p(-1 / orders) - (np.log(delta) + np.log(orders)) / (orders - 1)
    return np.maximum(raw, 0.0)


def rdp_to_epsilon_mironov(
    rdp: Float64[ndarray, "..."], orders: Float64[ndarray, "..."], *, delta: float | Float64[ndarray, "..."]
) -> Float64[ndarray, "..."]:
    """epsilon = R + ln(1/delta)/(a - 1) (Mironov 2017, Prop. 3): the conversion of the PATE papers' tables.

    Never below `rdp_to_epsilon`, which everything that charges uses; this one stands beside it in analyses.
    """
    check_orders(orders)
    check_delta(np.asarray(delta))
    return rdp - np.log(delta) / (orders - 1)


def epsilon_to_rdp(
    epsilon: Float64[ndarray, "..."], orders: Float64[ndarray, "..."], *, delta: Float64[ndarray, "..."]
) -> Float64[ndarray, "..."]:
    """The RDP that (epsilon, delta) affords at each order: the conversion of rdp_to_epsilon solved for R.

    Negative if the order cannot give that epsilon at all.
    """
    return epsilon - np.log1p(-1 / orders) + (np.log(delta) + np.log(orders)) / (orders - 1)


def check_orders(orders: Float64[ndarray, "..."]) -> None:
    """Raises InvalidInput unless every Renyi order is finite and > 1."""
    if orders.size == 0 or not (np.isfinite(orders).all() and (orders > 1).all()):
        raise InvalidInput(f"Renyi orders are {orders}; allowed: finite and > 1")


def check_delta(delta: Float64[ndarray, "..."]) -> None:
    """Raises InvalidInput unless every delta is in (0, 1)."""
    bad = delta[~((delta > 0) & (delta < 1))]
    if bad.size:
        raise InvalidInput(f"delta is {bad.flat[0]}; allowed: in (0, 1)")


def check_sensitivity(sensitivity: Float64[ndarray, " units"]) -> None:
    """Raises InvalidInput unless every unit's total weight is finite and > 0."""
    if sensitivity.size == 0 or not (np.isfinite(sensitivity).all() and (sensitivity > 0).all()):
        raise InvalidInput(f"sensitivities are {sensitivity}; allowed: finite numbers of votes > 0")


def check_budget(epsilon: Float64[ndarray, "..."], delta: Float64[ndarray, "..."]) -> None:
    """Raises InvalidInput unless every epsilon is finite and > 0 and every delta in (0, 1)."""
    bad = epsilon[~(np.isfinite(epsilon) & (epsilon > 0))]
    if bad.size:
        raise InvalidInput(f"epsilon is {bad[0]}; allowed: finite and > 0")
    check_delta(delta)
