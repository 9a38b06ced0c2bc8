"""Arguments of the public interface, checked where they enter; and results as pandas, which is imported only then."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float64
from numpy import ndarray
from numpy.typing import ArrayLike

from protocols.bounds.rdp import check_budget
from protocols.budgets.planned import Budgets
from protocols.errors import InvalidInput
from protocols.installing import install
from protocols.study.units import large_delta

if TYPE_CHECKING:
    import pandas as pd


def numbers(called: str, value: ArrayLike) -> Float64[ndarray, "..."]:
    """The argument as an array of float64. Raises InvalidInput for text, for rows of unequal length, and where values
    are masked, of which an array would hold what lies under the mask."""
    check_unmasked(called, value)
    try:
        if np.iscomplexobj(value):
            raise TypeError
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(f"{called} is not numeric; allowed: a number, or an array of numbers") from None


def check_unmasked(called: str, value: object) -> None:
    """Raises InvalidInput for an array with masked values."""
    if np.ma.is_masked(value):
        raise InvalidInput(f"{called} has masked values; allowed: none")


def check_whole(called: str, value: object, *, least: int) -> None:
    """Raises InvalidInput unless the argument is a whole number of at least `least`."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        raise InvalidInput(f"{called} is {value!r}; allowed: a whole number >= {least}")


def budgets_of(epsilon: ArrayLike, delta: ArrayLike, *, parties: int, names: Sequence[str] | None) -> Budgets:
    """One budget per party; names: by default party-0 and so on. Raises InvalidInput."""
    called = tuple(names if names is not None else (f"party-{i:0{len(str(parties - 1))}d}" for i in range(parties)))
    if any(not isinstance(name, str) for name in called):
        raise InvalidInput(f"names are {str(list(called))[:80]}; allowed: text")
    if len(called) != parties or len(set(called)) < parties:
        raise InvalidInput(f"names are {len(called)}, {len(set(called))} distinct; allowed: {parties}, each once")
    arrays = []
    for what, value in (("epsilon", epsilon), ("delta", delta)):
        array = numbers(what, value)
        if array.shape not in ((), (parties,)):
            raise InvalidInput(
                f"{what} has shape {array.shape}; allowed: a number, or one for each of {parties} parties"
            )
        arrays.append(np.broadcast_to(array, parties).copy())
    check_budget(*arrays)
    return Budgets(called, *arrays)


def warn_of_delta(budgets: Budgets, unit: str, units: int | None = None) -> None:
    """Warns the caller's caller of a delta above 1/units. units: None where not known."""
    doubt = large_delta(float(budgets.delta.max()), unit, units, parties=len(budgets.names))
    if doubt is not None:
        warnings.warn(doubt, stacklevel=3)


def frame(columns: Mapping[str, object]) -> pd.DataFrame:
    """A DataFrame of these columns. Raises InvalidInput, with the next step, where pandas is not installed."""
    try:
        import pandas as pd
    except ModuleNotFoundError as missing:
        raise InvalidInput(
            f"a table needs pandas, which is not installed: {install('sim')}, or use the arrays"
        ) from missing
    return pd.DataFrame(dict(columns))
