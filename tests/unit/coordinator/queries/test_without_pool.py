"""A pool that is drawn from the terms' constants."""

import numpy as np
import pytest

from coordinator.queries.choice import cluster_queries, drawn_pool
from protocols.errors import InvalidInput
from protocols.features.feature_map import FeatureMap
from protocols.study.column_queries import column_queries
from protocols.study.terms import Feature
from tests.harness.refusals import refuses

COLUMNS = (
    Feature(column="age", kind="numeric", centre=54.0, scale=9.0),
    Feature(column="chol", kind="numeric", centre=200.0, scale=50.0, may_miss=True),
    Feature(column="pain", kind="categorical", categories=("a", "b", "c"), may_miss=True),
    Feature(column="sex", kind="categorical", categories=("f", "m")),
)


def test_every_column_is_drawn_as_its_feature_encodes_it() -> None:
    pool = drawn_pool(COLUMNS, records=4000, seed=0)
    assert pool.shape == (4000, 8)
    assert (pool[:, 0].mean(), pool[:, 0].std()) == pytest.approx((0, 1), abs=0.06)
    missing = pool[:, 2] == 1
    assert missing.mean() == pytest.approx(0.1, abs=0.02)
    assert not pool[missing, 1].any()
    np.testing.assert_allclose(pool[:, 3:6].mean(axis=0), 0.3, atol=0.03)
    assert set(pool[:, 3:6].sum(axis=1)) == {0.0, 1.0}
    assert (pool[:, 6:].sum(axis=1) == 1).all()
    np.testing.assert_array_equal(drawn_pool(COLUMNS, records=4000, seed=0), pool)


def test_queries_are_made_of_it_as_of_any_pool() -> None:
    pool = drawn_pool(COLUMNS, records=300, seed=0)
    assert column_queries(pool, COLUMNS, bins=2).rows == 2 + 3 + 4 + 2
    assert cluster_queries(pool, FeatureMap((8,)), queries=12, seed=0).rows == 12


@pytest.mark.parametrize(("columns", "records"), [(COLUMNS, 1), ((), 10)])
def test_nothing_to_draw_from_is_refused(columns, records) -> None:
    with refuses(InvalidInput, 2, 1):
        drawn_pool(columns, records=records, seed=0)
