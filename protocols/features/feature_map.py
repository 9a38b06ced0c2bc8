"""FeatureMap: from a record as its hospital holds it to the features that queries are compared by.

A chain of public stages, fixed by the study and in its digest. It is made from constants and from public data only, and
depends on no other private record, so a record's contribution depends on its own data alone.
"""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
from jaxtyping import Float32
from numpy import ndarray

from protocols.array_files import parse_arrays, typed_array
from protocols.errors import DataCorrupt, InvalidInput
from protocols.features.encoder import Encoder
from protocols.features.images import Deskew, Hog
from protocols.features.linear import LinearMap, Scale
from protocols.features.stage import Stage
from protocols.ranges import check
from protocols.reading import read_bytes

KINDS: Final[Mapping[int, type[Stage]]] = {kind.number: kind for kind in (LinearMap, Deskew, Hog, Encoder, Scale)}
# The bytes of a file of features, at most; an encoder is the largest part.
FEATURES_BYTES: Final = 2**29
_MOST_STAGES, _MOST_SIDES = 8, 4


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """input_shape: of one record; stages: one after another; none: the record's own values, flattened.

    Raises InvalidInput where a stage cannot take what comes before it.
    """

    input_shape: tuple[int, ...]
    stages: tuple[Stage, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= len(self.input_shape) <= _MOST_SIDES:
            raise InvalidInput(
                f"features are made of records with {len(self.input_shape)} sides; allowed: 1 to {_MOST_SIDES}"
            )
        for side in self.input_shape:
            check("features", "shape", side)
        if len(self.stages) > _MOST_STAGES:
            raise InvalidInput(f"a feature map has {len(self.stages)} stages; allowed: up to {_MOST_STAGES}")
        shape = self.input_shape
        for stage in self.stages:
            shape = stage.output_shape(shape)
        check("features", "shape", math.prod(shape))

    @cached_property
    def width(self) -> int:
        """How many features a record has."""
        shape = self.input_shape
        for stage in self.stages:
            shape = stage.output_shape(shape)
        return math.prod(shape)

    def __call__(self, records: Float32[ndarray, "records ..."]) -> Float32[ndarray, "records features"]:
        """Every record's features. Raises InvalidInput for records of another shape, or that are not finite."""
        if records.shape[1:] != self.input_shape:
            raise InvalidInput(f"records have features of shape {records.shape[1:]}; allowed: {self.input_shape}")
        if not np.isfinite(records).all():
            raise InvalidInput("features of records hold NaN or infinite values; allowed: finite")
        for stage in self.stages:
            records = stage(records)
        return records.reshape(len(records), self.width)

    @property
    def encoders(self) -> list[Encoder]:
        """The stages that are public models."""
        return [stage for stage in self.stages if isinstance(stage, Encoder)]

    def then(self, *stages: Stage) -> FeatureMap:
        """This map with further stages. Raises InvalidInput where they do not fit."""
        return FeatureMap(self.input_shape, self.stages + stages)

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hexadecimal digits, of everything that decides a record's features; of an encoder, its file."""
        digest = hashlib.sha256(b"conclave features 1\n")
        for name, array in self._arrays().items():
            digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def to_bytes(self) -> bytes:
        """The map as an .npz of plain arrays."""
        content = io.BytesIO()
        np.savez(content, **self._arrays())  # type: ignore[arg-type]  # the stub takes the names for allow_pickle
        return content.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes, *, where: str = "the file of features") -> FeatureMap:
        """The map in what to_bytes gave, or anybody else made: untrusted. where: what it is, for the message.

        No encoder runs. Raises DataCorrupt where it is no such file, InvalidInput where its stages are out of range.
        """
        arrays = parse_arrays(content, where=where, most=FEATURES_BYTES)
        shape = typed_array(arrays, "shape", ("<i8", 1), where)
        kinds = typed_array(arrays, "kinds", ("<i8", 1), where)
        if not set(kinds.tolist()) <= set(KINDS) or len(kinds) > _MOST_STAGES:
            raise DataCorrupt(
                f"{where} has stages {kinds.tolist()[:20]}; allowed: up to {_MOST_STAGES} of {sorted(KINDS)}"
            )
        stages = []
        for place, number in enumerate(kinds.tolist()):
            kind = KINDS[number]
            stages.append(
                kind.of_arrays(
                    {name: typed_array(arrays, f"{place}.{name}", each, where) for name, each in kind.layout.items()}
                )
            )
        return cls(tuple(shape.tolist()), tuple(stages))

    def _arrays(self) -> dict[str, ndarray]:
        arrays = {
            "shape": np.array(self.input_shape, dtype="<i8"),
            "kinds": np.array([stage.number for stage in self.stages], dtype="<i8"),
        }
        for place, stage in enumerate(self.stages):
            given = stage.arrays()
            arrays |= {f"{place}.{name}": given[name].astype(kind) for name, (kind, _) in stage.layout.items()}
        return arrays


def read_features(path: Path, sha256: str | None) -> FeatureMap:
    """The feature map in a file. sha256: its digest, FeatureMap.digest; None: of any.

    Raises DataUnavailable, and InvalidInput where it is no such file or has another digest.
    """
    try:
        found = FeatureMap.from_bytes(read_bytes(path, most=FEATURES_BYTES), where=str(path))
    except DataCorrupt as error:
        raise InvalidInput(f"features file {error}") from None
    if sha256 not in (None, found.digest):
        raise InvalidInput(f"features file {path} has digest {found.digest}; allowed: {str(sha256)[:80]}, as was given")
    return found
