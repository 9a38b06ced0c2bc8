"""Noise that is the sum of many parties' shares: written by the helper of this issue."""

from __future__ import annotations

from jaxtyping import Float64, Int64
from numpy import ndarray


def distributed_gaussian_rdp(
    votes_units: Int64[ndarray, " units"],
    orders: Float64[ndarray, " orders"],
    *,
    share_sigma: float,
    honest: int,
    dimension: int,
) -> Float64[ndarray, "units orders"]:
    """Not there yet."""
    raise NotImplementedError
