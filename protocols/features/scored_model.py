"""The model that judges score, as it travels: an ONNX file, and the features of a record that it sees."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float32, Float64
from numpy import ndarray

from protocols.errors import DataCorrupt, InvalidInput
from protocols.features.feature_map import FeatureMap
from protocols.features.onnx_graph import check_even

# Bytes of the length before each of its parts.
_LENGTH = 8
OUTPUT = "probabilities"
_NAMED = re.compile(rb"[0-9]{1,6}( [0-9]{1,6})*(;0\.[0-9]{1,9}( 0\.[0-9]{1,9})*)?")


@dataclass(frozen=True, eq=False)
class ScoredModel:
    """content: an ONNX file with an output `probabilities`; classes: of its columns, others have probability 0, or the
    findings' positions; features: what it sees of a record, None for the record; thresholds: from which probability on
    it names each finding, none of one label."""

    content: bytes = field(repr=False)
    classes: tuple[int, ...]
    features: FeatureMap | None
    thresholds: tuple[float, ...] = ()

    def to_bytes(self) -> bytes:
        """As it travels."""
        seen = b"" if self.features is None else self.features.to_bytes()
        parts = (self.classes, self.thresholds) if self.thresholds else (self.classes,)
        named = ";".join(" ".join(map(str, each)) for each in parts).encode()
        return b"".join(len(each).to_bytes(_LENGTH, "big") + each for each in (self.content, named, seen))

    @staticmethod
    def from_bytes(data: bytes) -> ScoredModel:
        """What `to_bytes` wrote. Raises DataCorrupt."""
        parts, at = [], 0
        for _ in range(3):
            end = at + _LENGTH + int.from_bytes(data[at : at + _LENGTH], "big")
            parts.append(data[at + _LENGTH : end])
            at = end
        if at != len(data) or not _NAMED.fullmatch(parts[1]):
            raise DataCorrupt(f"a model of {len(data)} bytes cannot be read; allowed: ONNX, classes and features")
        content, named, seen = parts
        of, _, limits = named.partition(b";")
        features = FeatureMap.from_bytes(seen, where="the model's features") if seen else None
        return ScoredModel(content, tuple(map(int, of.split())), features, tuple(map(float, limits.split())))

    def probabilities(
        self, inputs: Float32[ndarray, "records ..."], *, classes: int, runs: int = 0
    ) -> Float64[ndarray, "records classes"]:
        """What the model gives for each record, within the limits of a model that somebody else made.

        Each record is run alone, as whoever made the model could otherwise let what it gives for one depend on others
        (and the last bits of an honest one do). Nothing is refused for what records hold: where the model gives no
        probabilities, or fails, they are not numbers. runs: how often it is run at least, with records of zeros behind
        the others, so that how long it takes does not tell how many there are. Whether it can be run is tried with a
        record of zeros. Raises InvalidInput without onnxruntime, or if it cannot take that one, or gives another shape;
        DataCorrupt for a file that is no model, or takes longer for some records than for others.
        """
        from protocols.features.onnx_model import OnnxModel  # onnxruntime, which not every program has

        model = OnnxModel.of(self.content, where="the model", own=False)
        for content in (self.content, *(each.content for each in (self.features.encoders if self.features else ()))):
            check_even(content, where="the model")
        # An image may have one more axis for its channels than the study's inputs.
        wanted = [size for size in model.session.get_inputs()[0].shape[1:] if isinstance(size, int)]

        def of_one(record: Float32[ndarray, "..."]) -> Float64[ndarray, " classes"]:
            seen = record[None] if self.features is None else self.features(record[None])
            shaped = seen.reshape(1, *wanted) if np.prod(wanted) == np.prod(seen.shape[1:]) else seen
            found = model.first_output(np.asarray(shaped, np.float32), name=OUTPUT)
            columns = list(self.classes)
            fits = len(set(columns)) == len(columns) and max(columns) < classes
            if not fits or found.shape != (1, len(columns)) or found.dtype.kind != "f":
                raise InvalidInput(
                    f"the model gives {found.dtype} of shape {found.shape} of classes {columns[:20]}; allowed: "
                    f"probabilities of each, below {classes}"
                )
            whole = np.zeros(classes)
            whole[columns] = found[0]
            return whole

        nothing = np.zeros(inputs.shape[1:], np.float32)
        of_one(nothing)
        given = np.full((len(inputs), classes), np.nan)
        for at, record in enumerate(inputs):
            with suppress(InvalidInput):
                given[at] = of_one(record)
        for _ in range(runs - len(inputs)):
            with suppress(InvalidInput):
                of_one(nothing)
        # Of float32 one may be a little above 1.
        return np.where((given >= -1e-5) & (given <= 1 + 1e-5), np.clip(given, 0.0, 1.0), np.nan)
