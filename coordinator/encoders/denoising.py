"""An encoder of table rows that learns from the pool alone: a denoising autoencoder (Vincent et al. 2008).

Some values of a row are replaced by those of another row of the pool, and the network finds the row as it was. Its
middle layer gives the features.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from jaxtyping import Float32
from numpy import ndarray
from torch import Tensor, nn

from coordinator.encoders.contrastive import draw_weights
from coordinator.encoders.standard import OF_POOL, standardised
from protocols.errors import InvalidInput
from runtime.torch_networks import learning_rate_factor

_FEATURES: Final = 32
_HIDDEN: Final = 128
_REPLACED: Final = 0.2  # the share of values
_BATCH: Final = 128
_STEPS: Final = 1500
_RATE, _DECAY = 2e-3, 1e-4


def encoder(pool: Float32[ndarray, "pool ..."], *, seed: int = 0) -> bytes:
    """The ONNX file. Raises InvalidInput for a pool of other records than rows of a table."""
    if pool.ndim != 2:
        raise InvalidInput(
            f"the pool's records have the shape {pool.shape[1:]}; allowed for encoder 'denoising': rows of a table"
        )
    return standardised(trained(pool, seed=seed, steps=_STEPS), pool, origin=OF_POOL)


def trained(pool: Float32[ndarray, "pool columns"], *, seed: int, steps: int) -> nn.Module:
    """The encoding half after so many steps. Everything that is drawn follows from the seed."""
    rng = np.random.default_rng([seed, *b"denoising"])
    columns = pool.shape[1]
    with torch.random.fork_rng(devices=[]):  # layers draw weights as they are made, which are drawn anew below
        network = nn.Sequential(nn.Linear(columns, _HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, _FEATURES))
        back = nn.Sequential(nn.ReLU(), nn.Linear(_FEATURES, _HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, columns))
    both = nn.Sequential(network, back)
    draw_weights(both, rng)
    optimiser = torch.optim.AdamW(both.parameters(), lr=_RATE, weight_decay=_DECAY)
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = _RATE * learning_rate_factor(step, steps)
        clean = pool[rng.choice(len(pool), min(_BATCH, len(pool)), replace=False)]
        optimiser.zero_grad()
        loss: Tensor = (both(torch.from_numpy(replaced(clean, pool, rng))) - torch.from_numpy(clean)).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]  # torch declares no types for it
        optimiser.step()
    return network


def replaced(
    rows: Float32[ndarray, "rows columns"], pool: Float32[ndarray, "pool columns"], rng: np.random.Generator
) -> Float32[ndarray, "rows columns"]:
    """The rows with a share of _REPLACED of their values taken from other rows of the pool, each from its column."""
    others = pool[rng.integers(len(pool), size=rows.shape), np.arange(pool.shape[1])]
    return np.where(rng.random(rows.shape) < _REPLACED, others, rows)
