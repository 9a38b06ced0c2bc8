"""Matrix products in Z_2^32 by float64 products that are exact: every partial sum is an integer below 2^53.

Integer matrices have no fast product in NumPy. Factors are therefore cut into signed halves of 16 bits whose products
a float64 holds (the splitting of Ozaki et al. 2012, "Error-free transformations of matrix multiplication").
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float64, Int64, UInt32
from numpy import ndarray

Multiply = Callable[[UInt32[ndarray, "rows inner"]], UInt32[ndarray, "rows outputs"]]

# With more terms, a sum of products of 16-bit halves might exceed 2^53.
MAX_INNER = 2**20
_EXACT = 2.0**53


def by_uniform(matrix: UInt32[ndarray, "outputs inner"]) -> Multiply:
    """Rows -> rows @ matrix.T modulo 2^32, for any matrix."""
    low, high = _halves(matrix.T)
    swapped = np.concatenate([high, low])

    def multiply(rows: UInt32[ndarray, "rows inner"]) -> UInt32[ndarray, "rows outputs"]:
        left_low, left_high = _halves(rows)
        crossed = np.concatenate([left_low, left_high], axis=1) @ swapped
        return _wrapped(left_low @ low) + (_wrapped(crossed) << np.uint32(16))

    return multiply


def by_small(matrix: Int64[ndarray, "outputs inner"]) -> Multiply:
    """Rows -> rows @ matrix.T modulo 2^32, for a matrix whose rows have sums of absolute values below 2^37."""
    right = np.ascontiguousarray(matrix.T, dtype=np.float64)
    one_product = float(np.abs(right).sum(axis=0).max(initial=0.0)) * 2.0**31 < _EXACT

    def multiply(rows: UInt32[ndarray, "rows inner"]) -> UInt32[ndarray, "rows outputs"]:
        if one_product:
            return _wrapped(rows.view(np.int32).astype(np.float64) @ right)
        low, high = _halves(rows)
        return _wrapped(low @ right) + (_wrapped(high @ right) << np.uint32(16))

    return multiply


def _halves(
    values: UInt32[ndarray, "rows columns"],
) -> tuple[Float64[ndarray, "rows columns"], Float64[ndarray, "rows columns"]]:
    """(low, high), integers of at most 2^15 in size, with values = low + 2^16 high modulo 2^32."""
    low = values.astype(np.int16)
    high = ((values - low.astype(np.uint32)) >> np.uint32(16)).astype(np.int16)
    return low.astype(np.float64), high.astype(np.float64)


def _wrapped(exact: Float64[ndarray, "rows columns"]) -> UInt32[ndarray, "rows columns"]:
    return exact.astype(np.int64).astype(np.uint32)
