"""Results as pandas; pandas is imported only when a table is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from protocols.errors import InvalidInput
from protocols.installing import install

if TYPE_CHECKING:
    import pandas as pd


def frame(columns: Mapping[str, object]) -> pd.DataFrame:
    """A DataFrame of these columns. Raises InvalidInput, with the next step, where pandas is not installed."""
    try:
        import pandas as pd
    except ModuleNotFoundError as missing:
        raise InvalidInput(
            f"a table needs pandas, which is not installed: {install('sim')}, or use the arrays"
        ) from missing
    return pd.DataFrame(dict(columns))
