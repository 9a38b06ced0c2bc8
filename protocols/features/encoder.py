"""Encoder: a public model, shipped as an ONNX file, whose first output is a record's features.

It is given one record at a time, on one thread of the CPU. Nobody can tell from a file that each row of its output
depends on that row of its input alone (a mean over the batch does not), and the cost of record votes rests on that: a
replaced record may move no other record's vote. An operator that draws at random, or keeps a running mean, is refused
for the same reason: its state goes on from one record to the next (onnx_model.py). The file's bytes are part of the
study's digest.
Floating point: another processor may give another last digit, and with it, rarely, another nearest query; a record's
own cost does not depend on that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float32
from numpy import ndarray

from protocols.errors import DataCorrupt, InvalidInput
from protocols.features.onnx_graph import said_of_itself
from protocols.features.stage import Stage
from protocols.installing import install

if TYPE_CHECKING:
    from protocols.features.onnx_model import OnnxModel

MOST_MODEL_BYTES = 2**28
MOST_FEATURES = 2**14
# The names under which an ONNX file says where its weights come from, and under which licence (metadata_props).
WEIGHTS, LICENCE = "weights", "licence"


@dataclass(frozen=True, eq=False)
class Encoder(Stage):
    """content: the ONNX file, of at most 256 MiB; width: how many features it gives. Raises InvalidInput.

    Nothing runs before it is called: then InvalidInput where onnxruntime is not installed, or the file is no model that
    takes such records, gives `width` finite features of each, and the same ones again.
    """

    number = 4
    layout = {"content": ("|u1", 1), "width": ("<i8", 1)}  # noqa: RUF012  # declared a ClassVar in Stage

    content: bytes = field(repr=False)
    width: int

    def __post_init__(self) -> None:
        if not 1 <= len(self.content) <= MOST_MODEL_BYTES:
            raise InvalidInput(f"the encoder's file has {len(self.content)} bytes; allowed: 1 to {MOST_MODEL_BYTES}")
        if not 1 <= self.width <= MOST_FEATURES:
            raise InvalidInput(f"the encoder gives {self.width} features; allowed: 1 to {MOST_FEATURES}")

    @classmethod
    def of(cls, content: bytes, example: Float32[ndarray, "one *shape"]) -> Encoder:
        """The encoder in an ONNX file, as wide as what it gives for an example. Raises InvalidInput."""
        model = cls(content, 1)._model
        given = model.first_output(example)
        return cls(content, given.shape[1] if given.ndim == 2 else 0)

    def output_shape(self, input_shape: tuple[int, ...]) -> tuple[int, ...]:
        return (self.width,)

    def __call__(self, records: Float32[ndarray, "records *shape"]) -> Float32[ndarray, "records features"]:
        found = np.empty((len(records), self.width), dtype=np.float32)
        for row in range(len(records)):
            found[row] = self._of_one(records[row : row + 1])
        if len(records) and not np.array_equal(self._of_one(records[:1]), found[0]):
            raise InvalidInput("the encoder gives a record other features each time; allowed: one without random parts")
        return found

    def origin(self) -> dict[str, str]:
        """The file's SHA-256, and what it says of its weights and of their licence, "" where it says nothing.

        Nobody checks what a file says of itself. Raises DataCorrupt for a file that is no ONNX model.
        """
        said = {name: said_of_itself(self.content, name) for name in (WEIGHTS, LICENCE)}
        return {"sha256": hashlib.sha256(self.content).hexdigest(), **said}

    def arrays(self) -> dict[str, ndarray]:
        return {"content": np.frombuffer(self.content, dtype=np.uint8), "width": np.array([self.width], dtype="<i8")}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, ndarray]) -> Encoder:
        if arrays["width"].shape != (1,):
            raise InvalidInput(f"the encoder has {arrays['width'].size} widths; allowed: one")
        return cls(arrays["content"].tobytes(), int(arrays["width"][0]))

    @cached_property
    def _model(self) -> OnnxModel:
        try:
            from protocols.features.onnx_model import OnnxModel
        except ModuleNotFoundError as missing:
            raise InvalidInput(
                f"an encoder of features needs {missing.name}, which is not installed: {install('onnx')}"
            ) from missing
        try:
            return OnnxModel.of(self.content, where="the encoder's file", own=False)
        except DataCorrupt as error:
            raise InvalidInput(str(error)) from None

    def _of_one(self, record: Float32[ndarray, "one *shape"]) -> Float32[ndarray, " features"]:
        # A file with a fixed number of rows gets so many copies of the one record, and never another record's row.
        copies = self._model.rows or 1
        found = self._model.first_output(np.repeat(record, copies, axis=0))
        wanted = (copies, self.width)
        if found.dtype != np.float32 or found.shape != wanted or not np.isfinite(found).all():
            raise InvalidInput(
                f"the encoder gives {found.dtype} of shape {found.shape}; allowed: finite float32 of shape {wanted}"
            )
        return found[0]
