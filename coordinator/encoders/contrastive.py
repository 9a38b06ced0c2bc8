"""An encoder of images that learns from the pool alone, without labels: SimCLR (Chen et al. 2020, Algorithm 1).

Two random changes of an image have features that are close, and those of other images are far: a small convolutional
network is trained for that, and its last layer but the projection gives the features.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from jaxtyping import Float, Float32
from numpy import ndarray
from torch import Tensor, nn

from coordinator.encoders.standard import OF_POOL, check_images, resized, standardised
from coordinator.students.torch_student import ImageChange
from runtime.torch_networks import learning_rate_factor

_SIDE: Final = 32  # larger images are reduced to it
_WIDTHS: Final = (16, 32)
FEATURES: Final = 128
_PROJECTED: Final = 64
_TEMPERATURE: Final = 0.2
_BATCH: Final = 128
_STEPS: Final = 400
_RATE, _DECAY = 2e-3, 1e-4
_CHANGE: Final = ImageChange(rotation=15, shift=0.1, scale=0.2, shear=0.2, contrast=0.4, cutout=0.3)


class _Network(nn.Module):
    """Three convolutions and a dense layer. sides: of the records, [height, width]; channels: 1 or 3."""

    def __init__(self, sides: tuple[int, int], channels: int) -> None:
        super().__init__()
        self.side = min(_SIDE, max(sides))
        layers: list[nn.Module] = []
        taken = channels
        for given in _WIDTHS:
            layers += [nn.Conv2d(taken, given, 3, padding=1), nn.BatchNorm2d(given), nn.ReLU(), nn.MaxPool2d(2)]
            taken = given
        layers += [nn.Conv2d(taken, taken, 3, padding=1), nn.BatchNorm2d(taken), nn.ReLU(), nn.Flatten()]
        self.layers = nn.Sequential(*layers, nn.Linear(taken * (self.side // 4) ** 2, FEATURES))

    def forward(self, inputs: Tensor) -> Tensor:
        features: Tensor = self.layers(resized(inputs, self.side))
        return features


def encoder(pool: Float32[ndarray, "pool ..."], *, seed: int = 0) -> bytes:
    """The ONNX file. Raises InvalidInput for a pool of other records than images."""
    check_images(pool, kind="contrastive")
    return standardised(trained(pool, seed=seed, steps=_STEPS), pool, origin=OF_POOL)


def trained(pool: Float32[ndarray, "pool height width ..."], *, seed: int, steps: int) -> nn.Module:
    """The network after so many steps. Everything that is drawn follows from the seed."""
    rng = np.random.default_rng([seed, *b"contrastive"])
    with torch.random.fork_rng(devices=[]):  # layers draw weights as they are made, which are drawn anew below
        network = _Network((pool.shape[1], pool.shape[2]), 1 if pool.ndim == 3 else 3)
        head = nn.Sequential(nn.ReLU(), nn.Linear(FEATURES, _PROJECTED))
    both = nn.ModuleList([network, head])
    draw_weights(both, rng)
    images = torch.from_numpy(pool)
    optimiser = torch.optim.AdamW(both.parameters(), lr=_RATE, weight_decay=_DECAY)
    both.train()
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = _RATE * learning_rate_factor(step, steps)
        chosen = images[torch.from_numpy(rng.choice(len(pool), min(_BATCH, len(pool)), replace=False))]
        views = torch.cat([_CHANGE(chosen, rng), _CHANGE(chosen, rng)])
        optimiser.zero_grad()
        contrast(head(network(views))).backward()  # type: ignore[no-untyped-call]  # torch declares no types for it
        optimiser.step()
    return network


def contrast(projected: Float[Tensor, "views features"]) -> Tensor:
    """The mean of NT-Xent over all views (Chen et al. 2020, Eq. 1); the second half changes the images of the first."""
    count = len(projected)
    unit = nn.functional.normalize(projected, dim=1)
    likeness = unit @ unit.T / _TEMPERATURE
    likeness = likeness.masked_fill(torch.eye(count, dtype=torch.bool), float("-inf"))
    return nn.functional.cross_entropy(likeness, torch.arange(count).roll(count // 2))


def draw_weights(module: nn.Module, rng: np.random.Generator) -> None:
    """He-normal weights (He et al. 2015) of all layers but batch norm, from the generator; offsets are 0."""
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            drawn = rng.standard_normal(tuple(layer.weight.shape), np.float32)
            fan = layer.weight[0].numel()
            with torch.no_grad():
                layer.weight.copy_(torch.from_numpy(drawn * np.float32((2 / fan) ** 0.5)))
                if layer.bias is not None:
                    layer.bias.zero_()
