"""The four idx files of MNIST and of data sets in its format, or one npz archive with the same arrays.

The labels of an archive of arrays: classes are the different values, whatever these are.

The data sets `pneumoniamnist` and `breastmnist`: one official npz format, one check and one split.

Yang et al., MedMNIST v2, Scientific Data 10:41, 2023; CC BY 4.0. The files name no patients.

The data sets `fashion_mnist`, `svhn` and `cifar10`, each in the format in which it is published.

Their rows are counted, in all and by class, and not hashed: no checksum of decoded content is published. Private: the
training images; public and test: the first and the last test images in the order, which is drawn unless asked for.
"""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Final

import numpy as np
import scipy.io
from jaxtyping import Int64, Shaped, UInt8
from numpy import ndarray

from protocols.errors import DataCorrupt
from runtime.checked_files import check_content, read_unpacked
from simulations.datasets.dataset import Dataset, DatasetRequest, Order, Split, cut, drawn, held_out, subset
from simulations.datasets.sources import DataSource, Published, find, published, read_npz, row_digests

_NAMES: Final = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def read_images(
    source: DataSource, data_dir: Path | None, *, archive: str
) -> tuple[Path, tuple[UInt8[ndarray, ...], UInt8[ndarray, ...], UInt8[ndarray, ...], UInt8[ndarray, ...]]]:
    """Training images and labels, test images and labels, and the file that errors name.

    archive: the npz file that is looked for first, with x_train, y_train, x_test and y_test. Raises DataUnavailable
    without files, DataCorrupt for others than images u8 [N, height, width] with a label u8 each.
    """
    path = find(source, data_dir, [archive, f"{_NAMES[0]}.gz", _NAMES[0]])
    if path.suffix == ".npz":
        names = ("x_train", "y_train", "x_test", "y_test")
        found = read_npz(path, names)
        arrays = [found[name] for name in names]
    else:
        arrays = [_read_idx(find(source, data_dir, [f"{name}.gz", name])) for name in _NAMES]
    for array, dimensions in zip(arrays, (3, 1, 3, 1), strict=True):
        if array.dtype != np.uint8 or array.ndim != dimensions:
            raise DataCorrupt(
                f"{path} holds an array {array.dtype}{list(array.shape)}; allowed: uint8 with {dimensions} dimensions"
            )
    for images, labels in (arrays[:2], arrays[2:]):
        if len(images) != len(labels):
            raise DataCorrupt(f"{path} holds {len(images)} images but {len(labels)} labels; allowed: equally many")
    train_images, train_labels, test_images, test_labels = arrays
    return path, (train_images, train_labels, test_images, test_labels)


def _read_idx(path: Path) -> UInt8[ndarray, ...]:
    """An idx file: two zero bytes, type (8 = unsigned byte), rank, sizes as big-endian u32, then the
    values."""
    content = read_unpacked(path)
    rank = content[3] if len(content) > 3 else 0
    header = 4 + 4 * rank
    shape = [int.from_bytes(content[at : at + 4], "big") for at in range(4, header, 4)]
    if content[:3] != b"\0\0\x08" or rank == 0 or len(content) != header + math.prod(shape):
        raise DataCorrupt(f"{path} is not an idx file of unsigned bytes: {len(content)} bytes do not fit its header")
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape)


# With more different values, or with fewer records of each in the mean, y is a quantity rather than a class.
_MOST_CLASSES, _FEWEST_RECORDS = 200, 2
# Whole numbers below are exact as floats.
_EXACT = 2.0**53


def class_labels(
    y: Shaped[ndarray, "*shape"], classes: Shaped[ndarray, "*shape"] | None, *, where: str
) -> tuple[Int64[ndarray, " records"], tuple[str, ...]]:
    """The class of each record, from 0, and the names of the classes.

    y: texts, truth values or whole numbers [N] or [N, 1], or rows of a single one [N, classes]. classes: all names, to
    which numbers point from 0 and which texts must be among; without it the classes are the different values of y, in
    the order of numbers or of text. Raises DataCorrupt naming the array and the first row that is wrong.
    """
    values = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    names = None if classes is None else [str(name) for name in classes.reshape(-1)]
    if values.ndim == 2 and np.issubdtype(values.dtype, np.number) and _one_each(values):
        names = names or [str(place) for place in range(values.shape[1])]
        values = values.argmax(axis=1)
    whole = values.dtype.kind in "iuf" and bool((np.abs(values) < _EXACT).all() and (values == np.rint(values)).all())
    texts = values.dtype.kind == "U"
    if values.ndim != 1 or values.size == 0 or not (whole or texts or values.dtype == bool):
        raise DataCorrupt(
            f"{where}: y is {y.dtype}{list(y.shape)}; allowed: whole numbers or names of classes, one per row"
        )
    if texts:
        values = np.char.strip(values)
    elif whole:
        values = values.astype(np.int64)
    if names is None:
        return _distinct(values, where=where)
    known = {name.strip(): place for place, name in enumerate(names)}
    places = np.array([known.get(text, -1) for text in values.tolist()]) if texts else values.astype(np.int64)
    wrong = (places < 0) | (places >= len(names))
    if wrong.any():
        row = int(np.argmax(wrong))
        allowed = ", ".join(known)[:200] if texts else f"0 to {len(names) - 1}"
        raise DataCorrupt(f"{where}: y, row {row + 1}: {values[row]}; allowed: {allowed}")
    return places.astype(np.int64), tuple(names)


