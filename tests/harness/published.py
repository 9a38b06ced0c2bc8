"""Figures as published tables have them: the cost of each label, and the moments accountant's conversion."""

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.research.data_dependent import total_label_rdp


def label_rdp(
    counts: Float64[ndarray, "queries classes"],
    orders: Float64[ndarray, " orders"],
    *,
    sigma: float,
    sensitivity: Float64[ndarray, " units"],
) -> Float64[ndarray, "units queries orders"]:
    """The RDP of each label by Papernot et al. 2018, one query at a time."""
    each = [total_label_rdp(row[None], orders, sigma=sigma, sensitivity=sensitivity).for_research() for row in counts]
    return np.stack(each, axis=1)


def moments_to_epsilon(
    log_moments: Float64[ndarray, " moments"], moments: Int64[ndarray, " moments"], *, delta: float
) -> tuple[float, int]:
    """min_l (alpha(l) + ln(1/delta))/l, and the moment l that attains it (Abadi et al. 2016, Thm 2)."""
    each = (log_moments - np.log(delta)) / moments
    return float(each.min()), int(moments[each.argmin()])
