"""What students of a paper's labels say of test records; each is trained once, and what it says is kept.

What papers do with votes: cast them, release labels, train students and models without privacy, by the simulator's
own stages, so that all of it is cached.

Confident-GNMax asked until a budget is spent, as Individualized PATE charges it (Boenisch et al. 2023, section 5).

A query costs each group the worst case of its threshold test, and Theorem 6 of Papernot et al. 2018 where it was
answered; the study ends before the first group's epsilon would pass its budget. That stop depends on private votes:
it reproduces what was printed, and is no way to run a study. Unit: one record. Adjacency: replace-one. View: label.

One ensemble under budgets of groups: PATE, Weight and Upsample, their labels and the students that learn them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import (
    Any,  # Any: the values of a JSON object
    Final,
    Self,
)

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int8, Int64, Integer
from numpy import ndarray

from benchmarks.papers import stand_ins
from benchmarks.papers.paper import Task
from benchmarks.papers.stand_ins import Following, Pool, Teacher
from coordinator.students.student import one_hot
from protocols.array_files import array_bytes
from protocols.bounds.rdp import check_orders, check_sensitivity
from protocols.crypto.randomness import simulation_rng
from protocols.mechanisms import Mechanism
from protocols.noise import check_sigma, simulated
from protocols.research.data_dependent import answer_probability, each_label_rdp
from protocols.votes import count_votes
from runtime.files import write_atomically
from simulations.datasets.dataset import Dataset, DatasetRequest, Order, content_digest, drawn, largest_remainder
from simulations.engines import open_engine
from simulations.setup.budgets import duplicates
from simulations.setup.partition import parse_partition, partition
from simulations.source import source_digest
from simulations.stages.cached import cached_array, make_cache
from simulations.stages.cast import cast_votes
from simulations.stages.inputs import Host
from simulations.stages.students import ReleasedStudent, pooled_student


def predicted(
    host: Host,
    kind: str,
    inputs: Float32[ndarray, "queries ..."],
    targets: Float32[ndarray, "queries classes"],
    test: Float32[ndarray, "test ..."],
    *,
    seed: int,
) -> Int64[ndarray, " test"]:
    """The classes that a student of the queries and their targets names; kind: as the table of students names it.

    Raises StorageFailed, and InvalidInput for a kind that is not in the table.
    """
    from coordinator.students import STUDENTS, student_kind

    student = student_kind(kind, device="cpu")
    source = source_digest(
        STUDENTS[kind].__module__, "coordinator.students", "coordinator.queries", "runtime.torch_networks"
    )
    path = host.cache_dir / "papers" / f"{content_digest(inputs, targets, test, text=f'{kind} {seed} {source}')}.npy"
    kept = cached_array(path)
    if kept is None:
        make_cache(path.parent, cache_dir=host.cache_dir)
        learned = student.fit(inputs, targets, unlabelled=inputs[:0], classes=targets.shape[1], seed=seed)
        kept = np.asarray(learned.predict(test), dtype=np.int64)
        write_atomically(path, array_bytes(kept))
    return kept


def ensemble_votes(
    task: Task, dataset: Dataset, *, teachers: int, kind: str, seed: int
) -> Integer[ndarray, "teachers one queries"]:
    """The votes of so many teachers on the public queries; each learns an equal, random and disjoint part of the
    private records. seed: of partition and teachers.
    """
    parts = partition(dataset, parties=teachers, scheme=parse_partition("iid"), seed=seed)
    with task.reporter.stages() as on_stage:
        cast = cast_votes(
            dataset,
            [[part] for part in parts],
            teacher=kind,
            seed=seed,
            engine=partial(open_engine, task.host.engine, workers=task.host.workers),
            cache_dir=task.host.cache_dir,
            on_stage=on_stage,
        )
    return cast.votes


def published_threshold_rdp(
    orders: Float64[ndarray, " orders"], *, sigma_threshold: float, sensitivity: Float64[ndarray, " units"]
) -> Float64[ndarray, "units orders"]:
    """a s^2/(2 sigma1^2): what each threshold test costs at most, whatever the votes (Mironov 2017, Prop. 7).

    Individualized PATE charges it in its data-dependent figures too (Boenisch et al. 2023).
    """
    check_orders(orders)
    check_sigma("sigma_threshold", sigma_threshold)
    check_sensitivity(sensitivity)
    return orders[None, :] * (sensitivity[:, None] / sigma_threshold) ** 2 / 2


def counts_of(votes: Integer[ndarray, "teachers one queries"], *, classes: int) -> Float64[ndarray, "queries classes"]:
    """How many teachers voted for each class."""
    return count_votes(votes, np.ones(len(votes)), classes=classes)


def released(
    mechanism: Mechanism, counts: Float64[ndarray, "queries classes"], *, seed: int
) -> Int64[ndarray, " queries"]:
    """The labels of the mechanism with the noise of a seed, ABSTAIN where it gave none. Nothing is charged."""
    return mechanism.labels(counts, simulated(simulation_rng(seed, "noise")), view="label")


def asked_first(asked: Int64[ndarray, " asked"]) -> Order:
    """An order in which these rows of a test set, on which votes are published, come first, and the seed draws the
    others, pool and test part."""

    def order(rows: int, request: DatasetRequest) -> Int64[ndarray, " rows"]:
        others = np.setdiff1d(np.arange(rows), asked)
        return np.concatenate([asked, others[drawn(len(others), request)]])

    return order


def student_accuracy(
    task: Task, dataset: Dataset, labels: Int64[ndarray, " queries"], *, kind: str, seed: int
) -> float:
    """The accuracy in percent, on the test part, of a student of the labels of the first public queries.

    labels: of the first queries, ABSTAIN or NOT_ASKED where there is none; at least one is there.
    """
    positions = np.flatnonzero(labels >= 0)
    targets = one_hot(labels[positions], dataset.classes)
    student = ReleasedStudent(dataset, positions, targets, student=kind, seed=seed, cache_dir=task.host.cache_dir)
    accuracy = student.accuracy()
    assert accuracy is not None  # there are labels
    return 100 * accuracy


def without_privacy(task: Task, dataset: Dataset, *, kind: str, seed: int) -> float:
    """The accuracy in percent, on the test part, of the same kind of model of all private records."""
    accuracy = pooled_student(dataset, student=kind, seed=seed, cache_dir=task.host.cache_dir).accuracy()
    assert accuracy is not None  # there are records
    return 100 * accuracy


# The orders among which the published program chooses.
_ORDERS: Final = np.arange(2.0, 51.0)
_AT_ONCE: Final = 500


@dataclass(frozen=True, kw_only=True)
class Terms:
    """sigma and sigma_threshold: standard deviations in votes; threshold: in votes; delta: of every group."""

    sigma: float
    sigma_threshold: float
    threshold: float
    delta: float

    @classmethod
    def of(cls, setting: dict[str, Any]) -> Self:
        """The terms in a paper's figures."""
        return cls(
            sigma=float(setting["sigma"]),
            sigma_threshold=float(setting["sigma1"]),
            threshold=float(setting["T"]),
            delta=float(setting["delta"]),
        )


