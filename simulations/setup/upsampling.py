"""Individualized PATE by upsampling: a record is learned by u teachers (Boenisch et al. 2023, section 4).

Records with larger budgets are duplicated into more teachers, so a record moves u votes: its sensitivity is u. The
duplicates must be assigned to teachers across all data, which nobody holds in a federation: simulation only.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.bounds.rdp import check_budget
from protocols.errors import InvalidInput

# The default for how many teachers may learn one record.
LARGEST = 12


def duplicates(epsilon: Float64[ndarray, " groups"], *, largest: int = LARGEST) -> Int64[ndarray, " groups"]:
    """How many teachers learn each record of each group: whole numbers in the ratios of the budgets.

    The smallest whole numbers up to `largest` whose ratios come closest to the budgets' (least largest relative
    error; at least 1). Raises InvalidInput for a budget out of range, or budgets further apart than `largest`.
    """
    check_budget(epsilon, np.full(len(epsilon), 0.5))
    ratio = epsilon / epsilon.min()
    if ratio.max() > largest:
        raise InvalidInput(
            f"budgets span a ratio of {ratio.max():g}; allowed: at most {largest}, the teachers that learn one record"
        )
    bases = np.arange(1, int(largest / ratio.max()) + 1)
    tried = np.rint(bases[:, None] * ratio)
    error = np.abs(tried / (bases[:, None] * ratio) - 1).max(axis=1)
    # Rounded, so that 1e-16 does not decide for a large multiple.
    return tried[int(np.round(error, 9).argmin())].astype(np.int64)


def relative_size(copies: Int64[ndarray, " groups"], shares: Float64[ndarray, " groups"]) -> float:
    """The factor by which upsampling enlarges the data, and so teachers, threshold and noise. shares: of the
    records.
    """
    return float((copies * shares).sum() / shares.sum())


def deal(
    copies: Int64[ndarray, " records"], *, teachers: int, rng: np.random.Generator
) -> list[Int64[ndarray, " shard"]]:
    """Shards of equal size (within one), record r in copies[r] different ones.

    The copies of a record are consecutive and dealt in turn, so no teacher gets two. Raises InvalidInput when
    a record has more copies than there are teachers, or a teacher would get none.
    """
    if copies.min() < 1 or copies.max() > teachers:
        raise InvalidInput(f"copies span [{copies.min()}, {copies.max()}]; allowed: from 1 to the {teachers} teachers")
    if copies.sum() < teachers:
        raise InvalidInput(f"{copies.sum()} copies of records for {teachers} teachers; allowed: at least one each")
    order = rng.permutation(len(copies))
    dealt = np.repeat(order, copies[order])
    return [np.sort(dealt[teacher::teachers]) for teacher in range(teachers)]
