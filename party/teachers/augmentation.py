"""Random rotations and shifts of a teacher's images, as in Individualized PATE (Boenisch et al. 2023)."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import torch
from jaxtyping import Float, Float32
from numpy import ndarray
from torch import Tensor
from torch.nn import functional

from runtime.torch_networks import planes

_ROTATION: Final = math.radians(15)
_SHIFT: Final = 0.1  # of the height and width


def draw_motions(generator: np.random.Generator, count: int) -> Float32[ndarray, "images 3"]:
    """For each image an angle in radians and shifts in x and y (in half image sizes), drawn uniformly."""
    limits = np.array([_ROTATION, 2 * _SHIFT, 2 * _SHIFT], np.float32)
    return generator.uniform(-1, 1, (count, 3)).astype(np.float32) * limits


def move(
    images: Float[Tensor, "images height width ..."], motions: Float[Tensor, "images 3"]
) -> Float[Tensor, "images height width ..."]:
    """Each image rotated and shifted by its motion; uncovered pixels repeat the border."""
    cosine, sine = torch.cos(motions[:, 0]), torch.sin(motions[:, 0])
    rows = torch.stack([cosine, -sine, motions[:, 1], sine, cosine, motions[:, 2]], dim=1)
    pixels = planes(images)
    grid = functional.affine_grid(rows.view(-1, 2, 3), list(pixels.shape), align_corners=False)
    moved = functional.grid_sample(pixels, grid, padding_mode="border", align_corners=False)
    return moved[:, 0] if images.ndim == 3 else moved.movedim(1, -1)