@dataclass(frozen=True, eq=False)
class Labelled:
    """The answered queries, as rows of the pool in the order of asking, their labels, and how many were asked."""

    queries: Int64[ndarray, " answered"]
    labels: Int64[ndarray, " answered"]
    asked: int


def label_until_spent(
    counts: Float64[ndarray, "queries classes"],
    terms: Terms,
    *,
    epsilon: Float64[ndarray, " groups"],
    sensitivity: Float64[ndarray, " groups"],
    seed: int,
) -> Labelled:
    """Asks the pool's queries in random order until a group's budget is spent, or all were asked.

    counts: weighted votes; epsilon, sensitivity (votes that one record moves): of each group. The order and the noise
    are drawn from the seed. Epsilons are converted as in Mironov 2017. Raises InvalidInput.
    """
    order, shuffled, answered, labels = _drawn(counts, terms, seed=seed)
    asked = 0
    for spent in _spent(shuffled, answered, terms, sensitivity=sensitivity):
        over = (spent > epsilon).any(axis=1)
        if over.any():
            asked += int(over.argmax())
            break
        asked += len(spent)
    rows = np.flatnonzero(answered[:asked])
    return Labelled(order[rows], labels[rows], asked)


def spent_after(
    counts: Float64[ndarray, "queries classes"],
    terms: Terms,
    *,
    labels: Sequence[int],
    sensitivity: Float64[ndarray, " groups"],
    seed: int,
) -> Float64[ndarray, "labels groups"]:
    """The epsilon of each group once so many labels (ascending, at least 1) are out, in the order and with the noise of
    `label_until_spent`. NaN from the number on that the whole pool does not give.
    """
    _, shuffled, answered, _ = _drawn(counts, terms, seed=seed)
    out = np.flatnonzero(answered)
    last = [int(out[number - 1]) for number in labels if number <= len(out)]
    found = np.full((len(labels), len(sensitivity)), np.nan)
    if last:
        until = last[-1] + 1
        spent = np.concatenate(list(_spent(shuffled[:until], answered[:until], terms, sensitivity=sensitivity)))
        found[: len(last)] = spent[last]
    return found