def _distinct(values: Shaped[ndarray, " records"], *, where: str) -> tuple[Int64[ndarray, " records"], tuple[str, ...]]:
    found, places = np.unique(values, return_inverse=True)
    if not 2 <= len(found) <= min(_MOST_CLASSES, len(values) // _FEWEST_RECORDS):
        raise DataCorrupt(
            f"{where}: y has {len(found)} different values in {len(values)} rows; allowed: 2 to {_MOST_CLASSES} "
            f"classes, of {_FEWEST_RECORDS} records each in the mean, or an array `classes` of all their names"
        )
    if values.dtype.kind == "i" and found[0] == -1 and found[1] == 0:
        row = int(np.argmax(values == -1))
        raise DataCorrupt(f"{where}: y, row {row + 1}: -1, beside 0; allowed: rows with a label, and no mark of none")
    return places.astype(np.int64), tuple(str(value) for value in found.tolist())


def _one_each(rows: Shaped[ndarray, "records classes"]) -> bool:
    return bool(rows.shape[1] > 1 and ((rows == 0) | (rows == 1)).all() and (rows.sum(axis=1) == 1).all())


def load_pneumonia(request: DatasetRequest) -> Dataset:
    """5,856 chest X-rays of children, normal or pneumonia; see `_load`."""
    return _load(published("pneumoniamnist"), request)


def load_breast(request: DatasetRequest) -> Dataset:
    """780 breast ultrasound images, malignant or not; see `_load`."""
    return _load(published("breastmnist"), request)


def _load(task: Published, request: DatasetRequest) -> Dataset:
    """Images f32 [N, 28, 28] in [0, 1]. Test: the official test part (a stratified choice when fewer are
    asked for); private and public: a stratified split of the official training and validation parts from the
    seed.

    Copies of an image stay in one part, and copies of test images are in neither of the others. Rows are put in the
    order of their digests first, so that files with the same rows in another order give the same data set. Raises
    DataUnavailable, DataCorrupt on other content than the published one, InvalidInput on sizes.
    """
    name = task.name
    path = find(task.source, request.data_dir, [f"{name}.npz"])
    official = ("train", "val", "test")
    arrays = read_npz(path, [f"{part}_{what}" for part in official for what in ("images", "labels")])
    for part in official:
        images, labels = arrays[f"{part}_images"], arrays[f"{part}_labels"]
        if images.dtype != np.uint8 or images.shape[1:] != (28, 28) or labels.shape != (len(images), 1):
            raise DataCorrupt(
                f"{path}: {part}_images is {images.dtype}{list(images.shape)}, {part}_labels "
                f"{list(labels.shape)}; allowed: uint8 [N, 28, 28] and [N, 1]"
            )
    images = np.concatenate([arrays[f"{part}_images"] for part in official])
    labels = np.concatenate([arrays[f"{part}_labels"] for part in official])[:, 0].astype(np.int64)
    is_test = np.repeat([False, False, True], [len(arrays[f"{part}_images"]) for part in official])
    # The part is hashed with the row: a file that moves an image from training to test is not the published
    # one.
    check_content(path, row_digests(images, np.stack([labels, is_test], axis=1)), task.checksums[name], ordered=False)
    digests = np.array([digest.hex() for digest in row_digests(images)])
    order = np.lexsort((labels, is_test, digests))
    images, labels, is_test, digests = images[order], labels[order], is_test[order], digests[order]
    pool = np.flatnonzero(~is_test & ~np.isin(digests, digests[is_test]))
    test = np.flatnonzero(is_test)
    rng = np.random.default_rng([request.seed, *f"{name} split".encode()])
    copies = np.unique(digests[pool], return_inverse=True)[1]
    sizes = (request.private_size, request.public_size or task.sizes[0], 0)
    parts = cut(labels[pool], groups=copies, sizes=sizes, name=name, rng=rng)
    if request.test_size is not None and request.test_size != len(test):
        chosen = cut(labels[test], groups=None, sizes=(None, request.test_size, 0), name=f"{name} test part", rng=rng)
        test = test[chosen.public]
    return Dataset.of(
        images * np.float32(1 / 255),
        labels,
        Split(private=pool[parts.private], public=pool[parts.public], test=test),
        name=name,
        kind="image",
        class_names=task.classes,
        about=(
            f"{task.about} Test: the official test part; private and public: a stratified split of the "
            f"official training and validation parts by image. The files name no patients, so images of one "
            f"patient may be in several parts and with several parties."
        ),
    )


_CIFAR_BATCHES: Final = tuple(f"data_batch_{number}.bin" for number in range(1, 6))

_Part = tuple[UInt8[ndarray, "rows ..."], Int64[ndarray, " rows"]]


def load_mnist(request: DatasetRequest, order: Order = drawn) -> Dataset:
    """70,000 digits f32 [N, 28, 28]. Private: the training set; public and test: 9,000 and 1,000 images of the test
    set, the first and the last ones in the order (as published: Papernot et al. 2017, section 4).

    Raises DataUnavailable, DataCorrupt on other content than the published one, InvalidInput on sizes.
    """
    about = published("mnist")
    path, (images, labels, test_images, test_labels) = read_images(about.source, request.data_dir, archive="mnist.npz")
    check_content(path, row_digests(images, labels), about.checksums["train"], ordered=False)
    check_content(path, row_digests(test_images, test_labels), about.checksums["test"], ordered=True)
    parts = ((images, labels.astype(np.int64)), (test_images, test_labels.astype(np.int64)))
    return _official(about, parts, request, order, rng=np.random.default_rng([request.seed, *b"mnist private"]))


def load_fashion_mnist(request: DatasetRequest, order: Order = drawn) -> Dataset:
    """70,000 grey garments f32 [N, 28, 28] of 10 classes; see `_counted`."""
    about = published("fashion_mnist")
    path, (images, labels, test_images, test_labels) = read_images(
        about.source, request.data_dir, archive="fashion_mnist.npz"
    )
    parts = ((images, labels.astype(np.int64)), (test_images, test_labels.astype(np.int64)))
    return _counted(about, path, parts, request, order)


def load_svhn(request: DatasetRequest, order: Order = drawn) -> Dataset:
    """99,289 colour images f32 [N, 32, 32, 3] of house numbers, 10 classes; see `_counted`."""
    about = published("svhn")
    paths = [find(about.source, request.data_dir, [f"{part}_32x32.mat"]) for part in ("train", "test")]
    return _counted(about, paths[0], (_read_svhn(paths[0]), _read_svhn(paths[1])), request, order)


def load_cifar10(request: DatasetRequest, order: Order = drawn) -> Dataset:
    """60,000 photographs f32 [N, 32, 32, 3] of 10 classes; see `_counted`. Only the binary version is read."""
    about = published("cifar10")
    train = [_read_cifar(find(about.source, request.data_dir, [name])) for name in _CIFAR_BATCHES]
    path = find(about.source, request.data_dir, ["test_batch.bin"])
    images, labels = (np.concatenate(arrays) for arrays in zip(*train, strict=True))
    return _counted(about, path, ((images, labels), _read_cifar(path)), request, order)


def _counted(what: Published, path: Path, parts: tuple[_Part, _Part], request: DatasetRequest, order: Order) -> Dataset:
    """The data set of the published shapes and numbers of rows; each_class: of a class in both parts, None where they
    differ. Raises DataUnavailable, DataCorrupt for others, InvalidInput on sizes.
    """
    shape, rows, each_class = what.more["shape"], what.more["rows"], what.more["each_class"]
    for at, (images, labels) in enumerate(parts):
        counts = np.bincount(labels, minlength=len(what.classes))
        even = each_class is None or (counts == each_class[at]).all()
        if list(images.shape) != [rows[at], *shape] or len(counts) > len(what.classes) or not even:
            raise DataCorrupt(
                f"{path} and its neighbours hold images {list(images.shape)} with {counts.tolist()} of each class in "
                f"the {('training', 'test')[at]} part; allowed: the published {[rows[at], *shape]}"
                + ("" if each_class is None else f", {each_class[at]} of each class")
            )
    return _official(what, parts, request, order, rng=np.random.default_rng([request.seed, *b"private"]))


def _official(
    what: Published, parts: tuple[_Part, _Part], request: DatasetRequest, order: Order, *, rng: np.random.Generator
) -> Dataset:
    """Images in [0, 1]; private records are a uniform choice where fewer are asked for."""
    (images, labels), (test_images, test_labels) = parts
    private = subset(len(labels), request.private_size, what.name, rng)
    defaults = (what.sizes[0], what.sizes[1])
    public, test = held_out(len(test_labels), order, request, defaults, what.name)
    scale = np.float32(1 / 255)
    return Dataset(
        name=what.name,
        kind="image",
        class_names=what.classes,
        private_inputs=images[private] * scale,
        private_labels=labels[private],
        public_inputs=test_images[public] * scale,
        public_labels=test_labels[public],
        test_inputs=test_images[test] * scale,
        test_labels=test_labels[test],
        about=what.about,
    )


def _read_svhn(path: Path) -> _Part:
    """A MATLAB file: X u8 [32, 32, 3, N], and y [N, 1] from 1 to 10, where 10 is the digit 0. Raises DataCorrupt."""
    try:
        content = io.BytesIO(read_unpacked(path))
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
    content = np.frombuffer(read_unpacked(path), dtype=np.uint8)
    row = 1 + 3 * 32 * 32
    if len(content) == 0 or len(content) % row:
        raise DataCorrupt(f"{path} has {len(content)} bytes; allowed: rows of {row} bytes")
    rows = content.reshape(-1, row)
    return np.moveaxis(rows[:, 1:].reshape(-1, 3, 32, 32), 1, -1), rows[:, 0].astype(np.int64)
