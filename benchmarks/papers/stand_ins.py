"""Teachers that stand in for those of the papers, cheap enough to train hundreds on two cores.

Images: kernel ridge regression. A teacher may see a random part of the features only (Ho 1998, random subspaces), which
lowers the accuracy of single teachers and leaves that of the plurality. Rows of tables: random forests.

Ensembles of 250 teachers on MNIST and Adult, as stand-ins for those of the papers, and their votes.

On MNIST teachers compare public features: gradients of deskewed images, 64 principal components of the public pool.

Votes of which a share follows one model: an ensemble whose agreement and accuracy can be set to printed figures.

Independent teachers that agree more are right more often, too. Votes that follow one model agree without being right:
the share sets how much they agree, and the model's records how often the labels are right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from jaxtyping import Float32, Float64, Int8, Int64
from numpy import ndarray

from protocols.array_files import array_bytes
from protocols.crypto.randomness import simulation_rng
from protocols.votes import count_votes
from runtime.files import write_atomically
from simulations.datasets.dataset import DatasetRequest, as_published, content_digest
from simulations.datasets.published_images import load_mnist
from simulations.datasets.published_tables import adult as adult_people
from simulations.setup.budgets import deal_budgets
from simulations.source import source_digest
from simulations.stages.cached import cached_array, make_cache
from simulations.stages.inputs import Host, encoded_dataset

_RIDGE: Final = 0.1
_TREES: Final = 100
_SEED: Final = 0


@dataclass(frozen=True)
class KernelRidge:
    """A teacher of images: Gaussian kernel of width the mean squared distance of its records, on a random part of the
    features. part: in (0, 1]."""

    part: float

    def __call__(
        self,
        inputs: Float32[ndarray, "records features"],
        labels: Int64[ndarray, " records"],
        queries: Float32[ndarray, "queries features"],
        teacher: int,
    ) -> Int64[ndarray, " queries"]:
        """The teacher's class of each query, among the classes that it has seen."""
        width = inputs.shape[1]
        chosen = np.sort(simulation_rng(_SEED, "part", teacher).permutation(width)[: round(self.part * width)])
        records, asked = inputs[:, chosen], queries[:, chosen]
        apart = _apart(records, records)
        scale = -1 / apart.mean()
        kernel = np.exp(scale * apart) + _RIDGE * np.eye(len(records), dtype=np.float32)
        seen, target = np.unique(labels, return_inverse=True)
        fitted = np.linalg.solve(kernel, np.eye(len(seen), dtype=np.float32)[target] - np.float32(1 / len(seen)))
        near = _apart(asked, records)
        near *= scale
        np.exp(near, out=near)
        return np.asarray(seen[(near @ fitted).argmax(axis=1)], np.int64)


def _apart(
    one: Float32[ndarray, "rows features"], other: Float32[ndarray, "columns features"]
) -> Float32[ndarray, "rows columns"]:
    """Squared distances."""
    found = one @ other.T
    found *= -2
    found += (one * one).sum(axis=1)[:, None]
    found += (other * other).sum(axis=1)
    return found


@dataclass(frozen=True)
class Forest:
    """A teacher of rows: a random forest of 100 trees, as scikit-learn has them."""

    def __call__(
        self,
        inputs: Float32[ndarray, "records features"],
        labels: Int64[ndarray, " records"],
        queries: Float32[ndarray, "queries features"],
        teacher: int,
    ) -> Int64[ndarray, " queries"]:
        """The teacher's class of each query, among the classes that it has seen."""
        from sklearn.ensemble import RandomForestClassifier

        forest = RandomForestClassifier(_TREES, random_state=teacher, n_jobs=1)
        return np.asarray(forest.fit(inputs, labels).predict(queries), np.int64)


Teacher = KernelRidge | Forest


TEACHERS: Final = 250
_ENSEMBLE_SEED: Final = 0
_TEACHERS: Final = ("benchmarks.papers.stand_ins",)


@dataclass(frozen=True, eq=False)
class Pool:
    """Private records, and the public queries. seen_*: what teachers compare; the others: what students learn from."""

    name: str
    classes: int
    seen_private: Float32[ndarray, "records features"]
    private_labels: Int64[ndarray, " records"]
    seen_public: Float32[ndarray, "queries features"]
    public_inputs: Float32[ndarray, "queries ..."]
    public_labels: Int64[ndarray, " queries"]
    test_inputs: Float32[ndarray, "test ..."]
    test_labels: Int64[ndarray, " test"]

    def counts(
        self, votes: Int8[ndarray, "teachers queries"], weights: Float64[ndarray, " teachers"]
    ) -> Float64[ndarray, "queries classes"]:
        """The weighted votes for each class."""
        return count_votes(votes[:, None], weights, classes=self.classes)


