"""Label-only cost under discrete Gaussian noise: at first the Gaussian bound, which holds for it as well."""

from __future__ import annotations

from jaxtyping import Float64, Int64
from numpy import ndarray


def lattice_label_rdp(
    votes_units: Int64[ndarray, " units"],
    orders: Float64[ndarray, " orders"],
    *,
    sigma_units: float,
    classes: int,
) -> Float64[ndarray, "units orders"]:
    """a k^2/sigma^2 (Canonne, Kamath, Steinke 2020, Thm 4)."""
    return orders[None, :] * (votes_units[:, None] / sigma_units) ** 2


def lattice_bit_rdp(
    votes_units: Int64[ndarray, " units"], orders: Float64[ndarray, " orders"], *, sigma_units: float
) -> Float64[ndarray, "units orders"]:
    """a k^2/(2 sigma^2)."""
    return orders[None, :] * (votes_units[:, None] / sigma_units) ** 2 / 2
