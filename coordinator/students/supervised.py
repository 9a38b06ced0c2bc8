"""Students trained only on the released labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from jaxtyping import Float32
from numpy import ndarray

from coordinator.students.augmentation import LABELLED_IMAGES, WEAK_ROWS, Augmentation
from coordinator.students.networks import CNN, MLP, StudentNetwork
from coordinator.students.student import Student, StudentKind
from coordinator.students.torch_student import Schedule, train
from coordinator.students.validation import check_released
from runtime.torch_networks import torch_device

_SCHEDULE: Final = Schedule(batch=32, epochs=16, fewest_steps=150, most_steps=3000)
# With this many labels one pass in larger batches is as good, and half as long.
_MANY: Final = 20_000
_SCHEDULE_OF_MANY: Final = Schedule(batch=128, epochs=1, fewest_steps=0, most_steps=3000)


@dataclass(frozen=True)
class SupervisedKind(StudentKind):
    """Trains a network on randomly changed copies of the labelled inputs."""

    network: StudentNetwork
    change: Augmentation
    device: torch.device

    @property
    def needs_images(self) -> bool:
        return self.network is CNN

    def fit(
        self,
        inputs: Float32[ndarray, "answered ..."],
        targets: Float32[ndarray, "answered classes"],
        *,
        unlabelled: Float32[ndarray, "rest ..."],
        classes: int,
        seed: int,
    ) -> Student:
        """Trains on the targets, see StudentKind.fit; `unlabelled` is checked and not used."""
        check_released(inputs, targets, unlabelled, classes, seed)
        return train(
            self.network,
            inputs,
            targets,
            unlabelled,
            change=self.change,
            method=None,
            schedule=_SCHEDULE if len(inputs) < _MANY else _SCHEDULE_OF_MANY,
            classes=classes,
            seed=seed,
            device=self.device,
        )


def cnn(*, device: str) -> SupervisedKind:
    """Two convolutions and two dense layers, for images [height, width] or [height, width, 3], each side at least 8."""
    return SupervisedKind(CNN, LABELLED_IMAGES, torch_device(device))


def mlp(*, device: str) -> SupervisedKind:
    """One hidden layer, for inputs of any shape (flattened), table rows standardised."""
    return SupervisedKind(MLP, WEAK_ROWS, torch_device(device))
