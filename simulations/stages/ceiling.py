"""The ceiling of a run: the best of a few models of all private records with their true labels, without privacy.

A linear model and a network, and boosted trees for rows of tables. Which is best is told by private records that are
held out of training; the test records only measure it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray

from coordinator.students import EQUAL, student_kind
from coordinator.students.choice import FOLDS, folds
from coordinator.students.student import Student, equal_weights, is_image, one_hot
from protocols.array_files import array_bytes
from protocols.errors import InvalidInput
from runtime.files import write_atomically
from simulations.datasets.dataset import Dataset, content_digest
from simulations.source import source_digest
from simulations.stages.cached import cached_array

# Below this many records each is held out once, and the best kind learns from all of them; from there on one part of a
# tenth, at most so many records, is held out for good.
_FEW: Final = 1_000
_HELD, _MOST_HELD = 0.1, 2_000
_PACKAGES: Final = {"logistic_regression": "sklearn", "gradient_boosting": "sklearn", "mlp": "torch", "cnn": "torch"}
_TREES: Final = ("gradient_boosting", "random_forest")


@dataclass(frozen=True, eq=False)
class Ceiling:
    """Models of all private records, of which the best is the ceiling; trained when a result is needed that no cache
    has.

    pixels, rows: the data set as networks and as linear models see it, the same for tables; named: tells the rows from
    others of the same records; student: the kind of the run's student. With EQUAL, classes count the same here, too.
    """

    pixels: Dataset
    rows: Callable[[], Dataset]
    named: str
    student: str
    seed: int
    cache_dir: Path = field(repr=False)

    def accuracy(self) -> float:
        """The share of test records for which the likeliest class is right."""
        return float((self.test_probabilities.argmax(axis=1) == self.pixels.test_labels).mean())

    @cached_property
    def test_probabilities(self) -> Float32[ndarray, "test classes"]:
        """What the best model says of each test record. Raises InvalidInput where no kind is installed."""
        source = source_digest("coordinator.students", "runtime.torch_networks", __name__)
        about = (
            f"ceiling {self.student} {self.seed} {sorted(self._candidates)} {self.named} {source} "
            f"{self.pixels.private_digest} {self.pixels.test_digest}"
        )
        path = self.cache_dir / "students" / f"{content_digest(text=about)}.npy"
        known = cached_array(path)
        if known is not None and known.shape == (len(self.pixels.test_labels), self.pixels.classes):
            return known
        made = self._best()
        write_atomically(path, array_bytes(made))
        return made

    @property
    def _candidates(self) -> Mapping[str, Callable[[], Dataset]]:
        """The kinds that are compared, the simpler first, which wins a tie, and the data as each sees them."""
        equal = EQUAL * self.student.endswith(EQUAL)
        image = is_image(self.pixels.private_inputs.shape[1:])
        kinds = {"logistic_regression": self.rows, "cnn" if image else "mlp": lambda: self.pixels}
        own = self.student.removesuffix(EQUAL)
        if not image or own in _TREES:
            kinds[own if own in _TREES else _TREES[0]] = self.rows
        found = {name + equal: of for name, of in kinds.items() if find_spec(_PACKAGES.get(name, "sklearn"))}
        if not found:
            raise InvalidInput(f"no model of pooled data is installed; allowed: some of {', '.join(kinds)}")
        return found

    def _best(self) -> Float32[ndarray, "test classes"]:
        labels = self.pixels.private_labels
        few = len(labels) < _FEW
        part = folds(labels, self.seed) if few else self._held_out(len(labels))
        agreed, trained = {}, {}
        for kind, seen in self._candidates.items():
            dataset, scores = seen(), []
            for each in range(FOLDS if few else 1):
                trained[kind] = self._fit(kind, dataset, part != each)
                scores.append(self._agreement(kind, trained[kind], dataset, part == each))
            agreed[kind] = float(np.mean(scores))
        kind = max(agreed, key=lambda name: agreed[name])
        dataset = self._candidates[kind]()
        model = self._fit(kind, dataset, part >= -1) if few else trained[kind]
        return model.predict_proba(dataset.test_inputs)

    def _held_out(self, records: int) -> Int64[ndarray, " records"]:
        """0 for the records that are held out, -1 for the others."""
        part = np.full(records, -1)
        rng = np.random.default_rng([self.seed, *b"ceiling"])
        part[rng.choice(records, size=min(int(_HELD * records), _MOST_HELD), replace=False)] = 0
        return part

    def _fit(self, kind: str, dataset: Dataset, of: ndarray) -> Student:
        """A model of the records `of`, bool [private]."""
        targets = one_hot(dataset.private_labels[of], dataset.classes)
        inputs = dataset.private_inputs[of]
        return student_kind(kind).fit(inputs, targets, unlabelled=inputs[:0], classes=dataset.classes, seed=self.seed)

    def _agreement(self, kind: str, model: Student, dataset: Dataset, of: ndarray) -> float:
        """The share of the weight of the records `of`, bool [private], that lies on the classes predicted."""
        targets = one_hot(dataset.private_labels[of], dataset.classes)
        weights = equal_weights(targets) if kind.endswith(EQUAL) else targets
        predicted = model.predict(dataset.private_inputs[of])
        return float(np.take_along_axis(weights, predicted[:, None], axis=1).sum() / weights.sum())
