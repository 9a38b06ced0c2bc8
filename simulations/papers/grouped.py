"""One ensemble under budgets of groups: PATE, Weight and Upsample, their labels and the students that learn them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from jaxtyping import Float64, Int8, Int64
from numpy import ndarray

from coordinator.students.targets import one_hot
from protocols.crypto.randomness import simulation_rng
from simulations.papers import ensembles
from simulations.papers.ensembles import Pool
from simulations.papers.following import Following
from simulations.papers.learned import predicted
from simulations.papers.paper import Task
from simulations.papers.stand_ins import Teacher
from simulations.papers.until_spent import (
    Labelled,
    Terms,
    label_until_spent,
    most_labels,
    proportional_weights,
    published_weights,
)
from simulations.setup.budgets import largest_remainder
from simulations.setup.upsampling import duplicates

_STUDENT: Final = {"mnist": "cnn", "adult": "random_forest"}
# A student of images takes seconds of a core, one of rows a tenth of it.
_MOST_STUDENTS: Final = {"mnist": 3, "adult": 100}


@dataclass(frozen=True)
class Ensemble:
    """A pool with the terms under which its 250 teachers, or more, vote; teachers are trained as they are needed.

    following: what some votes follow in place of their teacher, None for nothing.
    """

    task: Task
    pool: Pool
    terms: Terms
    following: Following | None = None

    def labelled(
        self,
        counts: Float64[ndarray, "queries classes"],
        epsilon: Float64[ndarray, " groups"],
        charged: Float64[ndarray, " groups"],
    ) -> list[Labelled]:
        """The labels of every seed."""
        return [
            label_until_spent(counts, self.terms, epsilon=epsilon, sensitivity=charged, seed=seed)
            for seed in self.task.seeds
        ]

    def plain(self, fit: Teacher, epsilon: float) -> list[Labelled]:
        """Of PATE, where everybody has the same budget."""
        return self.labelled(self.plain_counts(fit), np.array([epsilon]), np.ones(1))

    def plain_counts(self, fit: Teacher) -> Float64[ndarray, "queries classes"]:
        """How many of 250 disjoint teachers voted for each class."""
        votes = self.disjoint(fit)
        return self.pool.counts(votes, np.ones(len(votes)))

    def weighted(
        self,
        fit: Teacher,
        epsilon: Float64[ndarray, " groups"],
        shares: Float64[ndarray, " groups"],
        *,
        as_published: bool,
    ) -> list[Labelled]:
        """Of Weight: groups of the teachers have these shares and budgets."""
        votes = self.disjoint(fit)
        sizes = largest_remainder(shares, len(votes))
        found = (published_weights if as_published else proportional_weights)(epsilon, sizes / len(votes))
        counts = self.pool.counts(votes, np.repeat(found.weights, sizes))
        return self.labelled(counts, epsilon, found.charged)

    def upsampled(
        self, fit: Teacher, epsilon: Float64[ndarray, " groups"], member: Int64[ndarray, " records"]
    ) -> list[Labelled]:
        """Of Upsample: member: each record's group. Votes are scaled to 250 teachers, in place of noise to more."""
        counts, charged = self.upsampled_counts(fit, epsilon, member)
        return self.labelled(counts, epsilon, charged)

    def upsampled_counts(
        self, fit: Teacher, epsilon: Float64[ndarray, " groups"], member: Int64[ndarray, " records"]
    ) -> tuple[Float64[ndarray, "queries classes"], Float64[ndarray, " groups"]]:
        """The scaled counts of Upsample, and how many of their votes a record of each group moves."""
        copies = duplicates(epsilon)
        votes = self._cast(ensembles.upsampled(copies[member]), fit)
        weight = ensembles.TEACHERS / len(votes)
        return self.pool.counts(votes, np.full(len(votes), weight)), copies * weight

    def most(self, epsilon: Float64[ndarray, " groups"], charged: Float64[ndarray, " groups"]) -> float:
        """How many labels the threshold tests alone leave, on average."""
        return most_labels(self.terms, epsilon=epsilon, sensitivity=charged, votes=float(ensembles.TEACHERS))

    def disjoint(self, fit: Teacher) -> Int8[ndarray, "teachers queries"]:
        """The votes of 250 teachers, each with records of its own."""
        return self._cast(ensembles.disjoint(len(self.pool.private_labels)), fit)

    def _cast(self, shards: Sequence[Int64[ndarray, " shard"]], fit: Teacher) -> Int8[ndarray, "teachers queries"]:
        votes = ensembles.cast(self.task.host, self.pool, shards, fit)
        return votes if self.following is None else self.following.votes(votes, self.pool)

    def members(self, shares: Float64[ndarray, " groups"]) -> Int64[ndarray, " records"]:
        """Each private record's group, at random."""
        sizes = largest_remainder(shares, len(self.pool.private_labels))
        return simulation_rng(0, "members").permutation(np.repeat(np.arange(len(sizes)), sizes))

    def members_of_class(self, label: int, share: float) -> Int64[ndarray, " records"]:
        """1 for this share of the private records of a class, at random, and 0 for all others."""
        rows = np.flatnonzero(self.pool.private_labels == label)
        chosen = simulation_rng(0, "members").permutation(rows)[: round(share * len(rows))]
        return np.isin(np.arange(len(self.pool.private_labels)), chosen).astype(np.int64)

    def teachers(self, fit: Teacher) -> float:
        """How often the teachers are right, in percent."""
        return 100 * float((self.disjoint(fit) == self.pool.public_labels).mean())

    def right(self, found: Sequence[Labelled]) -> list[float]:
        """How many of each seed's labels are right, in percent."""
        return [100 * float((each.labels == self.pool.public_labels[each.queries]).mean()) for each in found]

    def students(self, found: Sequence[Labelled]) -> Float64[ndarray, "seeds test"]:
        """100 where the student of a seed's labels is right on a test record, else 0; of the first seeds."""
        right, pool = [], self.pool
        for seed, each in zip(self.task.seeds[: _MOST_STUDENTS[pool.name]], found, strict=False):
            targets = one_hot(each.labels, pool.classes)
            inputs = pool.public_inputs[each.queries]
            said = predicted(self.task.host, _STUDENT[pool.name], inputs, targets, pool.test_inputs, seed=seed)
            right.append(said == pool.test_labels)
        return 100 * np.array(right, dtype=np.float64)
