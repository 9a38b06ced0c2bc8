"""The `mnist` data set: 70,000 handwritten digits of 28 x 28 pixels.

LeCun, Bottou, Bengio, Haffner, Gradient-based learning applied to document recognition, Proc. IEEE 86(11),
1998.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from numpy import ndarray

from protocols.errors import DataCorrupt
from simulations.datasets.dataset import Dataset
from simulations.datasets.request import DatasetRequest
from simulations.datasets.sources import DataSource, check_content, find, read_bytes, read_npz, row_digests
from simulations.datasets.split import choose, fixed_public_and_test

SOURCE = DataSource(
    folder="mnist",
    url="https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz",
    steps="download mnist.npz, or the four idx files train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, "
    "t10k-images-idx3-ubyte.gz and t10k-labels-idx1-ubyte.gz",
)
TRAIN_CHECKSUM = "54e1ab866c9484947dd4821c52bb7a43938f555d6b046be6af55247f8e6ffc64"
TEST_CHECKSUM = "f7fcf1e9ddc514516467e2f69994c4b2f1e65c6de8ec7260f54e34fba6483f5e"
PUBLIC_SIZE, TEST_SIZE = 9_000, 1_000

_IDX = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def load(request: DatasetRequest) -> Dataset:
    """Images f32 [N, 28, 28] in [0, 1]. Private: the training set; public: the test set's first 9,000; test:
    its last 1,000 (Papernot et al. 2017, section 4), all in file order, so that published votes line up.

    Raises DataUnavailable, DataCorrupt on other content than the published one, InvalidInput on sizes.
    """
    path, arrays = _read(request.data_dir)
    train_images, train_labels, test_images, test_labels = arrays
    check_content(path, row_digests(train_images, train_labels), TRAIN_CHECKSUM, ordered=False)
    check_content(path, row_digests(test_images, test_labels), TEST_CHECKSUM, ordered=True)
    rng = np.random.default_rng([request.seed, *b"mnist private"])
    private = choose(len(train_labels), request.private_size, "mnist", rng)
    public, test = fixed_public_and_test(
        len(test_labels), request.public_size, request.test_size, (PUBLIC_SIZE, TEST_SIZE), "mnist"
    )
    scale = np.float32(1 / 255)
    return Dataset(
        name="mnist",
        kind="image",
        class_names=tuple("0123456789"),
        private_inputs=train_images[private] * scale,
        private_labels=train_labels[private].astype(np.int64),
        public_inputs=test_images[public] * scale,
        public_labels=test_labels[public].astype(np.int64),
        test_inputs=test_images[test] * scale,
        test_labels=test_labels[test].astype(np.int64),
        about=(
            "MNIST handwritten digits. Private: from the 60,000 training images; public and test: the first "
            "and the last of the 10,000 test images, in file order."
        ),
    )


def _read(data_dir: Path | None) -> tuple[Path, list[UInt8[ndarray, ...]]]:
    """The four arrays (train images and labels, test images and labels) and the file that errors name."""
    path = find(SOURCE, data_dir, ["mnist.npz", f"{_IDX[0]}.gz", _IDX[0]])
    if path.suffix == ".npz":
        names = ("x_train", "y_train", "x_test", "y_test")
        archive = read_npz(path, names)
        arrays = [archive[name] for name in names]
    else:
        arrays = [_read_idx(find(SOURCE, data_dir, [f"{name}.gz", name])) for name in _IDX]
    for array, dimensions in zip(arrays, (3, 1, 3, 1), strict=True):
        if array.dtype != np.uint8 or array.ndim != dimensions:
            raise DataCorrupt(
                f"{path} holds an array {array.dtype}{list(array.shape)}; allowed: uint8 with {dimensions} dimensions"
            )
    for images, labels in (arrays[:2], arrays[2:]):
        if len(images) != len(labels):
            raise DataCorrupt(f"{path} holds {len(images)} images but {len(labels)} labels; allowed: equally many")
    return path, arrays


def _read_idx(path: Path) -> UInt8[ndarray, ...]:
    """An idx file: two zero bytes, type (8 = unsigned byte), rank, sizes as big-endian u32, then the
    values."""
    content = read_bytes(path)
    rank = content[3] if len(content) > 3 else 0
    header = 4 + 4 * rank
    shape = [int.from_bytes(content[at : at + 4], "big") for at in range(4, header, 4)]
    if content[:3] != b"\0\0\x08" or rank == 0 or len(content) != header + math.prod(shape):
        raise DataCorrupt(f"{path} is not an idx file of unsigned bytes: {len(content)} bytes do not fit its header")
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape)
