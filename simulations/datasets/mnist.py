"""The `mnist` data set: 70,000 handwritten digits of 28 x 28 pixels.

LeCun, Bottou, Bengio, Haffner, Gradient-based learning applied to document recognition, Proc. IEEE 86(11),
1998.
"""

from __future__ import annotations

import numpy as np

from simulations.datasets.dataset import Dataset, choose, fixed_public_and_test
from simulations.datasets.published_images import read_images
from simulations.datasets.request import DatasetRequest
from simulations.datasets.sources import DataSource, check_content, row_digests

SOURCE = DataSource(
    folder="mnist",
    url="https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz",
    steps="download mnist.npz, or the four idx files train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, "
    "t10k-images-idx3-ubyte.gz and t10k-labels-idx1-ubyte.gz",
)
TRAIN_CHECKSUM = "54e1ab866c9484947dd4821c52bb7a43938f555d6b046be6af55247f8e6ffc64"
TEST_CHECKSUM = "f7fcf1e9ddc514516467e2f69994c4b2f1e65c6de8ec7260f54e34fba6483f5e"
PUBLIC_SIZE, TEST_SIZE = 9_000, 1_000


def load(request: DatasetRequest) -> Dataset:
    """Images f32 [N, 28, 28] in [0, 1]. Private: the training set; public: the test set's first 9,000; test:
    its last 1,000 (Papernot et al. 2017, section 4), all in file order, so that published votes line up.

    Raises DataUnavailable, DataCorrupt on other content than the published one, InvalidInput on sizes.
    """
    path, arrays = read_images(SOURCE, request.data_dir, archive="mnist.npz")
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
