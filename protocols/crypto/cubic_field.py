"""The field of p^3 elements over p = 2^31 - 1: F_p[x] / (x^3 - 7), each element three coefficients, the constant first.

x^3 - 7 has no root modulo p, and so no factor: 7 generates the group of units (Park & Miller 1988, whose multiplier is
7^5), and 3 divides p - 1, so 7 is no cube. Three numbers modulo p are so one number, which is zero only if all are.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import UInt32
from numpy import ndarray

from protocols.crypto.field import plus, times

_CUBE = np.array([7], dtype=np.uint32)


def cubic_times(left: UInt32[ndarray, "*batch 3"], right: UInt32[ndarray, "*batch 3"]) -> UInt32[ndarray, "*batch 3"]:
    """left * right."""
    terms = times(left[..., :, None], right[..., None, :])
    low = terms[..., 0, 0], plus(terms[..., 0, 1], terms[..., 1, 0]), terms[..., 1, 1]
    high = plus(terms[..., 1, 2], terms[..., 2, 1]), terms[..., 2, 2]
    middle = plus(low[2], plus(terms[..., 0, 2], terms[..., 2, 0]))
    return np.stack([plus(low[0], times(high[0], _CUBE)), plus(low[1], times(high[1], _CUBE)), middle], axis=-1)
