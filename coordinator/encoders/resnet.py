"""ResNet-18 (He et al. 2016), with public weights that its user brings as a file and names by the hash.

The file is a table of tensors by name, as torchvision writes it: `conv1.weight`, `layer1.0.bn1.running_mean` and so on.
The last layer, which names ImageNet's classes, is not used.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Final

import torch
from jaxtyping import Float32
from numpy import ndarray
from torch import Tensor, nn

from coordinator.encoders.standard import Origin, PublicImages, check_images, read_weights, standardised
from protocols.errors import DataCorrupt

_WIDTHS: Final = (64, 128, 256, 512)


class _Block(nn.Module):
    """Two convolutions beside the identity, which is projected where the size changes."""

    def __init__(self, taken: int, given: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(taken, given, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(given)
        self.conv2 = nn.Conv2d(given, given, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(given)
        same = stride == 1 and taken == given
        self.downsample = (
            nn.Identity()
            if same
            else nn.Sequential(nn.Conv2d(taken, given, 1, stride, bias=False), nn.BatchNorm2d(given))
        )

    def forward(self, inputs: Tensor) -> Tensor:
        found = torch.relu(self.bn1(self.conv1(inputs)))
        return torch.relu(self.bn2(self.conv2(found)) + self.downsample(inputs))


class ResNet18(nn.Module):
    """The mean of the last maps over the image: 512 features."""

    def __init__(self) -> None:
        super().__init__()
        taken = _WIDTHS[0]
        self.conv1 = nn.Conv2d(3, taken, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(taken)
        for number, given in enumerate(_WIDTHS, 1):
            stride = 1 if number == 1 else 2
            self.add_module(f"layer{number}", nn.Sequential(_Block(taken, given, stride), _Block(given, given, 1)))
            taken = given

    def forward(self, inputs: Tensor) -> Tensor:
        found = torch.max_pool2d(torch.relu(self.bn1(self.conv1(inputs))), 3, 2, 1)
        for number in range(1, len(_WIDTHS) + 1):
            found = self.get_submodule(f"layer{number}")(found)
        return found.mean((2, 3))


def encoder(pool: Float32[ndarray, "pool ..."], *, weights: Path, weights_sha256: str, side: int = 64) -> bytes:
    """The ONNX file. side: the pixels that images are resized to. Raises InvalidInput for a pool of other records than
    images, and as `with_weights` does.
    """
    check_images(pool, kind="resnet18")
    network = PublicImages(with_weights(weights, weights_sha256), side)
    origin = Origin(f"of ResNet-18, brought as a file with SHA-256 {weights_sha256.lower()}", licence="")
    return standardised(network, pool, origin=origin)


def with_weights(path: Path, sha256: str) -> ResNet18:
    """The network with the weights in a file.

    Raises DataUnavailable; InvalidInput for a file with another hash, DataCorrupt for one that does not hold them.
    """
    content = read_weights(path, sha256)
    with torch.random.fork_rng(devices=[]):  # layers draw weights as they are made
        network = ResNet18()
    try:
        given = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        network.load_state_dict({name: value for name, value in given.items() if not name.startswith("fc.")})
    except (RuntimeError, AttributeError, TypeError, ValueError, EOFError, KeyError, pickle.UnpicklingError) as error:
        raise DataCorrupt(f"{path} does not hold the weights of a ResNet-18: {str(error)[:200]}") from None
    return network.eval()
