"""Whole steps: features are scaled, rounded and clipped to integers, so that sums and products of them are exact.

Sums of whole numbers below 2**53 are the same in any order in float64, so on every machine and with every BLAS.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from jaxtyping import Float, Float64
from numpy import ndarray

# A feature of 1 is so many steps; larger ones than MOST_STEPS are clipped to it.
STEPS: Final = 2**10
MOST_STEPS: Final = 2**17
EXACT: Final = 2**53


def whole_steps(
    values: Float[ndarray, "*shape"], *, scale: Float64[ndarray, " width"] | float = 1.0, most: int = MOST_STEPS
) -> Float64[ndarray, "*shape"]:
    """Values times `scale` as whole steps, from -most to most."""
    return np.clip(np.rint(values.astype(np.float64) * scale * STEPS), -most, most)
