"""What teachers and students, as models of one kind or another, check alike of what they are given."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32
from numpy import ndarray

from protocols.errors import InvalidInput


def check_queries(inputs: Float32[ndarray, "queries ..."], shape: tuple[int, ...]) -> None:
    """Raises InvalidInput unless the queries are finite and each has the shape that the model was trained on."""
    if inputs.shape[1:] != shape:
        raise InvalidInput(f"queries have shape {inputs.shape[1:]}; this model was trained on {shape}")
    if not np.isfinite(inputs).all():
        raise InvalidInput("queries hold NaN or infinite features; allowed: finite numbers")


def check_cpu_only(name: str, device: str) -> None:
    """Raises InvalidInput if a kind that computes only on the CPU is asked for another device."""
    if device not in ("auto", "cpu"):
        raise InvalidInput(f"device is {device!r}; allowed for {name!r}: auto, cpu")
