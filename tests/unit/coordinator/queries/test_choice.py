"""Which queries are made of a pool: what has no effect is refused, and what is chosen is made."""

import numpy as np
import pytest

from coordinator.queries.choice import QueryChoice, make_queries
from protocols.errors import InvalidInput
from protocols.study.column_queries import bare_columns
from tests.harness.refusals import refuses

POOL = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)


def made(**choice):
    return make_queries(POOL, bare_columns(3), QueryChoice(**choice), population=300, classes=2, noise=0.05)


def test_clusters_beside_columns_are_of_the_records_as_they_are():
    with refuses(InvalidInput, "features", "hog", "record_queries"):
        made(kind="columns+clusters:4", features="hog")
    both, cells, centres = made(kind="columns+clusters:5"), made(), made(kind="clusters:5", partitions=3)
    found = np.concatenate([cells.cells(POOL), centres.cells(POOL) + cells.rows], axis=1)
    np.testing.assert_array_equal(both.cells(POOL), found)


def test_a_record_votes_in_the_nearest_of_each_partition():
    assert made(bins=3).filled == 3
    assert made(kind="clusters:5", nearest=2, partitions=3).filled == 6
    assert made(kind="clusters:5").filled == 1
    both = made(kind="columns+clusters:5", bins=4)
    assert (both.filled, both.rows) == (3 + 3, 3 * 4 + 3 * 5)
    assert made(kind="columns+clusters:5", partitions=1, nearest=2).filled == 3 + 2


@pytest.mark.parametrize(
    "kind", ["towns", "clusters", "clusters:few", "columns:3", "columns+clusters", "clusters:3+columns"]
)
def test_other_queries_are_refused(kind):
    with refuses(InvalidInput, "record_queries", kind):
        made(kind=kind)
