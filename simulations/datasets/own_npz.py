"""The user's own npz archive: arrays x and y, x_private, y_private and so on, or usual names, without a schema."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from jaxtyping import Float32, Int64, Shaped
from numpy import ndarray

from protocols.errors import DataCorrupt
from simulations.datasets.dataset import Dataset
from simulations.datasets.npz_labels import class_labels
from simulations.datasets.own_pool import PARTS, Pool, as_dataset, cut_pool
from simulations.datasets.sources import read_npz
from simulations.datasets.usual_npz import in_parts, without_part

SHARES = (0.6, 0.25, 0.15)

_Arrays = dict[str, Shaped[ndarray, "*shape"]]
_ONE_POOL = {"x", "y", "site", "patient", "split", "classes"}
_IN_PARTS = {f"{what}_{part}" for what in ("x", "y", "patient") for part in PARTS} | {
    "site_private",
    "classes",
}


def load_npz(path: Path, *, seed: int, sizes: tuple[int | None, int | None, int | None]) -> Dataset:
    """The archive's data set: x [N, features] is a table, used as it is; x [N, height, width] are grey images and
    x [N, height, width, 3] or [N, 3, height, width] colour ones, bytes or floats in [0, 1]. Classes are the different
    values of y. Raises DataCorrupt naming file, array and row, InvalidInput on sizes.
    """
    arrays = without_part(read_npz(path))
    if "x" not in arrays:
        arrays = _joined(path, in_parts(path, arrays, seed=seed) or arrays)
    if not {"x", "y"} <= set(arrays) or not set(arrays) <= _ONE_POOL:
        raise DataCorrupt(f"{path} holds {', '.join(sorted(arrays))}; allowed: x, y and of {', '.join(_ONE_POOL)}")
    inputs = _inputs(path, arrays["x"])
    labels, class_names = class_labels(arrays["y"], arrays.get("classes"), where=str(path))
    if len(labels) != len(inputs):
        raise DataCorrupt(f"{path}: y has shape {list(arrays['y'].shape)}; allowed: [{len(inputs)}], as x")
    for name in ("site", "patient", "split"):
        if name in arrays and arrays[name].shape != (len(inputs),):
            raise DataCorrupt(f"{path}: {name} has shape {list(arrays[name].shape)}; allowed: [{len(inputs)}], as x")
    pool = Pool(
        path=path,
        name=path.stem,
        kind="image" if inputs.ndim > 2 else "table",
        class_names=class_names,
        labels=labels,
        sites=arrays["site"].astype(str) if "site" in arrays else None,
        patients=arrays["patient"].astype(str) if "patient" in arrays else None,
        part=_parts(path, arrays["split"].astype(str)) if "split" in arrays else None,
    )
    return as_dataset(pool, inputs, cut_pool(pool, SHARES, sizes, seed))


def _joined(path: Path, arrays: _Arrays) -> _Arrays:
    """The arrays of the three parts as one pool with a split."""
    needed = {f"{what}_{part}" for what in "xy" for part in PARTS}
    patients = {f"patient_{part}" for part in PARTS}
    if not needed <= set(arrays) <= _IN_PARTS or len(patients & set(arrays)) in (1, 2):
        raise DataCorrupt(
            f"{path} holds {', '.join(sorted(arrays))}; allowed: x and y, or x_train, y_train, x_test and y_test, or "
            f"{', '.join(sorted(needed))}, and of site_private, classes, and patient_private, patient_public and "
            "patient_test together"
        )
    counts = [len(arrays[f"x_{part}"]) for part in PARTS]
    try:
        joined = {what: np.concatenate([arrays[f"{what}_{part}"] for part in PARTS]) for what in "xy"}
    except ValueError as error:
        raise DataCorrupt(
            f"{path}: the parts have different shapes ({error}); allowed: the same except for rows"
        ) from error
    joined["split"] = np.repeat(PARTS, counts)
    if patients <= set(arrays):
        joined["patient"] = np.concatenate([arrays[f"patient_{part}"].astype(str) for part in PARTS])
    if "site_private" in arrays:
        joined["site"] = np.concatenate([arrays["site_private"].astype(str), np.repeat("", sum(counts[1:]))])
    if "classes" in arrays:
        joined["classes"] = arrays["classes"]
    return joined


def _inputs(path: Path, x: Shaped[ndarray, "*shape"]) -> Float32[ndarray, "records ..."]:
    given = f"{x.dtype}{list(x.shape)}"
    if x.ndim == 4 and 1 in (x.shape[1], x.shape[3]):
        x = x[..., 0] if x.shape[3] == 1 else x[:, 0]
    elif x.ndim == 4 and x.shape[1] == 3 != x.shape[3]:
        x = np.moveaxis(x, 1, 3)
    shaped = x.ndim in (2, 3) or (x.ndim == 4 and x.shape[3] == 3)
    if not shaped or x.size == 0 or not (np.issubdtype(x.dtype, np.floating) or np.issubdtype(x.dtype, np.integer)):
        raise DataCorrupt(
            f"{path}: x is {given}; allowed: numbers, [N, features], [N, height, width], [N, height, width, 3] or "
            "[N, 3, height, width]"
        )
    image, whole = x.ndim > 2, np.issubdtype(x.dtype, np.integer)
    inputs = x.astype(np.float32)
    if image and whole:
        inputs /= 255
    low, high = (0.0, 1.0) if image else (-np.finfo(np.float32).max, np.finfo(np.float32).max)
    wrong = ~((inputs >= low) & (inputs <= high))
    if wrong.any():
        row, *place = (int(index) for index in np.argwhere(wrong)[0])
        allowed = (
            "finite numbers" if not image else "0 to 255" if whole else "[0, 1]; divide by the largest there can be"
        )
        raise DataCorrupt(
            f"{path}: x, row {row + 1}, position {place}: {x[(row, *place)]}; allowed: {allowed} "
            f"({int(wrong.sum())} such values)"
        )
    return inputs


def _parts(path: Path, split: Shaped[ndarray, " records"]) -> Int64[ndarray, " records"]:
    wrong = ~np.isin(split, PARTS)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DataCorrupt(f"{path}: split, row {row + 1}: {str(split[row])!r}; allowed: {', '.join(PARTS)}")
    return np.searchsorted(np.array(PARTS), split).astype(np.int64)  # PARTS are in alphabetical order
