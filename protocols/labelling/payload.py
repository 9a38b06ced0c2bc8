"""What a coordinator stores of a batch that was released: its labels, and behind them the cells where records vote."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from protocols.ledger.ledger import StoredBatch
from protocols.levels.level import Counted
from protocols.study.study import Study


def stored_payload(counted: Counted) -> bytes:
    """The bytes to store of a batch that was counted."""
    return b"".join(each.astype("<i8").tobytes() for each in (counted.labels, counted.cells) if each is not None)


def stored_labels(stored: StoredBatch) -> Int64[ndarray, " queries"]:
    """The labels of a batch that was released."""
    return np.frombuffer(stored.payload, dtype="<i8")[: stored.queries]


def stored_cells(study: Study, stored: StoredBatch) -> Int64[ndarray, "queries classes"] | None:
    """The noisy sums in lattice units; None where teachers vote, or nothing was released."""
    cells = np.frombuffer(stored.payload, dtype="<i8")[stored.queries :]
    return cells.reshape(-1, study.classes).astype(np.int64) if len(cells) else None
