"""Fashion-MNIST, SVHN and CIFAR-10 as they are published, and what is refused."""

import gzip
from dataclasses import replace

import numpy as np
import pytest
from scipy.io import savemat

from protocols.errors import DataCorrupt
from simulations import datasets
from simulations.datasets import sources
from simulations.datasets.dataset import DatasetRequest, as_published, drawn
from tests.harness.refusals import refuses

TRAIN, TEST = 50, 20


@pytest.fixture
def few(monkeypatch):
    """Data sets of 50 and 20 rows, so that a test writes little."""
    for name, value in (("fashion_mnist", (5, 2)), ("svhn", None), ("cifar10", (5, 2))):
        for key, small in (("rows", [TRAIN, TEST]), ("each_class", value)):
            monkeypatch.setitem(sources._published()[name], key, small)


def rows(count, shape):
    rng = np.random.default_rng(count)
    return rng.integers(0, 256, (count, *shape), dtype=np.uint8), np.arange(count, dtype=np.uint8) % 10


def write_idx(path, array):
    header = bytes([0, 0, 8, array.ndim]) + b"".join(side.to_bytes(4, "big") for side in array.shape)
    path.write_bytes(gzip.compress(header + array.tobytes()))


def write(folder, name):
    """The images of both parts, as they were written."""
    at = folder / name
    at.mkdir()
    train = rows(TRAIN, (28, 28) if name == "fashion_mnist" else (32, 32, 3))
    test = rows(TEST, train[0].shape[1:])
    if name == "fashion_mnist":
        for part, (images, labels) in (("train", train), ("t10k", test)):
            write_idx(at / f"{part}-images-idx3-ubyte.gz", images)
            write_idx(at / f"{part}-labels-idx1-ubyte.gz", labels)
    elif name == "svhn":
        for part, (images, labels) in (("train", train), ("test", test)):
            ten = np.where(labels == 0, 10, labels)[:, None]
            savemat(at / f"{part}_32x32.mat", {"X": np.moveaxis(images, 0, 3), "y": ten})
    else:
        for number, some in enumerate(np.split(np.arange(TRAIN), 5), 1):
            (at / f"data_batch_{number}.bin").write_bytes(batch(train[0][some], train[1][some]))
        (at / "test_batch.bin").write_bytes(batch(*test))
    return train, test


def batch(images, labels):
    planes = np.moveaxis(images, -1, 1).reshape(len(images), -1)
    return np.concatenate([labels[:, None], planes], axis=1).tobytes()


@pytest.mark.parametrize("name", ["fashion_mnist", "svhn", "cifar10"])
@pytest.mark.usefixtures("few")
def test_the_published_files_give_their_images_in_file_order_where_it_is_asked_for_and_else_as_drawn(tmp_path, name):
    train, test = write(tmp_path, name)
    request = DatasetRequest(seed=0, data_dir=tmp_path, public_size=12, test_size=8)
    found = datasets.DATASETS[name](request, as_published)
    assert found.private_inputs == pytest.approx(train[0] / 255, abs=1e-6)
    assert (found.private_labels == train[1]).all()
    assert found.public_inputs == pytest.approx(test[0][:12] / 255, abs=1e-6)
    assert (found.test_labels == test[1][12:]).all()
    assert found.classes == 10
    order = drawn(TEST, request)
    assert datasets.load(name, request).test_inputs == pytest.approx(test[0][order[12:]] / 255, abs=1e-6)
    assert sorted(order) == list(range(TEST)) != drawn(TEST, replace(request, seed=1)).tolist() != order.tolist()


@pytest.mark.usefixtures("few")
def test_other_numbers_of_rows_and_files_that_are_cut_short_are_refused(tmp_path):
    for name in ("fashion_mnist", "svhn", "cifar10"):
        write(tmp_path, name)
    request = DatasetRequest(seed=0, data_dir=tmp_path, public_size=12, test_size=8)
    for path, reason in (
        (tmp_path / "cifar10" / "data_batch_2.bin", "rows of 3073 bytes"),
        (tmp_path / "svhn" / "train_32x32.mat", "cannot be read"),
        (tmp_path / "fashion_mnist" / "t10k-labels-idx1-ubyte.gz", "cannot be read"),
    ):
        path.write_bytes(path.read_bytes()[:-10])
        with pytest.raises(DataCorrupt, match=reason):
            datasets.load(path.parent.name, request)
    (tmp_path / "cifar10" / "data_batch_2.bin").write_bytes(batch(*rows(10, (32, 32, 3))) * 2)
    with refuses(DataCorrupt, "the published"):
        datasets.load("cifar10", request)
