"""Which public queries a record is nearest to, held against a slow reading in fractions."""

import dataclasses
import io
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.array_files import parse_arrays
from protocols.errors import DataCorrupt, InvalidInput
from protocols.features.feature_map import FeatureMap
from protocols.features.linear import Linear
from protocols.features.stage import MOST_STEPS, STEPS
from protocols.study.query_map import Partition, QueryMap


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
    partition = Partition.of(points, columns=np.arange(width), nearest=nearest)
    records = (wide * rng.normal(size=(9, width))).astype(np.float32)
    records[0] = (points[0] + points[1]) / 2
    expected = [slow_nearest(record, partition.centres, nearest) for record in records]
    assert partition.nearest_queries(records).tolist() == expected


def test_many_nearest_queries_are_found_as_few_are() -> None:
    rng = np.random.default_rng(5)
    points = rng.integers(0, 2, (40, 6)).astype(np.float32)  # many distances are the same
    records = rng.integers(0, 2, (9, 6)).astype(np.float32)
    partition = Partition.of(points, columns=np.arange(6), nearest=18)
    assert len(partition.centres) >= 18
    expected = [slow_nearest(record, partition.centres, 18) for record in records]
    assert partition.nearest_queries(records).tolist() == expected


def two_partitions():
    all_features = Partition.of(np.eye(3, dtype=np.float32), columns=np.arange(3))
    one_column = Partition.of(np.array([[0.0], [1.0]], np.float32), columns=np.array([2]))
    return QueryMap(FeatureMap((3,)), (all_features, one_column))


def test_queries_are_numbered_partition_after_partition_and_cells_by_label() -> None:
    made = two_partitions()
    assert (made.queries, made.votes) == (5, 2)
    records = np.array([[1, 0, 0], [0, 0, 1]], np.float32)
    # Centres stand in ascending order: (0, 0, 1), (0, 1, 0), (1, 0, 0).
    assert made.nearest_queries(records).tolist() == [[2, 3], [0, 4]]
    assert made.cells(records, np.array([1, 0]), classes=2).tolist() == [[5, 7], [0, 8]]


def test_the_digest_names_all_that_decides_where_a_record_votes() -> None:
    made = two_partitions()
    assert made.digest == two_partitions().digest
    first, second = made.partitions
    others = [
        QueryMap(FeatureMap((4,)), made.partitions),
        QueryMap(FeatureMap((3,), (Linear.of(np.eye(3), np.zeros(3)),)), made.partitions),
        QueryMap(FeatureMap((3,)), (second, first)),
        QueryMap(FeatureMap((3,)), (dataclasses.replace(first, nearest=2), second)),
        QueryMap(FeatureMap((3,)), (first, dataclasses.replace(second, scales=np.array([2.0])))),
        QueryMap(FeatureMap((3,)), (first, dataclasses.replace(second, columns=np.array([1])))),
        QueryMap(FeatureMap((3,)), (first, dataclasses.replace(second, centres=second.centres + 1))),
    ]
    assert len({made.digest, *(other.digest for other in others)}) == 8


def test_points_that_round_to_the_same_steps_are_one_query() -> None:
    points = np.array([[0.0], [1e-5], [1.0]], np.float32)
    assert len(Partition.of(points, columns=np.array([0])).centres) == 2


@pytest.mark.parametrize(
    ("points", "more", "words"),
    [
        (np.zeros((3, 1)), {}, "has 1 queries; allowed: at least 2"),
        (np.eye(2), {"nearest": 3}, "nearest is 3; allowed: 1 to the 2"),
        (np.eye(2), {"nearest": 0}, "nearest is 0"),
        (np.eye(2), {"columns": np.array([0, 0])}, "columns of a partition"),
        (np.eye(2), {"columns": np.array([-1, 0])}, "columns of a partition"),
        (np.eye(2), {"scales": np.array([1.0, 0.0])}, r"scales span \[0.0, 1.0\]"),
        (np.zeros((2, 0)), {"columns": np.zeros(0, np.int64)}, "looks at 0 features"),
    ],
)
def test_a_partition_out_of_range_is_refused(points, more, words) -> None:
    given_ = {"columns": np.arange(points.shape[1])} | more
    with pytest.raises(InvalidInput, match=words):
        Partition.of(points.astype(np.float32), **given_)


@pytest.mark.parametrize(
    ("records", "labels", "words"),
    [
        (np.zeros((2, 4)), [0, 1], r"features of shape \(4,\); allowed: \(3,\)"),
        (np.full((2, 3), np.nan), [0, 1], "NaN"),
        (np.zeros((2, 3)), [0, 2], r"labels span \[0, 2\]; allowed: 0 to 1"),
        (np.zeros((2, 3)), [-1, 0], r"labels span \[-1, 0\]"),
    ],
)
def test_records_that_do_not_fit_are_refused(records, labels, words) -> None:
    with pytest.raises(InvalidInput, match=words):
        two_partitions().cells(records.astype(np.float32), np.array(labels), classes=2)


