"""Queries that are centres of clusters of a pool."""

import numpy as np

from coordinator.queries.choice import cluster_queries
from protocols.features.feature_map import FeatureMap

RNG = np.random.default_rng(4)
CORNERS = np.array([[0, 0], [0, 9], [9, 0], [9, 9]], np.float32)
POOL = (CORNERS[np.arange(400) % 4] + RNG.normal(size=(400, 2))).astype(np.float32)
FEATURES = FeatureMap((2,))


def test_centres_lie_where_the_pool_does() -> None:
    made = cluster_queries(POOL, FEATURES, queries=4, seed=0)
    places = made.cells(made.features(CORNERS))[:, 0]
    assert sorted(places) == [0, 1, 2, 3]
    np.testing.assert_array_equal(made.cells(made.features(POOL))[:, 0], places[np.arange(400) % 4])


def test_the_same_seed_gives_the_same_queries_and_each_partition_has_its_own() -> None:
    made, again, other = (
        cluster_queries(POOL, FEATURES, queries=20, nearest=3, partitions=2, seed=seed) for seed in (1, 1, 2)
    )
    assert made.digest == again.digest != other.digest
    assert (made.rows, made.filled) == (40, 6)
    first, second = (each.centres for each in made.blocks)
    assert not np.array_equal(first, second)


def test_as_many_queries_as_different_records_are_those_records() -> None:
    pool = np.repeat(POOL[:6], 3, axis=0)
    made = cluster_queries(pool, FEATURES, queries=6, seed=0)
    np.testing.assert_allclose(np.sort(made.blocks[0].centres, axis=0), np.sort(np.rint(POOL[:6] * 1024), axis=0))
