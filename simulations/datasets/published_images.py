"""The data sets `fashion_mnist`, `svhn` and `cifar10`, each in the format in which it is published.

Their rows are counted, in all and by class, and not hashed: no checksum of decoded content is published. Private: the
training images; public and test: the first and the last test images, in file order.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import scipy.io
from jaxtyping import Int64, UInt8
from numpy import ndarray

from protocols.errors import DataCorrupt
from simulations.datasets.dataset import Dataset
from simulations.datasets.idx_files import read_images
from simulations.datasets.request import DatasetRequest
from simulations.datasets.sources import DataSource, find, read_bytes
from simulations.datasets.split import choose, fixed_public_and_test


@dataclass(frozen=True)
class _Published:
    """rows: of the training and the test part; each_class: of a class in both parts, None where they differ."""

    name: str
    shape: tuple[int, ...]
    rows: tuple[int, int]
    each_class: tuple[int, int] | None
    class_names: tuple[str, ...]
    about: str


# Xiao, Rasul and Vollgraf, Fashion-MNIST, arXiv 1708.07747, 2017.
FASHION: Final = _Published(
    name="fashion_mnist",
    shape=(28, 28),
    rows=(60_000, 10_000),
    each_class=(6_000, 1_000),
    class_names=(
        "t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"
    ),
    about="Fashion-MNIST garments.",
)  # fmt: skip
# Netzer et al., Reading digits in natural images with unsupervised feature learning, 2011: cropped digits.
SVHN: Final = _Published(
    name="svhn",
    shape=(32, 32, 3),
    rows=(73_257, 26_032),
    each_class=None,
    class_names=tuple("0123456789"),
    about="Street View House Numbers, cropped digits.",
)
# Krizhevsky, Learning multiple layers of features from tiny images, 2009.
CIFAR10: Final = _Published(
    name="cifar10",
    shape=(32, 32, 3),
    rows=(50_000, 10_000),
    each_class=(5_000, 1_000),
    class_names=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    about="CIFAR-10 photographs.",
)
_PUBLIC_SIZE, _TEST_SIZE = 8_000, 2_000
_CIFAR_BATCHES: Final = tuple(f"data_batch_{number}.bin" for number in range(1, 6))

_Part = tuple[UInt8[ndarray, "rows ..."], Int64[ndarray, " rows"]]


def load_fashion_mnist(request: DatasetRequest) -> Dataset:
    """70,000 grey garments f32 [N, 28, 28] of 10 classes; see `_dataset`."""
    source = DataSource(
        folder="fashion_mnist",
        url="https://github.com/zalandoresearch/fashion-mnist",
        steps="download train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz and "
        "t10k-labels-idx1-ubyte.gz",
    )
    path, (images, labels, test_images, test_labels) = read_images(
        source, request.data_dir, archive="fashion_mnist.npz"
    )
    parts = ((images, labels.astype(np.int64)), (test_images, test_labels.astype(np.int64)))
    return _dataset(FASHION, path, parts, request)


def load_svhn(request: DatasetRequest) -> Dataset:
    """99,289 colour images f32 [N, 32, 32, 3] of house numbers, 10 classes; see `_dataset`."""
    source = DataSource(
        folder="svhn",
        url="http://ufldl.stanford.edu/housenumbers/",
        steps="download train_32x32.mat and test_32x32.mat",
    )
    paths = [find(source, request.data_dir, [f"{part}_32x32.mat"]) for part in ("train", "test")]
    return _dataset(SVHN, paths[0], (_read_svhn(paths[0]), _read_svhn(paths[1])), request)


def load_cifar10(request: DatasetRequest) -> Dataset:
    """60,000 photographs f32 [N, 32, 32, 3] of 10 classes; see `_dataset`. Only the binary version is read."""
    source = DataSource(
        folder="cifar10",
        url="https://www.cs.toronto.edu/~kriz/cifar.html",
        steps="download cifar-10-binary.tar.gz (the binary version) and unpack its .bin files",
    )
    train = [_read_cifar(find(source, request.data_dir, [name])) for name in _CIFAR_BATCHES]
    path = find(source, request.data_dir, ["test_batch.bin"])
    images, labels = (np.concatenate(arrays) for arrays in zip(*train, strict=True))
    return _dataset(CIFAR10, path, ((images, labels), _read_cifar(path)), request)


def _dataset(what: _Published, path: Path, parts: tuple[_Part, _Part], request: DatasetRequest) -> Dataset:
    """Images in [0, 1]; private records are a uniform choice by the seed where fewer are asked for.

    Raises DataUnavailable, DataCorrupt where shapes or numbers of rows are not the published ones, InvalidInput on
    sizes.
    """
    for at, (images, labels) in enumerate(parts):
        counts = np.bincount(labels, minlength=len(what.class_names))
        even = what.each_class is None or (counts == what.each_class[at]).all()
        if images.shape != (what.rows[at], *what.shape) or len(counts) > len(what.class_names) or not even:
            raise DataCorrupt(
                f"{path} and its neighbours hold images {list(images.shape)} with {counts.tolist()} of each class in "
                f"the {('training', 'test')[at]} part; allowed: the published {[what.rows[at], *what.shape]}"
                + ("" if what.each_class is None else f", {what.each_class[at]} of each class")
            )
    (images, labels), (test_images, test_labels) = parts
    private = choose(len(labels), request.private_size, what.name, np.random.default_rng([request.seed, *b"private"]))
    public, test = fixed_public_and_test(
        len(test_labels), request.public_size, request.test_size, (_PUBLIC_SIZE, _TEST_SIZE), what.name
    )
    scale = np.float32(1 / 255)
    return Dataset(
        name=what.name,
        kind="image",
        class_names=what.class_names,
        private_inputs=images[private] * scale,
        private_labels=labels[private],
        public_inputs=test_images[public] * scale,
        public_labels=test_labels[public],
        test_inputs=test_images[test] * scale,
        test_labels=test_labels[test],
        about=(
            f"{what.about} Private: from the training images; public and test: the first and the last test images, in "
            "file order."
        ),
    )


def _read_svhn(path: Path) -> _Part:
    """A MATLAB file: X u8 [32, 32, 3, N], and y [N, 1] from 1 to 10, where 10 is the digit 0. Raises DataCorrupt."""
    try:
        content = io.BytesIO(read_bytes(path))
        found = scipy.io.loadmat(content, variable_names=["X", "y"])  # type: ignore[arg-type]  # the stub lacks files
    except (ValueError, TypeError, NotImplementedError, OSError, EOFError, scipy.io.matlab.MatReadError) as error:
        raise DataCorrupt(f"{path} cannot be read: {error}; allowed: a MATLAB 5 file") from error
    images, labels = found.get("X"), found.get("y")
    if images is None or labels is None or images.dtype != np.uint8 or images.ndim != 4:
        raise DataCorrupt(f"{path} does not hold X, uint8 with 4 dimensions, and y; allowed: both")
    if not labels.size or labels.shape != (images.shape[3], 1) or labels.min() < 1 or labels.max() > 10:
        raise DataCorrupt(f"{path} holds labels {list(labels.shape)}; allowed: [{images.shape[3]}, 1], from 1 to 10")
    return np.moveaxis(images, 3, 0), labels[:, 0].astype(np.int64) % 10


def _read_cifar(path: Path) -> _Part:
    """A binary batch: rows of a label byte and 3 planes of 32 x 32 bytes, red first. Raises DataCorrupt."""
    content = np.frombuffer(read_bytes(path), dtype=np.uint8)
    row = 1 + 3 * 32 * 32
    if len(content) == 0 or len(content) % row:
        raise DataCorrupt(f"{path} has {len(content)} bytes; allowed: rows of {row} bytes")
    rows = content.reshape(-1, row)
    return np.moveaxis(rows[:, 1:].reshape(-1, 3, 32, 32), 1, -1), rows[:, 0].astype(np.int64)
