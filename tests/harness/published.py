"""The conversion with which published tables were made; Conclave charges by a tighter one."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64
from numpy import ndarray


def rdp_to_epsilon_mironov(
    rdp: Float64[ndarray, "..."], orders: Float64[ndarray, "..."], *, delta: float
) -> Float64[ndarray, "..."]:
    """epsilon = R + ln(1/delta)/(a - 1) (Mironov 2017, Prop. 3)."""
    return rdp - np.log(delta) / (orders - 1)
