import numpy as np
import pytest

from protocols.errors import DataCorrupt, DataUnavailable, InvalidInput
from protocols.labelling.stored_votes import load_labels, load_votes, transposed
from tests.harness.refusals import refuses


def save(tmp_path, array, name="votes.npy"):
    path = tmp_path / name
    np.save(path, array)
    return path


def read(path, kind=None, classes=None, parties=None):
    return load_votes(path, kind=kind, classes=classes, parties=parties)


def test_float_counts_need_no_kind_and_say_how_many_parties_voted(tmp_path):
    stored, parties = read(save(tmp_path, np.array([[3.0, 2.0], [0.0, 5.0]])))
    assert (stored.classes, stored.queries, parties) == (2, 2, 5)


def test_class_ids_are_read_with_and_without_teachers(tmp_path):
    ids = np.random.default_rng(0).integers(-1, 4, (6, 9)).astype(np.int8)
    stored, parties = read(save(tmp_path, ids), kind="ids", classes=5)
    assert (stored.classes, stored.queries, parties) == (5, 9, 6)
    stored, parties = read(save(tmp_path, ids.reshape(3, 2, 9)), kind="ids")
    assert (stored.votes.shape, parties) == ((3, 2, 9), 3)


@pytest.mark.parametrize(
    ("array", "kind", "classes", "parties", "reason"),
    [
        (np.zeros((4, 5), int), None, None, None, "votes_kind ids or counts"),
        (np.zeros((4, 5)), "ids", None, None, "allowed: integers"),
        (np.zeros(5, int), "ids", None, None, r"dtype int64 and shape \(5,\)"),
        (np.full((4, 5), -2), "ids", None, None, r"votes span \[-2, -2\]"),
        (np.full((4, 5), 7), "ids", 5, None, r"allowed: class ids in \[0, 4\]"),
        (np.full((4, 5), 2.0), None, 6, None, "classes is 6; allowed: 5"),
        (np.full((4, 5), 2.0), None, None, 11, "parties is 11; allowed: 10"),
        (np.array([[1.0, 2.0], [2.0, 2.0]]), None, None, None, "all the same"),
        (np.array([[1.5, 2.5]]), None, None, None, "row 0, are not all whole"),
        (np.array([[1.0, np.nan]]), None, None, None, "whole numbers"),
        (np.array([[-1.0, 3.0]]), None, None, None, "whole numbers >= 0"),
        (np.zeros((3, 2)), None, None, None, "sum to 0"),
        (np.zeros((2, 2), complex), "counts", None, None, "complex128"),
        (np.zeros((0, 3)), None, None, None, "numbers \\[queries, classes\\]"),
    ],
)
def test_votes_of_the_wrong_shape_dtype_or_value_are_refused(tmp_path, array, kind, classes, parties, reason):
    with pytest.raises(InvalidInput, match=reason):
        read(save(tmp_path, array), kind=kind, classes=classes, parties=parties)


def test_transposed_votes_are_asked_about_and_votes_that_agree_on_queries_are_not(tmp_path):
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 5, 40)
    ids = np.where(rng.random((30, 40)) < 0.6, truth, rng.integers(0, 5, (30, 40)))
    assert transposed(read(save(tmp_path, ids), kind="ids")[0]) is None
    assert "transposed" in transposed(read(save(tmp_path, ids.T), kind="ids")[0])
    assert transposed(read(save(tmp_path, ids.T[:9]), kind="ids")[0]) is None


def test_pickled_truncated_and_absent_files_are_told_apart(tmp_path):
    with pytest.raises(DataUnavailable):
        read(tmp_path / "absent.npy", kind="ids")
    pickled = tmp_path / "pickled.npy"
    np.save(pickled, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with refuses(DataCorrupt, "numbers or strings"):
        read(pickled, kind="ids")
    whole = save(tmp_path, np.zeros((40, 50)))
    whole.write_bytes(whole.read_bytes()[:500])
    with pytest.raises(DataCorrupt):
        read(whole)
    text = tmp_path / "text.npy"
    text.write_text("not numpy")
    with pytest.raises(DataCorrupt):
        read(text)


def test_labels_come_from_npy_or_a_key_of_an_archive(tmp_path):
    truth = np.arange(10) % 4
    path = save(tmp_path, truth, "labels.npy")
    np.testing.assert_array_equal(load_labels(str(path), queries=8, classes=4), truth[:8])
    np.savez(tmp_path / "data.npz", y_test=truth.astype(np.uint8), x=np.zeros(3))
    got = load_labels(f"{tmp_path / 'data.npz'}:y_test", queries=10, classes=4)
    np.testing.assert_array_equal(got, truth)
    with pytest.raises(InvalidInput, match="name one of them"):
        load_labels(f"{tmp_path / 'data.npz'}:z", queries=3, classes=4)
    with refuses(InvalidInput, 10, 11):
        load_labels(str(path), queries=11, classes=4)
    with refuses(InvalidInput, "[0, 3]", "[0, 2]"):
        load_labels(str(path), queries=10, classes=3)
    with refuses(InvalidInput, "integers, one dimension"):
        load_labels(str(save(tmp_path, np.zeros((2, 2)), "bad.npy")), queries=1, classes=3)
