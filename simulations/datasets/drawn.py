"""Data sets of images that are drawn at run time: three parts, each of its own random stream, in any size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from jaxtyping import Float32, Float64, Int64
from numpy import ndarray

from protocols.errors import InvalidInput
from simulations.datasets.dataset import Dataset
from simulations.datasets.request import DatasetRequest

Draw = Callable[[Int64[ndarray, " records"], np.random.Generator], Float32[ndarray, "records ..."]]


def drawn(
    request: DatasetRequest,
    *,
    name: str,
    class_names: Sequence[str],
    sizes: Mapping[str, int],
    draw: Draw,
    about: str,
) -> Dataset:
    """Draws labels, and an image for each, of the three parts; each part's stream is that of (seed, name, part).

    sizes: of "private", "public" and "test", where the request names none. Classes are equally frequent; with
    `imbalance` r the private class sizes fall geometrically, the first r times the last (Cui et al. 2019,
    "Class-Balanced Loss", section 5), public and test stay balanced. `mislabelled` of the private labels are
    replaced by another class, uniformly.

    Raises InvalidInput for a number of classes other than that of the names.
    """
    classes = len(class_names)
    if request.classes not in (None, classes):
        raise InvalidInput(f"{name}: classes is {request.classes}; allowed: {classes}")
    asked = {"private": request.private_size, "public": request.public_size, "test": request.test_size}
    inputs: dict[str, Float32[ndarray, "records ..."]] = {}
    labels: dict[str, Int64[ndarray, " records"]] = {}
    for part, size in asked.items():
        rng = np.random.default_rng([request.seed, *f"{name} {part}".encode()])
        shares = np.ones(classes)
        if part == "private":
            shares = request.imbalance ** -np.linspace(0, 1, classes)
        labels[part] = _draw_labels(sizes[part] if size is None else size, shares, rng)
        inputs[part] = draw(labels[part], rng)
        if part == "private":
            labels[part] = _mislabel(labels[part], request.mislabelled, classes, rng)
    return Dataset(
        name=name,
        kind="image",
        class_names=tuple(class_names),
        private_inputs=inputs["private"],
        private_labels=labels["private"],
        public_inputs=inputs["public"],
        public_labels=labels["public"],
        test_inputs=inputs["test"],
        test_labels=labels["test"],
        about=about,
    )


def _draw_labels(
    size: int, shares: Float64[ndarray, " classes"], rng: np.random.Generator
) -> Int64[ndarray, " records"]:
    """Labels in random order with class sizes in proportion to `shares`, rounded by largest remainder."""
    exact = size * shares / shares.sum()
    counts = np.floor(exact).astype(np.int64)
    counts[np.argsort(counts - exact, kind="stable")[: size - counts.sum()]] += 1
    labels = np.repeat(np.arange(len(shares), dtype=np.int64), counts)
    rng.shuffle(labels)
    return labels


def _mislabel(
    labels: Int64[ndarray, " records"], share: float, classes: int, rng: np.random.Generator
) -> Int64[ndarray, " records"]:
    """The labels with round(share * records) of them replaced by another class, chosen uniformly."""
    wrong = rng.choice(len(labels), size=round(share * len(labels)), replace=False)
    changed = labels.copy()
    changed[wrong] = (labels[wrong] + rng.integers(1, classes, size=len(wrong))) % classes
    return changed
