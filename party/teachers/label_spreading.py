"""A teacher that learns from the public pool, too: its records' labels spread over the pool, then logistic regression.

Label spreading (Zhou et al. 2004) on the graph of the pool's nearest neighbours. Each record gives its label to the
pool's records that are nearest to it, and labels flow along the graph; the logistic regression learns the records and
the pool with the labels that it got. The pool is public: the teacher depends on its own shard and on no other record.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray
from scipy.sparse import csr_array
from sklearn.neighbors import NearestNeighbors

from party.teachers.linear import fit_weighted, read_linear
from party.teachers.teacher import Shard, Teacher, TeacherKind, check_shards
from protocols.errors import InvalidInput
from runtime.label_spreading import NEIGHBOURS, adjacency, spread
from runtime.models import check_cpu_only

_NAME: Final = "label_spreading"
_ROUNDS: Final = 60  # 0.9 ** 60 < 0.002
# What the pool counts in the logistic regression, against the records.
_OF_POOL: Final = 0.5


@dataclass(frozen=True, eq=False)
class _Pool:
    """The public pool, flattened, with what is found of it once for all teachers."""

    rows: Float32[ndarray, "pool features"] = field(repr=False)

    @cached_property
    def nearest(self) -> Any:  # scikit-learn has no types
        """The pool's index of neighbours."""
        return NearestNeighbors(n_neighbors=min(NEIGHBOURS, len(self.rows)), n_jobs=1).fit(self.rows)

    @cached_property
    def smooth(self) -> csr_array:
        """The pool's graph; S in the paper."""
        return adjacency(self.nearest, records=len(self.rows))


@dataclass(frozen=True, eq=False)
class LabelSpreadingKind(TeacherKind):
    """Trains logistic regressions on records and pool. pool: None where none is known: it only loads then."""

    pool: _Pool | None = None

    @property
    def uses_pool(self) -> bool:
        return True

    def with_pool(self, pool: Float32[ndarray, "pool ..."]) -> LabelSpreadingKind:
        """Raises InvalidInput for a pool of fewer than 2 records."""
        if len(pool) < 2:
            raise InvalidInput(f"the pool has {len(pool)} records; allowed for teacher 'label_spreading': at least 2")
        return LabelSpreadingKind(_Pool(pool.reshape(len(pool), -1)))

    def fit(self, shards: list[Shard], *, classes: int, seeds: list[int]) -> list[Teacher]:
        """Trains one teacher per shard, see TeacherKind.fit. Raises InvalidInput without a pool, too, and for one of
        other records."""
        check_shards(shards, classes, seeds)
        if self.pool is None:
            raise InvalidInput("teacher 'label_spreading' learns from a public pool, too; allowed where one is known")
        return [_fit_one(self.pool, inputs, labels, classes) for inputs, labels in shards]

    def load(self, path: Path) -> Teacher:
        """Reads what LinearTeacher.save wrote. Raises DataCorrupt."""
        return read_linear(path, kind=_NAME)


def label_spreading(*, device: str) -> LabelSpreadingKind:
    """Logistic regression on a shard and on the public pool, over which the shard's labels spread."""
    check_cpu_only(_NAME, device)
    return LabelSpreadingKind()


def _fit_one(
    pool: _Pool, inputs: Float32[ndarray, "records ..."], labels: Int64[ndarray, " records"], classes: int
) -> Teacher:
    rows = inputs.reshape(len(inputs), -1)
    if rows.shape[1] != pool.rows.shape[1]:
        raise InvalidInput(f"the pool's records have {pool.rows.shape[1]} values; allowed: {rows.shape[1]}, as here")
    near = pool.nearest.kneighbors(rows, return_distance=False)
    given = np.zeros((len(pool.rows), classes))
    np.add.at(given, (near.ravel(), np.repeat(labels, near.shape[1])), 1.0)
    found = spread(pool.smooth, given, rounds=_ROUNDS)
    reached = np.flatnonzero(found.sum(axis=1) > 0)
    shares = found[reached] / found[reached].sum(axis=1, keepdims=True)
    # How sure a label is decides how much it counts.
    weights = shares.max(axis=1)
    of_records = np.full(len(rows), weights.sum() / (_OF_POOL * len(rows)))
    return fit_weighted(
        np.concatenate([rows, pool.rows[reached]]),
        np.concatenate([labels, shares.argmax(axis=1)]),
        np.concatenate([of_records, weights]),
        name=_NAME,
        input_shape=inputs.shape[1:],
    )