@lru_cache(maxsize=1)
def mnist(host: Host) -> Pool:
    """60,000 private images, the first 9,000 of the test set public, its last 1,000 for students."""
    from coordinator.queries.features import features_for

    data = load_mnist(DatasetRequest(seed=_ENSEMBLE_SEED, data_dir=host.data_dir), as_published)
    features = features_for(data.public_inputs, "auto", seed=_ENSEMBLE_SEED)
    seen = encoded_dataset(data, lambda: features, named=features.digest, cache_dir=host.cache_dir)
    return Pool(
        data.name, data.classes, seen.private_inputs, data.private_labels, seen.public_inputs, data.public_inputs,
        data.public_labels, data.test_inputs, data.test_labels,
    )  # fmt: skip


@lru_cache(maxsize=1)
def adult(host: Host, *, private: int, public: int, test: int) -> Pool:
    """So many of the 48,842 people, drawn at random, as the paper draws from those whose record is complete."""
    data = adult_people(DatasetRequest(seed=_ENSEMBLE_SEED, data_dir=host.data_dir), as_published)
    inputs = np.concatenate([data.private_inputs, data.public_inputs, data.test_inputs])
    labels = np.concatenate([data.private_labels, data.public_labels, data.test_labels])
    rows = simulation_rng(_ENSEMBLE_SEED, "adult").permutation(len(inputs))[: private + public + test]
    first, second, third = np.split(rows, [private, private + public])
    return Pool(
        "adult", data.classes, inputs[first], labels[first], inputs[second], inputs[second], labels[second],
        inputs[third], labels[third],
    )  # fmt: skip


def disjoint(records: int) -> list[Int64[ndarray, " shard"]]:
    """The records dealt at random, one shard for each of the 250 teachers."""
    return np.array_split(simulation_rng(_ENSEMBLE_SEED, "disjoint").permutation(records), TEACHERS)


def upsampled(copies: Int64[ndarray, " records"]) -> list[Int64[ndarray, " shard"]]:
    """Each record in as many shards as it has copies (Boenisch et al. 2023, section 4.1).

    There are more teachers, in the proportion in which the data grew, so that each learns as many records as before.
    """
    teachers = max(int(copies.max()), round(TEACHERS * float(copies.mean())))
    return deal_budgets(copies, teachers=teachers, rng=simulation_rng(_ENSEMBLE_SEED, "upsampled"))


def cast(
    host: Host, pool: Pool, shards: Sequence[Int64[ndarray, " shard"]], fit: Teacher
) -> Int8[ndarray, "teachers queries"]:
    """Every teacher's votes on every query; kept in the cache, where a second call finds them.

    The stage of a run keeps teachers, too, of the kinds that parties have, which these are not.

    Raises StorageFailed.
    """
    learned = (np.concatenate(shards), np.array([len(each) for each in shards]), pool.seen_private, pool.private_labels)
    about = content_digest(*learned, pool.seen_public)
    path = host.cache_dir / "papers" / f"{content_digest(text=f'{fit} {about} {source_digest(*_TEACHERS)}')}.npy"
    kept = cached_array(path)
    if kept is None:
        make_cache(path.parent, cache_dir=host.cache_dir)
        kept = np.stack(
            [
                fit(pool.seen_private[shard], pool.private_labels[shard], pool.seen_public, teacher).astype(np.int8)
                for teacher, shard in enumerate(shards)
            ]
        )
        write_atomically(path, array_bytes(kept))
    return kept


_FOLLOWING_SEED: Final = 0


@dataclass(frozen=True)
class Following:
    """records: of the private ones, at random, that the followed kernel ridge regression learns; share: of votes that
    are its own, in [0, 1], drawn vote by vote.
    """

    records: int
    share: float

    def votes(self, cast: Int8[ndarray, "teachers queries"], pool: Pool) -> Int8[ndarray, "teachers queries"]:
        """The votes, of which the share is replaced by the followed model's."""
        rows = simulation_rng(_FOLLOWING_SEED, "followed").permutation(len(pool.private_labels))[: self.records]
        model = KernelRidge(1.0)(pool.seen_private[rows], pool.private_labels[rows], pool.seen_public, 0)
        chosen = simulation_rng(_FOLLOWING_SEED, "following").random(cast.shape, dtype=np.float32) < self.share
        return np.where(chosen, model.astype(np.int8), cast)
