"""Files: looked for where the message says, and accepted only with the published content."""

import gzip
import io
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.errors import DataCorrupt, DataUnavailable
from runtime.checked_files import check_content, read_lines, read_unpacked
from simulations import datasets
from simulations.datasets import published_images, sources
from simulations.datasets.dataset import DatasetRequest, drawn
from simulations.datasets.sources import DataSource, find, read_npz, row_digests
from tests.harness.refusals import refuses

FILE_DATASETS = ("mnist", "adult", "diabetes130", "eicu_demo", "pneumoniamnist", "breastmnist")
SOURCE = DataSource(folder="toy", url="https://example.org/toy.npz", steps="download toy.npz")


@pytest.mark.parametrize("name", FILE_DATASETS)
def test_an_absent_data_set_says_where_it_was_looked_for_and_how_to_get_it(name, tmp_path, monkeypatch):
    monkeypatch.setenv("CONCLAVE_DATA", str(tmp_path / "elsewhere"))
    for data_dir, place in ((tmp_path, tmp_path / name), (None, tmp_path / "elsewhere" / name)):
        with pytest.raises(DataUnavailable) as raised:
            datasets.load(name, DatasetRequest(seed=0, data_dir=data_dir))
        for part in (str(place), "https://", "CONCLAVE_DATA=", "--data-dir", "download"):
            assert part in str(raised.value)


def test_the_first_name_found_is_taken_and_a_given_folder_goes_before_the_environment(tmp_path, monkeypatch):
    for root in ("given", "named"):
        (tmp_path / root / "toy").mkdir(parents=True)
        (tmp_path / root / "toy" / "b").write_bytes(b"")
    (tmp_path / "named" / "toy" / "a").write_bytes(b"")
    monkeypatch.setenv("CONCLAVE_DATA", str(tmp_path / "named"))
    assert find(SOURCE, None, ["a", "b"]) == tmp_path / "named" / "toy" / "a"
    assert find(SOURCE, tmp_path / "given", ["a", "b"]) == tmp_path / "given" / "toy" / "b"


def _checksum(digests, *, ordered):
    with pytest.raises(DataCorrupt) as raised:
        check_content("file", digests, "unknown", ordered=ordered)
    return str(raised.value).split("content checksum ")[1].split(";")[0]


@settings(max_examples=50, deadline=None)
@given(rows=st.lists(st.binary(min_size=3, max_size=3), min_size=2, max_size=8), data=st.data())
def test_content_checksums_ignore_the_order_of_rows_and_nothing_else(rows, data):
    array = np.array([list(row) for row in rows], dtype=np.uint8)
    labels = np.array([sum(row) % 5 for row in rows], dtype=np.uint8)
    expected = _checksum(row_digests(array, labels), ordered=False)
    shuffled = np.array(data.draw(st.permutations(range(len(rows)))))
    check_content("file", row_digests(array[shuffled], labels[shuffled]), expected, ordered=False)
    changed, relabelled = array.copy(), labels.copy()
    changed[0, 1] ^= 1
    relabelled[-1] += 1
    for wrong in (
        row_digests(changed, labels),
        row_digests(array, relabelled),
        row_digests(array[1:], labels[1:]),
        row_digests(np.concatenate([array, array[:1]]), np.concatenate([labels, labels[:1]])),
    ):
        with refuses(DataCorrupt, expected):
            check_content("file", wrong, expected, ordered=False)


def test_damaged_files_are_refused_and_never_unpickled(tmp_path):
    whole = gzip.compress(b"some content " * 100)
    (tmp_path / "cut.gz").write_bytes(whole[:-9])
    (tmp_path / "no.gz").write_bytes(b"plain")
    (tmp_path / "latin1").write_bytes(b"caf\xe9")
    for name in ("cut.gz", "no.gz"):
        with refuses(DataCorrupt, name):
            read_unpacked(tmp_path / name)
    with refuses(DataCorrupt, "UTF-8"):
        read_lines(tmp_path / "latin1")
    buffer = io.BytesIO()
    np.savez(buffer, x=np.arange(100))
    (tmp_path / "cut.npz").write_bytes(buffer.getvalue()[:-30])
    (tmp_path / "text.npz").write_bytes(b"not an archive")
    (tmp_path / "pickle.npz").write_bytes(pickle.dumps([1]))
    np.savez(tmp_path / "objects.npz", x=np.array([{}], dtype=object), allow_pickle=True)
    np.save(tmp_path / "single.npy", np.arange(3))
    (tmp_path / "single.npy").rename(tmp_path / "single.npz")
    for name in ("cut", "text", "pickle", "objects", "single"):
        with refuses(DataCorrupt, name, ".npz"):
            read_npz(tmp_path / f"{name}.npz")
    np.savez(tmp_path / "good.npz", x=np.arange(3))
    with refuses(DataCorrupt, "y"):
        read_npz(tmp_path / "good.npz", ["x", "y"])


