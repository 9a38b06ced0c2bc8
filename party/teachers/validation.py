"""The checks that every kind of teacher makes before it trains or predicts."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray

from protocols.errors import InvalidInput

Shard = tuple[Float32[ndarray, "records ..."], Int64[ndarray, " records"]]


def check_shards(shards: list[Shard], classes: int, seeds: list[int]) -> None:
    """Raises InvalidInput unless every shard can train a teacher (see TeacherKind.fit)."""
    if classes < 2:
        raise InvalidInput(f"classes is {classes}; allowed: at least 2")
    if len(seeds) != len(shards):
        raise InvalidInput(f"{len(seeds)} seeds for {len(shards)} shards; allowed: one seed per shard")
    for number, ((inputs, labels), seed) in enumerate(zip(shards, seeds, strict=True)):
        if seed < 0:
            raise InvalidInput(f"the seed of shard {number} is negative; allowed: at least 0")
        if len(inputs) == 0:
            raise InvalidInput(f"shard {number} has 0 records; allowed: at least 1")
        if len(inputs) != len(labels):
            raise InvalidInput(
                f"shard {number} has {len(inputs)} inputs and {len(labels)} labels; allowed: equally many"
            )
        if inputs.ndim < 2 or inputs[0].size == 0:
            raise InvalidInput(f"shard {number} has shape {inputs.shape}; allowed: [records, features, ...]")
        if labels.min() < 0 or labels.max() >= classes:
            raise InvalidInput(
                f"labels of shard {number} span [{labels.min()}, {labels.max()}]; allowed: [0, {classes - 1}]"
            )
        if not np.isfinite(inputs).all():
            raise InvalidInput(f"shard {number} holds NaN or infinite features; allowed: finite numbers")


def check_queries(inputs: Float32[ndarray, "queries ..."], shape: tuple[int, ...]) -> None:
    """Raises InvalidInput unless the queries are finite and each has the shape the teacher was trained on."""
    if inputs.shape[1:] != shape:
        raise InvalidInput(f"queries have shape {inputs.shape[1:]}; this teacher was trained on {shape}")
    if not np.isfinite(inputs).all():
        raise InvalidInput("queries hold NaN or infinite features; allowed: finite numbers")


def check_cpu_only(name: str, device: str) -> None:
    """Raises InvalidInput if a kind that computes only on the CPU is asked for another device."""
    if device not in ("auto", "cpu"):
        raise InvalidInput(f"device is {device!r}; allowed for teacher {name!r}: auto, cpu")
