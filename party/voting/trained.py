"""The teachers that a node trained for one seat of a study: a folder, identified by study and records.

It holds manifest.json and teacher-0000, teacher-0001, ... in formats that run no code when they are read. Beside a
teacher lies its private model, the layers that answer hidden queries, as npz. Only the owner can read the folder.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from party.teachers.own import kind_of
from party.teachers.teacher import SilentTeacher, Teacher, on_features
from protocols.array_files import read_arrays
from protocols.errors import DataCorrupt, DataUnavailable, StorageFailed
from protocols.features.feature_map import FeatureMap, read_features
from protocols.levels.hidden_queries.inference.model import AveragePool, Convolution, Dense, Model, ReLU
from protocols.private_files import private_folder, tighten
from protocols.reading import read_json
from runtime.files import folder_beside, put_in_place, write_atomically

PRIVATE_FILE: Final = "private.npz"
_FILE_BYTES: Final = 2**30
_LAYERS: Final = 64
_PADDINGS: Final = ("valid", "same")


def save_model(path: Path, model: Model) -> None:
    """Writes the file, readable by its owner only. Raises StorageFailed."""
    arrays = {"input_shape": np.array(model.input_shape, np.int64)}
    for number, layer in enumerate(model.layers, 1):
        match layer:
            case Dense():
                arrays |= {f"{number}-dense": layer.weights, f"{number}-bias": layer.bias}
            case Convolution():
                about = np.array([layer.stride, _PADDINGS.index(layer.padding)], np.int64)
                named = {"convolution": layer.kernels, "bias": layer.bias, "about": about}
                arrays |= {f"{number}-{name}": array for name, array in named.items()}
            case AveragePool():
                arrays[f"{number}-pool"] = np.array([layer.size], np.int64)
            case _:
                arrays[f"{number}-relu"] = np.zeros(0, np.int64)
    content = io.BytesIO()
    np.savez(content, **arrays)  # type: ignore[arg-type]  # NumPy's stub takes the arrays for its flag
    write_atomically(path, content.getvalue())


def load_model(path: Path) -> Model:
    """What save_model wrote. Raises DataUnavailable, DataCorrupt."""
    try:
        arrays = read_arrays(path, most=_FILE_BYTES)
        shape = tuple(int(each) for each in arrays.pop("input_shape"))
        layers: list[object] = []
        while arrays and len(layers) < _LAYERS:
            layers.append(_layer(len(layers) + 1, arrays))
        if arrays:
            raise DataCorrupt(f"{path} holds arrays that belong to no layer; run: conclave-party train STUDY")
        return Model(shape, tuple(layers))
    except DataUnavailable:
        raise DataUnavailable(f"{path} does not exist; run: conclave-party train STUDY") from None
    except (DataCorrupt, KeyError, ValueError, TypeError, IndexError, OverflowError) as failure:
        raise DataCorrupt(f"{path} is not a readable private model; run: conclave-party train STUDY") from failure


def _layer(number: int, arrays: dict[str, np.ndarray]) -> object:
    """Layer `number`, removed from `arrays`. Raises KeyError if there is none."""
    if f"{number}-relu" in arrays:
        arrays.pop(f"{number}-relu")
        return ReLU()
    if f"{number}-pool" in arrays:
        return AveragePool(int(arrays.pop(f"{number}-pool")[0]))
    bias = _floats(arrays.pop(f"{number}-bias"), 1)
    if f"{number}-dense" in arrays:
        return Dense(_floats(arrays.pop(f"{number}-dense"), 2), bias)
    kernels, about = _floats(arrays.pop(f"{number}-convolution"), 4), arrays.pop(f"{number}-about")
    return Convolution(kernels, bias, stride=int(about[0]), padding="same" if int(about[1]) else "valid")


def _floats(array: np.ndarray, rank: int) -> np.ndarray:
    if array.dtype.kind != "f" or array.ndim != rank:
        raise ValueError(f"{array.dtype} of rank {array.ndim}")
    return array


MANIFEST: Final = "manifest.json"
FEATURES_FILE: Final = "features.npz"
_MANIFEST_BYTES: Final = 2**16
_MEASURED: Final = "measured.json"


@dataclass(frozen=True)
class Manifest:
    """A folder's description: study and seat, the records it was trained from, and how to read it.

    features: the digest of the feature map that its teachers learned from, which is beside them; "" for records.
    """

    study: str
    seat: str
    records: str = field(repr=False)
    kind: str
    teachers: int
    features: str = ""
    silent: tuple[int, ...] = ()


def load_teachers(
    folder: Path, *, study: bytes, loaded: Callable[[int, int], None] = lambda count, teachers: None
) -> list[Teacher]:
    """The teachers in a folder. loaded: called before the first and after each with (teachers loaded, teachers in all).

    Raises DataUnavailable if there are none, DataCorrupt if they are another study's or unreadable.
    """
    manifest = read_teachers_manifest(folder)
    if manifest.study != study.hex():
        raise DataCorrupt(f"{folder} holds teachers of study {manifest.study[:16]}; allowed: {study.hex()[:16]}")
    kind = kind_of(manifest.kind)
    if manifest.features:
        kind = on_features(kind, read_features(folder / FEATURES_FILE, manifest.features))
    loaded(0, manifest.teachers)
    teachers = []
    for number in range(manifest.teachers):
        silent = number in manifest.silent
        teachers.append(SilentTeacher() if silent else kind.load(folder / teacher_file(number)))
        loaded(number + 1, manifest.teachers)
    return teachers


def write_teachers(
    folder: Path,
    teachers: Sequence[Teacher],
    manifest: Manifest,
    private: Model | None,
    features: FeatureMap | None = None,
) -> None:
    """Writes a folder of teachers for its owner alone, in place of an earlier one. private: the model that answers
    hidden queries, if the study hides them.

    Raises StorageFailed; the folder is then complete, as it was, or absent.
    """
    private_folder(folder.parent)
    with folder_beside(folder) as part:
        for number, teacher in enumerate(teachers):
            teacher.save(part / teacher_file(number))
        if features is not None:
            write_atomically(part / FEATURES_FILE, features.to_bytes())
        if private is not None:
            save_model(part / PRIVATE_FILE, private)
        write_atomically(part / MANIFEST, json.dumps(vars(manifest), indent=2) + "\n")
        tighten(part)  # a hospital's own teachers may write files with any mode
        put_in_place(part, folder, replace=True)


def read_teachers_manifest(folder: Path) -> Manifest:
    """The description of a folder of teachers. Raises DataUnavailable, DataCorrupt."""
    path = folder / MANIFEST
    wanted = {"study": str, "seat": str, "records": str, "kind": str, "teachers": int, "features": str, "silent": list}
    try:
        values = read_json(path, most=_MANIFEST_BYTES)
    except DataUnavailable:
        raise DataUnavailable(f"{folder} holds no teachers; run: conclave-party train STUDY") from None
    fits = isinstance(values, dict) and set(values) == set(wanted)
    if not (
        fits
        and all(type(values[key]) is kind for key, kind in wanted.items())
        and 1 <= values["teachers"] < 2**20
        and all(type(number) is int for number in values["silent"])
    ):
        raise DataCorrupt(f"{path} is not a manifest of teachers; allowed: {', '.join(wanted)}")
    return Manifest(**{**values, "silent": tuple(values["silent"])})


def is_trained(folder: Path) -> bool:
    """Whether a folder has teachers, readable or not."""
    return (folder / MANIFEST).exists()


@dataclass(frozen=True)
class Measured:
    """How long the teachers of a folder took for a batch of so many queries, when the node last started."""

    queries: int
    seconds: float


def keep_measured(folder: Path, *, queries: int, seconds: float) -> None:
    """Writes down how long a batch took, unless the folder is gone or cannot be written: it is measured again."""
    if folder.is_dir():
        with suppress(StorageFailed):
            write_atomically(folder / _MEASURED, json.dumps(vars(Measured(queries, seconds))) + "\n")


def read_measured(folder: Path) -> Measured | None:
    """How long a batch took; None if it was not measured since the teachers were trained. Raises DataCorrupt."""
    try:
        found = read_json(folder / _MEASURED, most=_MANIFEST_BYTES)
    except DataUnavailable:
        return None
    queries, seconds = (found.get("queries"), found.get("seconds")) if isinstance(found, dict) else (None, None)
    return Measured(queries, seconds) if isinstance(queries, int) and isinstance(seconds, float) else None


def teacher_file(number: int) -> str:
    """The name of one teacher's file."""
    return f"teacher-{number:04d}"