def _idx(array):
    header = b"\0\0\x08" + bytes([array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
    return header + array.astype(np.uint8).tobytes()


def _mnist_folder(tmp_path, arrays, **changed):
    folder = tmp_path / "mnist"
    folder.mkdir(exist_ok=True)
    for name, array in zip(published_images._NAMES, arrays, strict=True):
        (folder / f"{name}.gz").write_bytes(gzip.compress(changed.get(name[:2], _idx(array))))
    return tmp_path


@pytest.fixture
def small_mnist(monkeypatch):
    """Four small arrays that pass for the published ones."""
    rng = np.random.default_rng(0)
    arrays = [
        rng.integers(0, 256, (40, 28, 28), dtype=np.uint8),
        np.arange(40, dtype=np.uint8) % 10,
        rng.integers(0, 256, (30, 28, 28), dtype=np.uint8),
        np.arange(30, dtype=np.uint8) % 10,
    ]
    train, test = _checksum(row_digests(*arrays[:2]), ordered=False), _checksum(row_digests(*arrays[2:]), ordered=True)
    monkeypatch.setitem(sources._published()["mnist"], "checksums", {"train": train, "test": test})
    return arrays


def test_mnist_reads_the_official_idx_files_and_the_keras_archive_alike(tmp_path, small_mnist):
    request = DatasetRequest(seed=0, data_dir=_mnist_folder(tmp_path, small_mnist), test_size=5)
    official = datasets.load("mnist", request)
    assert (len(official.private_labels), len(official.public_labels), len(official.test_labels)) == (40, 25, 5)
    np.testing.assert_allclose(official.public_inputs[3], small_mnist[2][drawn(30, request)[3]] / 255, atol=1e-6)
    arrays = zip(("x_train", "y_train", "x_test", "y_test"), small_mnist, strict=True)
    np.savez(tmp_path / "mnist" / "mnist.npz", **dict(arrays))
    keras = datasets.load("mnist", request)
    np.testing.assert_array_equal(official.private_inputs, keras.private_inputs)
    np.testing.assert_array_equal(official.test_labels, keras.test_labels)


@pytest.mark.parametrize("part", [0, 1, 2, 3])
def test_mnist_with_one_changed_value_is_refused(part, tmp_path, small_mnist):
    small_mnist[part].reshape(-1)[17] ^= 1
    root = _mnist_folder(tmp_path, small_mnist)
    with refuses(DataCorrupt, "rows"):
        datasets.load("mnist", DatasetRequest(seed=0, data_dir=root, test_size=5))


def test_mnist_test_images_in_another_order_are_refused_and_training_images_are_not(tmp_path, small_mnist):
    train = [array[::-1] for array in small_mnist[:2]]
    root = _mnist_folder(tmp_path, train + small_mnist[2:])
    datasets.load("mnist", DatasetRequest(seed=0, data_dir=root, test_size=5))
    root = _mnist_folder(tmp_path, small_mnist[:2] + [array[::-1] for array in small_mnist[2:]])
    with pytest.raises(DataCorrupt, match="in their order"):
        datasets.load("mnist", DatasetRequest(seed=0, data_dir=root, test_size=5))


@pytest.mark.parametrize(
    "content",
    [b"", b"\0\0\x08", b"\0\0\x08\x03\0\0", b"\0\0\x0d\x01\0\0\0\x01\0"]
    + [b"\0\0\x08\x01\0\0\0\x05abc", b"\0\0\x08\0x"],
)
def test_idx_files_that_do_not_fit_their_header_are_refused(content, tmp_path, small_mnist):
    root = _mnist_folder(tmp_path, small_mnist, t1=content)
    with refuses(DataCorrupt, "idx"):
        datasets.load("mnist", DatasetRequest(seed=0, data_dir=root))