def _drawn(
    counts: Float64[ndarray, "queries classes"], terms: Terms, *, seed: int
) -> tuple[
    Int64[ndarray, " queries"],
    Float64[ndarray, "queries classes"],
    Bool[ndarray, " queries"],
    Int64[ndarray, " queries"],
]:
    """The order of asking, the counts in that order, which of them are answered, and every query's label."""
    rng = simulation_rng(seed, "until spent")
    order = rng.permutation(len(counts))
    shuffled = counts[order]
    tested = shuffled.max(axis=1) + rng.normal(0.0, terms.sigma_threshold, len(counts))
    labels = (shuffled + rng.normal(0.0, terms.sigma, shuffled.shape)).argmax(axis=1)
    return order, shuffled, tested >= terms.threshold, labels


def _spent(
    counts: Float64[ndarray, "queries classes"],
    answered: Bool[ndarray, " queries"],
    terms: Terms,
    *,
    sensitivity: Float64[ndarray, " groups"],
) -> Iterator[Float64[ndarray, "part groups"]]:
    """The epsilon of each group after each query, part by part of the queries."""
    tests = published_threshold_rdp(_ORDERS, sigma_threshold=terms.sigma_threshold, sensitivity=sensitivity)
    spent = np.zeros_like(tests)
    for start in range(0, len(counts), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        labels = np.stack(
            [
                # Only shown: nothing here charges or stops a study.
                each_label_rdp(counts[part], _ORDERS, sigma=terms.sigma, sensitivity=votes).for_research()
                for votes in sensitivity.tolist()
            ],
            axis=1,
        )
        sums = spent + np.cumsum(answered[part, None, None] * labels + tests, axis=0)
        yield (sums - np.log(terms.delta) / (_ORDERS - 1)).min(axis=2)
        spent = sums[-1]


def most_labels(
    terms: Terms, *, epsilon: Float64[ndarray, " groups"], sensitivity: Float64[ndarray, " groups"], votes: float
) -> float:
    """The mean number of labels were all votes for one class in every query, so that the labels cost nothing: what the
    threshold tests alone leave. votes: the weight of all."""
    tests = published_threshold_rdp(_ORDERS, sigma_threshold=terms.sigma_threshold, sensitivity=sensitivity)
    left = epsilon[:, None] + np.log(terms.delta) / (_ORDERS - 1)
    asked = np.floor((left / tests).max(axis=1).min())
    passed = answer_probability(np.array([votes]), sigma_threshold=terms.sigma_threshold, threshold=terms.threshold)
    # No vote was looked at.
    return float(asked * passed.for_research()[0])


@dataclass(frozen=True, eq=False)
class Weighted:
    """Weights of votes, one for each group, and the sensitivity that is charged to each group."""

    weights: Float64[ndarray, " groups"]
    charged: Float64[ndarray, " groups"]


def proportional_weights(epsilon: Float64[ndarray, " groups"], shares: Float64[ndarray, " groups"]) -> Weighted:
    """Weights in proportion to epsilon, of mean 1 over teachers (Boenisch et al. 2023, section 4.3)."""
    weights = epsilon / (shares @ epsilon)
    return Weighted(weights, weights)


def published_weights(epsilon: Float64[ndarray, " groups"], shares: Float64[ndarray, " groups"]) -> Weighted:
    """What the published program does: weights in proportion to share * epsilon, of mean 1 over teachers, of which the
    smallest is charged to the smallest budget, and so on, whoever votes with it.

    Where shares differ, groups are charged for another group's weight: their budgets are passed. epsilon: ascending.
    """
    weights = shares * epsilon / (shares @ (shares * epsilon))
    return Weighted(weights, np.sort(weights))


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
        sizes = largest_remainder(shares * len(votes), len(votes))
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
        votes = self._cast(stand_ins.upsampled(copies[member]), fit)
        weight = stand_ins.TEACHERS / len(votes)
        return self.pool.counts(votes, np.full(len(votes), weight)), copies * weight

    def most(self, epsilon: Float64[ndarray, " groups"], charged: Float64[ndarray, " groups"]) -> float:
        """How many labels the threshold tests alone leave, on average."""
        return most_labels(self.terms, epsilon=epsilon, sensitivity=charged, votes=float(stand_ins.TEACHERS))

    def disjoint(self, fit: Teacher) -> Int8[ndarray, "teachers queries"]:
        """The votes of 250 teachers, each with records of its own."""
        return self._cast(stand_ins.disjoint(len(self.pool.private_labels)), fit)

    def _cast(self, shards: Sequence[Int64[ndarray, " shard"]], fit: Teacher) -> Int8[ndarray, "teachers queries"]:
        votes = stand_ins.cast(self.task.host, self.pool, shards, fit)
        return votes if self.following is None else self.following.votes(votes, self.pool)

    def members(self, shares: Float64[ndarray, " groups"]) -> Int64[ndarray, " records"]:
        """Each private record's group, at random."""
        sizes = largest_remainder(shares * len(self.pool.private_labels), len(self.pool.private_labels))
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