@pytest.mark.parametrize("centre", [-(2**63), MOST_STEPS + 1, -MOST_STEPS - 1])
def test_a_centre_further_away_than_features_reach_is_refused(centre) -> None:
    with pytest.raises(InvalidInput, match=f"allowed: {-MOST_STEPS} to {MOST_STEPS}"):
        Partition(np.array([0]), np.ones(1), np.array([[0], [centre]]), 1)


def test_the_largest_scale_and_feature_are_clipped_without_a_warning() -> None:
    partition = Partition.of(np.array([[-1.0], [1.0]], np.float32), columns=np.array([0]), scales=np.array([2.0**64]))
    assert partition.nearest_queries(np.array([[3e38], [-3e38]], np.float32)).tolist() == [[1], [0]]


def altered(**changed):
    """The file of the two partitions with other arrays in it; None: without one."""
    arrays = {**parse_arrays(two_partitions().to_bytes(), where="queries"), **changed}
    content = io.BytesIO()
    np.savez(content, **{name: array for name, array in arrays.items() if array is not None})
    return content.getvalue()


def test_a_file_of_queries_gives_the_same_queries_back() -> None:
    made = two_partitions()
    read = QueryMap.from_bytes(made.to_bytes())
    assert (read.digest, read.queries, read.votes) == (made.digest, made.queries, made.votes)
    records = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    np.testing.assert_array_equal(read.nearest_queries(records), made.nearest_queries(records))
    assert read.to_bytes() == made.to_bytes() == altered()


def test_records_are_compared_by_their_features() -> None:
    swapped = FeatureMap((1, 2), (Linear.of(np.eye(2)[::-1], np.zeros(2)),))
    points = np.array([[0.0, 1.0], [1.0, 0.0]], np.float32)
    made = QueryMap(swapped, (Partition.of(points, columns=np.arange(2)),))
    assert QueryMap.from_bytes(made.to_bytes()).digest == made.digest
    assert made.input_shape == (1, 2)
    assert made.nearest_queries(points[:, None]).tolist() == [[1], [0]]
    with pytest.raises(InvalidInput, match=r"allowed: \(1, 2\)"):
        made.nearest_queries(points)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"centres": None}, "no array 'centres'"),
        ({"centres": np.zeros(11, np.int64)}, "centres is int64 of rank 1; allowed: <i4"),
        ({"centres": np.zeros((11, 1), np.int32)}, "centres is int32 of rank 2"),
        (
            {"centres": np.zeros(12, np.int32)},
            r"holds \(4, 4, 12\) columns, .* the \(4, 4, 11\)",
        ),
        ({"scales": np.zeros(4)}, r"scales span \[0.0, 0.0\]; allowed"),
        ({"scales": np.full(4, np.nan)}, r"scales span \[nan, nan\]; allowed"),
        ({"columns": np.array([0, 1, 2, 3])}, "feature 3; allowed: 0 to 2"),
        ({"columns": np.array([0, 0, 1, 2])}, "columns of a partition"),
        ({"features": np.zeros(20, np.uint8)}, "queries: features cannot be read"),
        ({"partitions": np.array([[3, 3], [2, 1]])}, r"partitions has shape \(2, 2\)"),
        ({"partitions": np.array([[3, 3, 4], [2, 1, 1]])}, "nearest is 4; allowed: 1 to the 3"),
        ({"partitions": np.array([[2**24, 2**24, 1], [2, 1, 1]])}, "allowed: the"),
        ({"partitions": np.array([[3, 3, 0], [2, 1, 1]])}, "partitions is 0"),
        ({"partitions": np.zeros((0, 3), np.int64)}, "allowed: the"),
        (
            {name: np.zeros(0, kind) for name, kind in (("columns", "i8"), ("scales", "f8"), ("centres", "i4"))}
            | {"partitions": np.zeros((0, 3), np.int64)},
            "no queries",
        ),
    ],
)
def test_a_file_that_is_none_of_queries_is_refused(changed, words) -> None:
    with pytest.raises((InvalidInput, DataCorrupt), match=words):
        QueryMap.from_bytes(altered(**changed))


def test_a_map_needs_queries_and_features_to_look_at() -> None:
    with pytest.raises(InvalidInput, match="no queries"):
        QueryMap(FeatureMap((3,)), ())
    with pytest.raises(InvalidInput, match="feature 2; allowed: 0 to 1"):
        QueryMap(FeatureMap((2,)), two_partitions().partitions)
