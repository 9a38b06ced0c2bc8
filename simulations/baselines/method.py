"""What linear models of a comparison see: tables as they are, images by features of the public pool.

Features cost no budget, as they are made from constants and the public pool alone. Linear models with privacy are
better on them than on pixels, and often better than networks with privacy (Tramer and Boneh 2021).

What every method is given, and what it gives back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any  # the values of a JSON object

import numpy as np
from jaxtyping import Bool, Float64, Int64
from numpy import ndarray

from coordinator.queries.features import features_for
from coordinator.students.student import StudentKind
from party.teachers.teacher import TeacherKind
from protocols.errors import InvalidInput
from runtime.distribution import lacking
from simulations.baselines import METHODS
from simulations.datasets.dataset import Dataset
from simulations.progress import Reporter
from simulations.setup.experiment import Experiment
from simulations.stages.inputs import DatasetInputs, Host
from simulations.stages.inputs import encoded_dataset as of_features


def encoded_inputs(inputs: DatasetInputs, features: str) -> DatasetInputs:
    """The inputs with tables left alone, and features f32 [N, features] of images in the place of their pixels.

    features: see features_for. They are centred on the public pool, and scaled by one number so that their mean square
    over the pool is 1. Raises InvalidInput for features that the pool does not have, and for any but auto of tables.
    """
    dataset = inputs.dataset
    if dataset.kind != "image":
        if features != "auto":
            raise InvalidInput(f"features is {features!r}, and {dataset.name} is a table; allowed: auto, as it is")
        return inputs
    found = features_for(dataset.public_inputs, features, columns=dataset.columns, seed=inputs.settings.data_seed)
    made = of_features(dataset, lambda: found, named=found.digest, cache_dir=inputs.cache_dir)
    pool = made.public_inputs.astype(np.float64)
    centre = pool.mean(axis=0)
    scale = float(np.sqrt(((pool - centre) ** 2).mean())) or 1.0
    private, public, test = (
        ((part - centre) / scale).astype(np.float32)
        for part in (made.private_inputs, made.public_inputs, made.test_inputs)
    )
    return replace(inputs, dataset=replace(made, private_inputs=private, public_inputs=public, test_inputs=test))


Row = dict[str, Any]  # Any: JSON


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """One split of the data, one epsilon and one seed of all that a method draws.

    encoded: the same records and parties, with features in the place of pixels (encoding.py); usual_student: whether no
    kind of student was named, so that each method takes what suits its labels; epsilon: None for a method without
    privacy; it is of replace-one neighbours, with the delta of the settings.
    """

    inputs: DatasetInputs
    encoded: DatasetInputs
    usual_student: bool
    epsilon: float | None
    seed: int
    host: Host
    reporter: Reporter

    @property
    def settings(self) -> Experiment:
        """The settings that the data, the parties and the student come from."""
        return self.inputs.settings

    @property
    def dataset(self) -> Dataset:
        """The private, public and test records, with the features that linear models see."""
        return self.encoded.dataset

    def seen_by(self, kind: TeacherKind | StudentKind) -> DatasetInputs:
        """What models of this kind see: images as they are if they need images, otherwise features."""
        return self.inputs if kind.needs_images else self.encoded

    @property
    def holdings(self) -> list[Int64[ndarray, " records"]]:
        """The private records of each party."""
        return [np.concatenate(shards) for shards in self.inputs.shards]

    @property
    def budget(self) -> float:
        """The epsilon of a method with privacy."""
        assert self.epsilon is not None  # cells give every private method one
        return self.epsilon


@dataclass(frozen=True, eq=False)
class Score:
    """On which test records a method is right; None where it could not be run, and note says why.

    right: of each test record the share of the method's models that are right on it, in [0, 1]; a method has one model,
    but for parties with models of their own. Of several findings, the share of those that are known which are told
    right, NaN where none is. details: figures of the method, by name, as the scale of its noise.
    by_party: where parties have models of their own, the accuracy of each that was measured.
    """

    right: Bool[ndarray, " test"] | Float64[ndarray, " test"] | None
    note: str = ""
    details: dict[str, float] = field(default_factory=dict)
    by_party: tuple[float, ...] = ()

    @property
    def accuracy(self) -> float | None:
        """The accuracy on the test records, in [0, 1]."""
        return None if self.right is None else float(np.nanmean(self.right))


def method_of(name: str) -> Callable[[Task], Score]:
    """The function of a method of METHODS; imports the packages that it needs. Raises InvalidInput without them."""
    module, _, function = METHODS[name].where.partition(":")
    try:
        found: Callable[[Task], Score] = getattr(import_module(module), function)
    except ModuleNotFoundError as missing:
        raise lacking(missing, f"method {name!r}") from None
    return found
