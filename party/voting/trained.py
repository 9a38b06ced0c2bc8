"""The teachers that a node trained for one seat of a study: a folder, identified by study and records.

It holds manifest.json and teacher-0000, teacher-0001, ... in formats that run no code when they are read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from party.teachers.on_features import on_features
from party.teachers.own import kind_of
from party.teachers.teacher import Teacher
from party.voting.private_file import PRIVATE_FILE, save_model
from protocols.errors import DataCorrupt, DataUnavailable, StorageFailed
from protocols.features.feature_map import FeatureMap, read_features
from protocols.levels.hidden_queries.inference.model import Model
from protocols.private_files import private_folder, tighten
from protocols.reading import read_json
from runtime.files import folder_beside, put_in_place, write_atomically

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


def load_teachers(
    folder: Path, *, study: bytes, loaded: Callable[[int, int], None] = lambda count, teachers: None
) -> list[Teacher]:
    """The teachers in a folder. loaded: called before the first and after each with (teachers loaded, teachers in all).

    Raises DataUnavailable if there are none, DataCorrupt if they are another study's or unreadable.
    """
    manifest = read_manifest(folder)
    if manifest.study != study.hex():
        raise DataCorrupt(f"{folder} holds teachers of study {manifest.study[:16]}; allowed: {study.hex()[:16]}")
    kind = kind_of(manifest.kind)
    if manifest.features:
        kind = on_features(kind, read_features(folder / FEATURES_FILE, manifest.features))
    loaded(0, manifest.teachers)
    teachers = []
    for number in range(manifest.teachers):
        teachers.append(kind.load(folder / teacher_file(number)))
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


def read_manifest(folder: Path) -> Manifest:
    """The description of a folder of teachers. Raises DataUnavailable, DataCorrupt."""
    path = folder / MANIFEST
    wanted = {"study": str, "seat": str, "records": str, "kind": str, "teachers": int, "features": str}
    try:
        values = read_json(path, most=_MANIFEST_BYTES)
    except DataUnavailable:
        raise DataUnavailable(f"{folder} holds no teachers; run: conclave-party train STUDY") from None
    fits = isinstance(values, dict) and set(values) == set(wanted)
    if not (
        fits and all(type(values[key]) is kind for key, kind in wanted.items()) and 1 <= values["teachers"] < 2**20
    ):
        raise DataCorrupt(f"{path} is not a manifest of teachers; allowed: {', '.join(wanted)}")
    return Manifest(**values)


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
