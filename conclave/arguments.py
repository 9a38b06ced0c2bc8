"""Arguments of the public interface, checked where they enter."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64
from numpy import ndarray
from numpy.typing import ArrayLike

from protocols.errors import InvalidInput


def numbers(called: str, value: ArrayLike) -> Float64[ndarray, "..."]:
    """The argument as an array of float64. Raises InvalidInput for text and for rows of unequal length."""
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(f"{called} is not numeric; allowed: a number, or an array of numbers") from None


def check_whole(called: str, value: object, *, least: int) -> None:
    """Raises InvalidInput unless the argument is a whole number of at least `least`."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        raise InvalidInput(f"{called} is {value!r}; allowed: a whole number >= {least}")
