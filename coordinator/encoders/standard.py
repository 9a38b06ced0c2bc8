"""A network of any kind as an encoder: its features standardised over the pool, in one ONNX file."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from jaxtyping import Float, Float32
from numpy import ndarray
from torch import Tensor
from torch.nn import functional

from coordinator.torch_onnx import onnx_bytes
from protocols.errors import InvalidInput
from protocols.features.encoder import LICENCE, MOST_MODEL_BYTES, WEIGHTS
from protocols.reading import read_bytes
from runtime.torch_networks import planes

# Images with a shorter side say too little for a network; students and teachers have the same limit.
FEWEST_PIXELS: Final = 8
# Of the mean deviation of all features: one that hardly varies is not blown up to noise.
_LEAST_DEVIATION: Final = 0.05
_ROWS: Final = 64


@dataclass(frozen=True)
class Origin:
    """Where weights come from, and under which licence, "" where nobody said."""

    weights: str
    licence: str


OF_POOL: Final = Origin(weights="learned from the public pool alone", licence="whatever the pool's is")


def read_weights(path: Path, sha256: str) -> bytes:
    """A file of public weights. sha256: of its bytes, in hexadecimal digits.

    Raises DataUnavailable, and InvalidInput where its hash is another.
    """
    content = read_bytes(path, most=MOST_MODEL_BYTES)
    found = hashlib.sha256(content).hexdigest()
    if found != sha256.lower():
        raise InvalidInput(f"{path} has SHA-256 {found}; allowed: {sha256[:80]}, as was given")
    return content


class _Standardised(torch.nn.Module):
    """The network's features less their mean over the pool, in units of their standard deviation; those of each depth
    times the root of the mean number of features of a depth over its own."""

    def __init__(self, network: torch.nn.Module, pool: Tensor, depths: Sequence[int] | None) -> None:
        super().__init__()
        self.network = network.eval()
        with torch.no_grad():
            found = torch.cat([self.network(part) for part in torch.split(pool, _ROWS)])
        deviation = found.std(0, correction=0)
        floor = torch.clamp(_LEAST_DEVIATION * deviation.mean(), min=torch.finfo(torch.float32).tiny ** 0.5)
        self.register_buffer("mean", found.mean(0))
        each = torch.tensor(depths or [found.shape[1]])
        weight = (each.float().mean() / each).sqrt().repeat_interleave(each)
        self.register_buffer("scale", weight / torch.maximum(deviation, floor))

    def forward(self, inputs: Tensor) -> Tensor:
        features: Tensor = (self.network(inputs) - self.get_buffer("mean")) * self.get_buffer("scale")
        return features


def standardised(
    network: torch.nn.Module, pool: Float32[ndarray, "pool ..."], *, origin: Origin, depths: Sequence[int] | None = None
) -> bytes:
    """The ONNX file of the network's features of records like the pool's, with mean 0 and standard deviation 1 there.

    network: takes records [rows, ...] as a hospital holds them, and gives features [rows, width]. Features that hardly
    vary stay small. origin: what the file says of its weights.
    depths: how many features each depth of the network gives, where there are several: each depth then varies as much
    as another in all, and a feature's standard deviation is that of its depth.
    """
    records = torch.tensor(pool)
    says = {WEIGHTS: origin.weights, LICENCE: origin.licence}
    return onnx_bytes(_Standardised(network, records, depths), records[:2], outputs=("features",), says=says)


def check_images(pool: Float32[ndarray, "pool ..."], *, kind: str) -> None:
    """Raises InvalidInput unless the pool holds grey or colour images of at least FEWEST_PIXELS a side."""
    shape = pool.shape[1:]
    if len(shape) not in (2, 3) or shape[2:] not in ((), (3,)) or min(shape[:2]) < FEWEST_PIXELS:
        raise InvalidInput(
            f"the pool's records have the shape {shape}; allowed for encoder {kind!r}: images [height, width] or "
            f"[height, width, 3], each side at least {FEWEST_PIXELS}"
        )


def resized(images: Float[Tensor, "images ..."], side: int) -> Float[Tensor, "images channels side side"]:
    """Grey or colour images, bilinearly resized to a square."""
    return functional.interpolate(planes(images), (side, side), mode="bilinear", align_corners=False)


class PublicImages(torch.nn.Module):
    """Images as networks that learned from ImageNet take them, and then the network.

    Resized to `side`, grey ones three times over, less the mean of ImageNet's colours and in units of their deviation.
    """

    def __init__(self, network: torch.nn.Module, side: int) -> None:
        super().__init__()
        self.network, self.side = network, side
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406])[:, None, None])
        self.register_buffer("deviation", torch.tensor([0.229, 0.224, 0.225])[:, None, None])

    def forward(self, inputs: Tensor) -> Tensor:
        colours = resized(inputs, self.side).expand(-1, 3, -1, -1)
        features: Tensor = self.network((colours - self.get_buffer("mean")) / self.get_buffer("deviation"))
        return features
