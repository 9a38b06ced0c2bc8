"""Votes that were cast once, so that a study can be replayed: those of each teacher, or only their histogram."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float64, Int64, Integer
from numpy import ndarray

from protocols.votes import count_votes

# Histograms of groups of equal weight are kept where they have at most this many cells (8 bytes each).
_GROUP_CELLS = 20_000_000
_GROUPS = 64


# More votes are cast at once than are needed, as starting the engine takes seconds.
_AHEAD = 2

CastMore = Callable[[int], Integer[ndarray, "parties teachers cast"]]


@dataclass(eq=False)
class CastVotes:
    """The votes of each teacher: class ids or ABSTAIN.

    votes: on the first queries of the pool, or on all. pool: how many queries there are (None: as many as votes).
    cast_more(queries): votes on at least so many of the first queries, for those that are asked after all.
    """

    classes: int
    votes: Integer[ndarray, "parties teachers cast"]
    pool: int | None = None
    cast_more: CastMore | None = field(default=None, repr=False)
    _groups: dict[bytes, Float64[ndarray, "groups cells"]] = field(default_factory=dict, repr=False)

    @property
    def queries(self) -> int:
        """The number of queries that may be asked."""
        return self.votes.shape[2] if self.pool is None else self.pool

    def reach(self, queries: int) -> bool:
        """Sees to it that the first so many queries are voted on; whether votes had to be cast for that."""
        known = self.votes.shape[2]
        if queries <= known or self.cast_more is None:
            return False
        self.votes = self.cast_more(min(max(queries, _AHEAD * known), self.queries))
        self._groups.clear()
        return True

    @property
    def arrays(self) -> tuple[ndarray, ...]:
        """Everything that was stored, for a digest."""
        return (self.votes,)

    def first(self, queries: int) -> CastVotes:
        """The votes on the first so many queries."""
        return CastVotes(self.classes, self.votes[:, :, :queries])

    def histogram(self) -> Float64[ndarray, "queries classes"]:
        """How many teachers voted for each class, of the queries that were voted on."""
        return count_votes(self.votes, np.ones(len(self.votes)), classes=self.classes)

    def group_counts(self, member: Int64[ndarray, " parties"], groups: int) -> Float64[ndarray, "groups cells"] | None:
        """Unweighted histograms of each group of parties on the queries that were voted on, flattened; None where that
        would take too much memory.

        Kept between calls, so that a sweep over budgets, weights and noise counts the votes once.
        """
        cells = self.votes.shape[2] * self.classes
        if groups > _GROUPS or groups * cells > _GROUP_CELLS:
            return None
        key = member.astype(np.int32).tobytes()
        if key not in self._groups:
            rows = [
                count_votes(self.votes, (member == group).astype(float), classes=self.classes).ravel()
                for group in range(groups)
            ]
            self._groups.clear()
            self._groups[key] = np.stack(rows)
        return self._groups[key]


@dataclass(frozen=True, eq=False)
class VoteCounts:
    """Only the unweighted histogram: votes for each class, each row summing to the number of voters."""

    classes: int
    counts: Float64[ndarray, "queries classes"]

    @property
    def queries(self) -> int:
        """The number of queries that were voted on."""
        return len(self.counts)

    @property
    def arrays(self) -> tuple[ndarray, ...]:
        """Everything that was stored, for a digest."""
        return (self.counts,)

    def first(self, queries: int) -> VoteCounts:
        """The votes on the first so many queries."""
        return VoteCounts(self.classes, self.counts[:queries])

    def histogram(self) -> Float64[ndarray, "queries classes"]:
        """How many teachers voted for each class."""
        return self.counts


@dataclass(frozen=True, eq=False)
class RecordSums:
    """Where records vote: each seat's sum of contributions, i64 [queries, classes] in lattice units of the study."""

    classes: int
    sums: Sequence[Int64[ndarray, "queries classes"]] = field(repr=False)

    @property
    def queries(self) -> int:
        """How many public queries there are."""
        return len(self.sums[0])


StoredVotes = CastVotes | VoteCounts
