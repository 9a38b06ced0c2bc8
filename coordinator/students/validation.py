"""The checks that every kind of student makes before it trains or predicts."""

from __future__ import annotations

from typing import Final

import numpy as np
from jaxtyping import Float32
from numpy import ndarray

from protocols.errors import InvalidInput

# The shortest side of an image, in pixels.
SMALLEST_IMAGE: Final = 8


def is_image(input_shape: tuple[int, ...]) -> bool:
    """Whether inputs of this shape are images that the cnn takes: grey, or with a last axis of 3 colours."""
    return len(input_shape) in (2, 3) and input_shape[2:] in ((), (3,)) and min(input_shape[:2]) >= SMALLEST_IMAGE


def check_released(
    inputs: Float32[ndarray, "answered ..."],
    targets: Float32[ndarray, "answered classes"],
    unlabelled: Float32[ndarray, "rest ..."],
    classes: int,
    seed: int,
) -> None:
    """Raises InvalidInput unless a student can be trained on this (see StudentKind.fit)."""
    if classes < 2:
        raise InvalidInput(f"classes is {classes}; allowed: at least 2")
    if seed < 0:
        raise InvalidInput("the student's seed is negative; allowed: at least 0")
    if len(targets) == 0:
        raise InvalidInput("no label was released; a student needs at least 1")
    if targets.ndim != 2 or targets.shape[1] != classes:
        raise InvalidInput(f"targets have shape {targets.shape}; allowed: [answered, {classes}]")
    if len(inputs) != len(targets):
        raise InvalidInput(f"{len(inputs)} inputs and {len(targets)} labels; allowed: equally many")
    if inputs.ndim < 2 or inputs[0].size == 0:
        raise InvalidInput(f"inputs have shape {inputs.shape}; allowed: [answered, features, ...]")
    if not (np.isfinite(targets).all() and targets.min() >= 0):
        raise InvalidInput(f"weights of classes span [{targets.min()}, {targets.max()}]; allowed: finite, at least 0")
    if not targets.any(axis=1).all():
        raise InvalidInput(f"{(~targets.any(axis=1)).sum()} inputs have no class with a weight; allowed: none")
    if len(unlabelled) and unlabelled.shape[1:] != inputs.shape[1:]:
        raise InvalidInput(f"unlabelled inputs have shape {unlabelled.shape[1:]}; allowed: {inputs.shape[1:]}")
    if not (np.isfinite(inputs).all() and np.isfinite(unlabelled).all()):
        raise InvalidInput("inputs hold NaN or infinite features; allowed: finite numbers")


def check_queries(inputs: Float32[ndarray, "queries ..."], shape: tuple[int, ...]) -> None:
    """Raises InvalidInput unless the queries are finite and of the shape that the student was trained on."""
    if inputs.shape[1:] != shape:
        raise InvalidInput(f"queries have shape {inputs.shape[1:]}; this student was trained on {shape}")
    if not np.isfinite(inputs).all():
        raise InvalidInput("queries hold NaN or infinite features; allowed: finite numbers")


def check_cpu_only(name: str, device: str) -> None:
    """Raises InvalidInput if a kind that computes only on the CPU is asked for another device."""
    if device not in ("auto", "cpu"):
        raise InvalidInput(f"device is {device!r}; allowed for student {name!r}: auto, cpu")
