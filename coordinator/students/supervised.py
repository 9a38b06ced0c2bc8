"""Students trained only on the released labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from jaxtyping import Float32
from numpy import ndarray

from coordinator.students.augmentation import LABELLED_IMAGES, WEAK_ROWS, Augmentation
from coordinator.students.networks import CNN, MLP, StudentNetwork
from coordinator.students.student import Student, StudentKind
from coordinator.students.torch_student import Schedule, TorchStudent, train
from coordinator.students.validation import check_released
from runtime.torch_networks import torch_device

_SCHEDULE: Final = Schedule(batch=32, epochs=16, fewest_steps=150, most_steps=3000)
# From this many labels on, 16 passes are more steps than there are: inputs are not changed then, and rounds of twice as
# many steps, each with a learning rate that falls to zero (Loshchilov & Hutter 2017, "SGDR"), go on until labels that
# are held out are no better predicted.
_MANY: Final = 6_000
_FIRST_ROUND: Final = 200
# So many of ten are held out, up to so many labels.
_HELD, _MOST_HELD = 0.1, 2_000


@dataclass(frozen=True)
class SupervisedKind(StudentKind):
    """Trains a network on randomly changed copies of the labelled inputs; on the inputs themselves where they are many.

    most_rounds: of _FIRST_ROUND steps and then twice as many each, where labels are many; what bounds the time.
    """

    network: StudentNetwork
    change: Augmentation
    device: torch.device
    most_rounds: int

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
        if len(inputs) >= _MANY:
            return self._converged(inputs, targets, classes=classes, seed=seed)
        return self._trained(inputs, targets, _SCHEDULE, self.change, classes=classes, seed=seed)

    def _converged(
        self,
        inputs: Float32[ndarray, "answered ..."],
        targets: Float32[ndarray, "answered classes"],
        *,
        classes: int,
        seed: int,
    ) -> TorchStudent:
        """The student of the last round after which labels that were held out were better predicted."""
        shuffled = np.random.default_rng([seed, *b"held out"]).permutation(len(inputs))
        count = min(int(_HELD * len(inputs)), _MOST_HELD)
        held, rest = np.sort(shuffled[:count]), np.sort(shuffled[count:])
        best: TorchStudent | None = None
        most = -1.0
        for each in range(self.most_rounds):
            steps = _FIRST_ROUND * 2**each
            schedule = Schedule(batch=_SCHEDULE.batch, epochs=0, fewest_steps=steps, most_steps=steps)
            student = self._trained(
                inputs[rest], targets[rest], schedule, _unchanged, classes=classes, seed=seed + each, begun=best
            )
            predicted = student.predict(inputs[held])
            agreed = float(np.take_along_axis(targets[held], predicted[:, None], axis=1).sum())
            if agreed <= most:
                break
            best, most = student, agreed
        assert best is not None  # agreement is at least 0
        return best

    def _trained(
        self,
        inputs: Float32[ndarray, "answered ..."],
        targets: Float32[ndarray, "answered classes"],
        schedule: Schedule,
        change: Augmentation,
        *,
        classes: int,
        seed: int,
        begun: TorchStudent | None = None,
    ) -> TorchStudent:
        return train(
            self.network, inputs, targets, inputs[:0], change=change, method=None, schedule=schedule, classes=classes,
            seed=seed, device=self.device, begun=begun,
        )  # fmt: skip


def _unchanged(inputs: torch.Tensor, generator: np.random.Generator) -> torch.Tensor:
    return inputs


def cnn(*, device: str) -> SupervisedKind:
    """Two convolutions and two dense layers, for images [height, width] or [height, width, 3], each side at least 8."""
    return SupervisedKind(CNN, LABELLED_IMAGES, torch_device(device), most_rounds=3)


def mlp(*, device: str) -> SupervisedKind:
    """One hidden layer, for inputs of any shape (flattened), table rows standardised."""
    return SupervisedKind(MLP, WEAK_ROWS, torch_device(device), most_rounds=5)
