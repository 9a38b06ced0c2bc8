"""Encoders that an operator makes before a study: of public weights, or trained on the public pool.

Each becomes one ONNX file, which is what everybody else sees: a node needs onnxruntime to use it and nothing that made
it. What makes one is given the pool and nothing else, so no private record has a part in it.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from jaxtyping import Float32
from numpy import ndarray

from protocols.errors import InvalidInput
from protocols.features.encoder import MOST_MODEL_BYTES
from protocols.reading import read_bytes
from runtime.distribution import lacking

# Each: where it is made, and what it takes besides the pool, with the usual value (None: it has to be given).
_ENCODERS: Final[Mapping[str, tuple[str, Mapping[str, int | None]]]] = {
    "efficientnet_lite0": ("coordinator.encoders.efficientnet:encoder", {"side": 64}),
    "resnet18": ("coordinator.encoders.resnet:encoder", {"side": 64, "weights": None, "weights_sha256": None}),
    "contrastive": ("coordinator.encoders.contrastive:encoder", {"seed": 0}),
    "denoising": ("coordinator.encoders.denoising:encoder", {"seed": 0}),
}
# Rows of a pool below which nothing is learned of it.
FEWEST_ROWS: Final = 16


@dataclass(frozen=True, kw_only=True)
class EncoderChoice:
    """Which encoder is made. None: the usual value, or nothing where the kind takes no such thing.

    kind: efficientnet_lite0 or resnet18, of public weights; contrastive, of images, or denoising, of tables, trained on
    the pool. side: pixels that public weights see (64); seed: of what is drawn in training (0); weights,
    weights_sha256: of resnet18, its file and the 64 hexadecimal digits of its hash. Raises InvalidInput.
    """

    kind: str
    side: int | None = None
    seed: int | None = None
    weights: Path | None = None
    weights_sha256: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in _ENCODERS:
            raise InvalidInput(f"the encoder is {self.kind[:80]!r}; allowed: {', '.join(_ENCODERS)}")
        taken = _ENCODERS[self.kind][1]
        for name in ("side", "seed", "weights", "weights_sha256"):
            value = getattr(self, name)
            if name not in taken and value is not None:
                raise InvalidInput(f"{name} is {value!r}; encoder {self.kind!r} takes none: leave it out")
            if name in taken and value is None and taken[name] is None:
                raise InvalidInput(f"{name} is missing; allowed for encoder {self.kind!r}: {name}, to be given")

    def values(self) -> dict[str, object]:
        """What the kind takes, by name."""
        given = {name: getattr(self, name) for name in _ENCODERS[self.kind][1]}
        return {name: _ENCODERS[self.kind][1][name] if value is None else value for name, value in given.items()}


def make_encoder(pool: Float32[ndarray, "pool ..."], choice: EncoderChoice) -> bytes:
    """The ONNX file of an encoder for records like the pool's; its features have mean 0 and standard deviation 1 there.

    Raises InvalidInput for a pool that does not suit it, and where a package is missing; DataUnavailable, DataCorrupt
    for weights that cannot be read.
    """
    if len(pool) < FEWEST_ROWS:
        raise InvalidInput(f"the pool has {len(pool)} records; allowed: at least {FEWEST_ROWS} to make an encoder of")
    module, _, name = _ENCODERS[choice.kind][0].partition(":")
    try:
        make: Callable[..., bytes] = getattr(importlib.import_module(module), name)
        return make(pool, **choice.values())
    except ModuleNotFoundError as missing:
        raise lacking(missing, f"encoder {choice.kind!r}") from missing


def read_weights(path: Path, sha256: str) -> bytes:
    """A file of public weights. sha256: of its bytes, in hexadecimal digits.

    Raises DataUnavailable, and InvalidInput where its hash is another.
    """
    content = read_bytes(path, most=MOST_MODEL_BYTES)
    found = hashlib.sha256(content).hexdigest()
    if found != sha256.lower():
        raise InvalidInput(f"{path} has SHA-256 {found}; allowed: {sha256[:80]}, as was given")
    return content
