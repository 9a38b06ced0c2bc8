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
from jaxtyping import Bool, Float32
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
    awaited: returns when another process has put `network_said` into the cache; None: nobody does.
    """

    pixels: Dataset
    rows: Callable[[], Dataset]
    named: str
    student: str
    seed: int
    cache_dir: Path = field(repr=False)
    awaited: Callable[[], object] | None = None

    def accuracy(self) -> float:
        """The share of test records for which the likeliest class is right."""
        return float((self.test_probabilities.argmax(axis=1) == self.pixels.test_labels).mean())

    @cached_property
    def test_probabilities(self) -> Float32[ndarray, "test classes"]:
        """What the best model says of each test record. Raises InvalidInput where no kind is installed."""
        if len(self.pixels.private_labels) < _FEW:
            return self._kept(f"of few {sorted(self._candidates)}", self._of_few)
        said = {kind: self._said(kind) for kind in self._candidates if kind != self._network}
        if self.awaited is not None:
            self.awaited()
        held = self._held_out
        if self._network in self._candidates:
            said[self._network] = self.network_said
        agreed = {kind: self._agreement(kind, said[kind][: held.sum()], held) for kind in self._candidates}
        return said[max(agreed, key=lambda name: agreed[name])][held.sum() :]

    @property
    def network_said(self) -> Float32[ndarray, "held_and_test classes"]:
        """What the network says of the records that are held out of training, and of the test records."""
        return self._said(self._network)

    @property
    def needs_network(self) -> bool:
        """Whether a network is compared, and the cache does not have what it says."""
        many = len(self.pixels.private_labels) >= _FEW
        return many and self._network in self._candidates and not self._path(self._network).exists()

    def _said(self, kind: str) -> Float32[ndarray, "held_and_test classes"]:
        def made() -> Float32[ndarray, "held_and_test classes"]:
            dataset, held = self._candidates[kind](), self._held_out
            asked = np.concatenate([dataset.private_inputs[held], dataset.test_inputs])
            return self._fit(kind, dataset, ~held).predict_proba(asked)

        return self._kept(kind, made)

    def _kept(
        self, what: str, made: Callable[[], Float32[ndarray, "records classes"]]
    ) -> Float32[ndarray, "records classes"]:
        """What is made, or what the cache has of it."""
        known = cached_array(self._path(what))
        if known is not None and known.ndim == 2 and known.shape[1] == self.pixels.classes:
            return known
        write_atomically(self._path(what), array_bytes(found := made()))
        return found

    def _path(self, what: str) -> Path:
        source = source_digest("coordinator.students", "runtime.torch_networks", __name__)
        about = (
            f"ceiling {what} {self.seed} {self.named} {source} {self.pixels.private_digest} {self.pixels.test_digest}"
        )
        return self.cache_dir / "students" / f"{content_digest(text=about)}.npy"

    @property
    def _network(self) -> str:
        image = is_image(self.pixels.private_inputs.shape[1:])
        return ("cnn" if image else "mlp") + EQUAL * self.student.endswith(EQUAL)

    @property
    def _candidates(self) -> Mapping[str, Callable[[], Dataset]]:
        """The kinds that are compared, the simpler first, which wins a tie, and the data as each sees them."""
        equal = EQUAL * self.student.endswith(EQUAL)
        image = is_image(self.pixels.private_inputs.shape[1:])
        kinds = {"logistic_regression": self.rows, self._network.removesuffix(EQUAL): lambda: self.pixels}
        own = self.student.removesuffix(EQUAL)
        if not image or own in _TREES:
            kinds[own if own in _TREES else _TREES[0]] = self.rows
        found = {name + equal: of for name, of in kinds.items() if find_spec(_PACKAGES.get(name, "sklearn"))}
        if not found:
            raise InvalidInput(f"no model of pooled data is installed; allowed: some of {', '.join(kinds)}")
        return found

    def _of_few(self) -> Float32[ndarray, "test classes"]:
        labels = self.pixels.private_labels
        part, agreed = folds(labels, self.seed), {}
        for kind, seen in self._candidates.items():
            dataset, scores = seen(), []
            for held in (part == each for each in range(FOLDS)):
                said = self._fit(kind, dataset, ~held).predict_proba(dataset.private_inputs[held])
                scores.append(self._agreement(kind, said, held))
            agreed[kind] = float(np.mean(scores))
        kind = max(agreed, key=lambda name: agreed[name])
        dataset = self._candidates[kind]()
        return self._fit(kind, dataset, part >= -1).predict_proba(dataset.test_inputs)

    @cached_property
    def _held_out(self) -> Bool[ndarray, " records"]:
        records = len(self.pixels.private_labels)
        held = np.zeros(records, np.bool_)
        rng = np.random.default_rng([self.seed, *b"ceiling"])
        held[rng.choice(records, size=min(int(_HELD * records), _MOST_HELD), replace=False)] = True
        return held

    def _fit(self, kind: str, dataset: Dataset, of: Bool[ndarray, " private"]) -> Student:
        """A model of these records."""
        targets = one_hot(dataset.private_labels[of], dataset.classes)
        inputs = dataset.private_inputs[of]
        return student_kind(kind).fit(inputs, targets, unlabelled=inputs[:0], classes=dataset.classes, seed=self.seed)

    def _agreement(self, kind: str, said: Float32[ndarray, "held classes"], of: Bool[ndarray, " private"]) -> float:
        """The share of the weight of these private records that lies on the classes that are likeliest."""
        targets = one_hot(self.pixels.private_labels[of], self.pixels.classes)
        weights = equal_weights(targets) if kind.endswith(EQUAL) else targets
        likeliest = said.argmax(axis=1)[:, None]
        return float(np.take_along_axis(weights, likeliest, axis=1).sum() / weights.sum())
