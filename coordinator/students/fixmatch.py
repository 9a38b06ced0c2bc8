"""FixMatch (Sohn et al. 2020): a student that also learns from the unlabelled rest of the public pool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from jaxtyping import Float32
from numpy import ndarray

from coordinator.students.augmentation import (
    LABELLED_IMAGES,
    STRONG_IMAGES,
    STRONG_ROWS,
    WEAK_IMAGES,
    WEAK_ROWS,
)
from coordinator.students.networks import CNN, MLP, is_image
from coordinator.students.student import Student, StudentKind
from coordinator.students.torch_student import PseudoLabels, Schedule, train
from coordinator.students.validation import check_released
from runtime.torch_networks import torch_device

_SCHEDULE: Final = Schedule(batch=32, epochs=25, fewest_steps=800, most_steps=3000)
_UNLABELLED_BATCH: Final = 96
_THRESHOLD: Final = 0.95  # of the confidence above which a prediction becomes a label; tau in the paper
_WEIGHT: Final = 1.0  # of the unlabelled loss; lambda_u in the paper
_IMAGES: Final = PseudoLabels(WEAK_IMAGES, STRONG_IMAGES, _UNLABELLED_BATCH, _THRESHOLD, _WEIGHT)
_ROWS: Final = PseudoLabels(WEAK_ROWS, STRONG_ROWS, _UNLABELLED_BATCH, _THRESHOLD, _WEIGHT)


@dataclass(frozen=True)
class FixMatchKind(StudentKind):
    """FixMatch with the cnn on images [height, width] of at least 8x8, with the mlp on everything else."""

    device: torch.device

    def fit(
        self,
        inputs: Float32[ndarray, "answered ..."],
        targets: Float32[ndarray, "answered classes"],
        *,
        unlabelled: Float32[ndarray, "rest ..."],
        classes: int,
        seed: int,
    ) -> Student:
        """Trains on targets and unlabelled inputs, see StudentKind.fit.

        With `unlabelled` empty it is supervised training, for the longer schedule of this kind.
        """
        check_released(inputs, targets, unlabelled, classes, seed)
        image = is_image(inputs.shape[1:])
        return train(
            CNN if image else MLP,
            inputs,
            targets,
            unlabelled,
            change=LABELLED_IMAGES if image else WEAK_ROWS,
            pseudo=_IMAGES if image else _ROWS,
            schedule=_SCHEDULE,
            classes=classes,
            seed=seed,
            device=self.device,
        )


def fixmatch(*, device: str) -> FixMatchKind:
    """FixMatch, for images and for standardised table rows."""
    return FixMatchKind(torch_device(device))
