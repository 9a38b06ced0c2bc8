"""Archives with the array names that others use: keras (x_train, y_test, ...) and MedMNIST (train_images, ...)."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from jaxtyping import Int64, Shaped
from numpy import ndarray

from protocols.errors import DataCorrupt

_Arrays = dict[str, Shaped[ndarray, "*shape"]]
_WHAT = {
    **dict.fromkeys(("x", "images", "data", "features", "inputs"), "x"),
    **dict.fromkeys(("y", "labels", "targets", "target"), "y"),
}
_CLASSES = ("classes", "class_names", "target_names", "label_names")
_PART = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
_FIRST = re.compile(rf"({'|'.join(_WHAT)})_({'|'.join(_PART)})", re.IGNORECASE)
_LAST = re.compile(rf"({'|'.join(_PART)})_({'|'.join(_WHAT)})", re.IGNORECASE)
# Of the training part, where there is no validation part: as many as of a file that is cut by shares.
_PUBLIC_SHARE = 0.25 / (0.25 + 0.6)


def without_part(arrays: _Arrays) -> _Arrays:
    """The archive with x, y and classes in place of usual names of one pool, such as X, images and labels, or data,
    target and target_names. A name that stands for what another one already is stays."""
    renamed: _Arrays = {}
    for name, array in arrays.items():
        plain = "classes" if name.lower() in _CLASSES else _WHAT.get(name.lower(), name)
        renamed[name if plain in arrays or plain in renamed else plain] = array
    return renamed


def in_parts(path: Path, arrays: _Arrays, *, seed: int) -> _Arrays | None:
    """The archive with x_private, y_private and so on in place of the usual names; None without a training part.

    The test part stays the test part, and a validation part becomes the public one. Without it, 0.25/0.85 of the
    training part become public, a choice by the seed that is even over classes. Labels [N, 1] and images
    [N, height, width, 1] lose their last axis. Raises DataCorrupt for a mixture of names, or a part without labels.
    """
    named = {name: _usual(name) for name in arrays}
    known = {place: name for name, place in named.items() if place is not None}
    if ("x", "train") not in known:
        return None
    rest = sorted(name for name, place in named.items() if place is None and name != "classes")
    parts = {part for _, part in known}
    needed = {(what, part) for what in "xy" for part in parts | {"train", "test"}}
    if rest or len(known) < len(arrays) - ("classes" in arrays) or set(known) != needed:
        raise DataCorrupt(
            f"{path} holds {', '.join(sorted(arrays))}; allowed with such names: inputs and labels, each of a training "
            "and a test part and perhaps of a validation part, and classes"
        )
    found = {place: _flat(arrays[name], place[0]) for place, name in known.items()}
    for part in sorted(parts):
        if len(found["x", part]) != len(found["y", part]):
            raise DataCorrupt(
                f"{path}: the {part} part has {len(found['x', part])} inputs and {len(found['y', part])} labels; "
                "allowed: one label each"
            )
    if "val" not in parts:
        public, private = _even_choice(path, found["y", "train"], seed=seed)
        for what in "xy":
            found[what, "val"] = found[what, "train"][public]
            found[what, "train"] = found[what, "train"][private]
    ours = {"train": "private", "val": "public", "test": "test"}
    made = {f"{what}_{ours[part]}": array for (what, part), array in found.items()}
    return made | ({"classes": arrays["classes"]} if "classes" in arrays else {})


def _usual(name: str) -> tuple[str, str] | None:
    if first := _FIRST.fullmatch(name):
        return _WHAT[first[1].lower()], _PART[first[2].lower()]
    if last := _LAST.fullmatch(name):
        return _WHAT[last[2].lower()], _PART[last[1].lower()]
    return None


def _flat(array: Shaped[ndarray, "*shape"], what: str) -> Shaped[ndarray, "*shape"]:
    axes = 2 if what == "y" else 4
    return array[..., 0] if array.ndim == axes and array.shape[-1] == 1 else array


def _even_choice(
    path: Path, labels: Shaped[ndarray, "*shape"], *, seed: int
) -> tuple[Int64[ndarray, " public"], Int64[ndarray, " private"]]:
    """Which records of the training part become public, in random order: every so many-th of each class of the shuffled
    part; and which do not."""
    if labels.ndim != 1 or len(labels) < 2:
        raise DataCorrupt(f"{path}: the training labels are {list(labels.shape)}; allowed: at least 2 in one dimension")
    rng = np.random.default_rng([seed, *b"own file train"])
    shuffled: Int64[ndarray, " records"] = rng.permutation(len(labels))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    wanted = max(1, round(_PUBLIC_SHARE * len(labels)))
    public = by_class[(np.arange(wanted) * len(labels)) // wanted]
    return rng.permutation(public), np.setdiff1d(np.arange(len(labels)), public)
