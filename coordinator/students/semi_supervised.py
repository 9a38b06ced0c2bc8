"""A kind of student that trains a network on labelled and unlabelled inputs, by one method for images and one for table
rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from jaxtyping import Float32
from numpy import ndarray

from coordinator.students.augmentation import LABELLED_IMAGES, WEAK_ROWS
from coordinator.students.networks import CNN, MLP
from coordinator.students.student import Student, StudentKind
from coordinator.students.torch_student import Method, Schedule, train
from coordinator.students.validation import check_released, is_image

_SCHEDULE: Final = Schedule(batch=32, epochs=25, fewest_steps=800, most_steps=3000)
UNLABELLED_BATCH: Final = 96


@dataclass(frozen=True)
class SemiSupervisedKind(StudentKind):
    """The cnn on images of at least 8x8, grey or with a last axis of 3 colours, the mlp on everything else."""

    images: Method
    rows: Method
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
            method=self.images if image else self.rows,
            schedule=_SCHEDULE,
            classes=classes,
            seed=seed,
            device=self.device,
        )
