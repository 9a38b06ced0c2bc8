"""Which public queries a record is nearest to, held against a slow reading in fractions."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.errors import InvalidInput
from protocols.features.feature_map import FeatureMap
from protocols.features.linear import LinearMap
from protocols.features.stage import MOST_STEPS, STEPS
from protocols.sums.blocks import Blocks, Nearest
from protocols.sums.contributions import said
from tests.harness.refusals import refuses


def slow_nearest(record, centres, nearest):
    """The nearest centres in exact arithmetic; ties to the lowest number."""
    steps = [max(-MOST_STEPS, min(MOST_STEPS, round(Fraction(float(x)) * STEPS))) for x in record]
    distances = [sum((s - int(c)) ** 2 for s, c in zip(steps, centre, strict=True)) for centre in centres]
    return sorted(range(len(centres)), key=lambda k: (distances[k], k))[:nearest]


@given(
    seed=st.integers(0, 2**32), width=st.integers(1, 5), nearest=st.integers(1, 3), wide=st.sampled_from([0.05, 1, 40])
)
def test_a_record_votes_in_the_nearest_queries_and_ties_go_to_the_lowest(seed, width, nearest, wide) -> None:
    rng = np.random.default_rng(seed)
    points = (wide * rng.normal(size=(7, width))).astype(np.float32)
    partition = Nearest.of(points, columns=np.arange(width), nearest=nearest)
    records = (wide * rng.normal(size=(9, width))).astype(np.float32)
    records[0] = (points[0] + points[1]) / 2
    expected = [slow_nearest(record, partition.centres, nearest) for record in records]
    assert partition.cells(records).tolist() == expected


def test_many_nearest_queries_are_found_as_few_are() -> None:
    rng = np.random.default_rng(5)
    points = rng.integers(0, 2, (40, 6)).astype(np.float32)  # many distances are the same
    records = rng.integers(0, 2, (9, 6)).astype(np.float32)
    partition = Nearest.of(points, columns=np.arange(6), nearest=18)
    assert len(partition.centres) >= 18
    expected = [slow_nearest(record, partition.centres, 18) for record in records]
    assert partition.cells(records).tolist() == expected


def two_partitions():
    all_features = Nearest.of(np.eye(3, dtype=np.float32), columns=np.arange(3))
    one_column = Nearest.of(np.array([[0.0], [1.0]], np.float32), columns=np.array([2]))
    return Blocks(FeatureMap((3,)), (all_features, one_column))


def test_queries_are_numbered_partition_after_partition_and_cells_by_label() -> None:
    made = two_partitions()
    assert (made.rows, made.filled, made.plain, made.signed) == (5, 2, True, False)
    records = np.array([[1, 0, 0], [0, 0, 1]], np.float32)
    # Centres stand in ascending order: (0, 0, 1), (0, 1, 0), (1, 0, 0).
    assert made.cells(made.features(records)).tolist() == [[2, 3], [0, 4]]
    assert said(made, records, np.array([1, 0]), classes=2).tolist() == [[5, 7], [0, 8]]


@pytest.mark.parametrize(
    ("points", "more", "words"),
    [
        (np.zeros((3, 1)), {}, "has 1 cells; allowed: at least 2"),
        (np.eye(2), {"nearest": 3}, "nearest is 3; allowed: 1 to the 2"),
        (np.eye(2), {"nearest": 0}, "nearest is 0"),
        (np.eye(2), {"columns": np.array([0, 0])}, "columns of a block"),
        (np.eye(2), {"columns": np.array([-1, 0])}, "columns of a block"),
        (np.eye(2), {"scales": np.array([1.0, 0.0])}, "scales of a block"),
        (np.zeros((2, 0)), {"columns": np.zeros(0, np.int64)}, "looks at 0 features"),
    ],
)
def test_a_partition_out_of_range_is_refused(points, more, words) -> None:
    given_ = {"columns": np.arange(points.shape[1])} | more
    with pytest.raises(InvalidInput, match=words):
        Nearest.of(points.astype(np.float32), **given_)


@pytest.mark.parametrize("centre", [-(2**63), MOST_STEPS + 1, -MOST_STEPS - 1])
def test_a_centre_further_away_than_features_reach_is_refused(centre) -> None:
    with refuses(InvalidInput, -MOST_STEPS, MOST_STEPS):
        Nearest(share=1, columns=np.array([0]), scales=np.ones(1), centres=np.array([[0], [centre]]))


def test_the_largest_scale_and_feature_are_clipped_without_a_warning() -> None:
    partition = Nearest.of(np.array([[-1.0], [1.0]], np.float32), columns=np.array([0]), scales=np.array([2.0**64]))
    assert partition.cells(np.array([[3e38], [-3e38]], np.float32)).tolist() == [[1], [0]]


def test_records_are_compared_by_their_features() -> None:
    swapped = FeatureMap((1, 2), (LinearMap.of(np.eye(2)[::-1], np.zeros(2)),))
    points = np.array([[0.0, 1.0], [1.0, 0.0]], np.float32)
    made = Blocks(swapped, (Nearest.of(points, columns=np.arange(2)),))
    assert Blocks.from_bytes(made.to_bytes()).digest == made.digest
    assert made.input_shape == (1, 2)
    assert made.cells(made.features(points[:, None])).tolist() == [[1], [0]]
    with refuses(InvalidInput, "(1, 2)"):
        made.cells(made.features(points))


def test_blocks_need_cells_and_features_to_look_at() -> None:
    with refuses(InvalidInput, "0 blocks"):
        Blocks(FeatureMap((3,)), ())
    with refuses(InvalidInput, 2, 0, 1):
        Blocks(FeatureMap((2,)), two_partitions().blocks)
