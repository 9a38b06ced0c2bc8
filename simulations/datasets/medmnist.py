"""The data sets `pneumoniamnist` and `breastmnist`: one official npz format, one check and one split.

Yang et al., MedMNIST v2, Scientific Data 10:41, 2023; CC BY 4.0. The files name no patients.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from protocols.errors import DataCorrupt
from simulations.datasets.dataset import Dataset
from simulations.datasets.request import DatasetRequest
from simulations.datasets.sources import DataSource, check_content, find, read_npz, row_digests
from simulations.datasets.split import Split, cut


@dataclass(frozen=True)
class _Task:
    """One binary MedMNIST task. `checksum` is that of all rows of the three official parts together."""

    name: str
    checksum: str
    class_names: tuple[str, str]
    public_size: int
    about: str


# Chest X-rays of children: Kermany et al., Cell 172(5), 2018.
_PNEUMONIA = _Task(
    name="pneumoniamnist",
    checksum="5f23391f9f05f9d29de94fc4975e39e1187f9631ab0cb37b8c262955d8857a83",
    class_names=("normal", "pneumonia"),
    public_size=1_000,
    about="Chest X-rays of children (PneumoniaMNIST, 28 x 28).",
)
# Breast ultrasound images: Al-Dhabyani et al., Data in Brief 28, 2020.
_BREAST = _Task(
    name="breastmnist",
    checksum="8c535de4068892a0b81956ee0dd0b3993766812070f5a5b20d6678cc772ab5ce",
    class_names=("malignant", "normal or benign"),
    public_size=200,
    about="Breast ultrasound images (BreastMNIST, 28 x 28).",
)


def load_pneumonia(request: DatasetRequest) -> Dataset:
    """5,856 chest X-rays of children, normal or pneumonia; see `_load`."""
    return _load(_PNEUMONIA, request)


def load_breast(request: DatasetRequest) -> Dataset:
    """780 breast ultrasound images, malignant or not; see `_load`."""
    return _load(_BREAST, request)


def _load(task: _Task, request: DatasetRequest) -> Dataset:
    """Images f32 [N, 28, 28] in [0, 1]. Test: the official test part (a stratified choice when fewer are
    asked for); private and public: a stratified split of the official training and validation parts from the
    seed.

    Copies of an image stay in one part, and copies of test images are in neither of the others. Rows are put in the
    order of their digests first, so that files with the same rows in another order give the same data set. Raises
    DataUnavailable, DataCorrupt on other content than the published one, InvalidInput on sizes.
    """
    name = task.name
    source = DataSource(
        folder=name, url=f"https://zenodo.org/records/10519652/files/{name}.npz", steps=f"download {name}.npz"
    )
    path = find(source, request.data_dir, [f"{name}.npz"])
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
    check_content(path, row_digests(images, np.stack([labels, is_test], axis=1)), task.checksum, ordered=False)
    digests = np.array([digest.hex() for digest in row_digests(images)])
    order = np.lexsort((labels, is_test, digests))
    images, labels, is_test, digests = images[order], labels[order], is_test[order], digests[order]
    pool = np.flatnonzero(~is_test & ~np.isin(digests, digests[is_test]))
    test = np.flatnonzero(is_test)
    rng = np.random.default_rng([request.seed, *f"{name} split".encode()])
    copies = np.unique(digests[pool], return_inverse=True)[1]
    sizes = (request.private_size, request.public_size or task.public_size, 0)
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
        class_names=task.class_names,
        about=(
            f"{task.about} Test: the official test part; private and public: a stratified split of the "
            f"official training and validation parts by image. The files name no patients, so images of one "
            f"patient may be in several parts and with several parties."
        ),
    )
