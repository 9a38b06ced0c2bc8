"""Students of scikit-learn: random_forest, logistic_regression and gradient_boosting, on flattened inputs."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from coordinator.students.student import Released, Student, StudentKind, weighted_rows
from runtime.models import check_cpu_only, check_queries

STUDENT_TREES: Final = 200
STUDENT_ROUNDS: Final = 100
# Small trees: a sum of effects of single features, and of few pairs, which is what soft labels of cells are.
_BOOSTED_LEAVES: Final = 4
_MOST_ITERATIONS: Final = 1000
_INVERSE_REGULARISATION: Final = 1.0

_Model = Any  # a scikit-learn classifier: scikit-learn has no types


@dataclass(frozen=True, eq=False)
class ScikitStudent(Student):
    """A fitted classifier of flattened inputs."""

    model: _Model = field(repr=False)
    input_shape: tuple[int, ...]
    classes: int

    def predict(self, inputs: Float32[ndarray, "queries ..."]) -> Int64[ndarray, " queries"]:
        """The class of each query. Raises InvalidInput for queries of another shape or not finite."""
        return np.asarray(self.predict_proba(inputs).argmax(axis=1), np.int64)

    def predict_proba(self, inputs: Float32[ndarray, "queries ..."]) -> Float32[ndarray, "queries classes"]:
        """What the classifier says of each class. Raises InvalidInput as predict does."""
        check_queries(inputs, self.input_shape)
        probabilities = np.zeros((len(inputs), self.classes), np.float32)
        if len(inputs):
            probabilities[:, self.model.classes_] = self.model.predict_proba(inputs.reshape(len(inputs), -1))
        return probabilities

    @property
    def exporter(self) -> str:
        return "coordinator.release.export:write_scikit"


@dataclass(frozen=True)
class ScikitKind(StudentKind):
    """Trains a classifier on the targets alone; `make(random_state)` returns an untrained one.

    equal_is_none: whether equal weights are left out, because the classifier draws rows in another way if there are
    any; so hard labels give the student that scikit-learn makes of class numbers.
    """

    make: Callable[[int], _Model]
    equal_is_none: bool = False

    def learn(self, released: Released) -> Student:
        """Trains on each input once for each class with a weight; `unlabelled` is not used."""
        rows, labels, weights = weighted_rows(released.inputs, released.targets)
        if (labels == labels[0]).all():  # nothing to separate, and not every classifier takes it: a tree of one leaf
            model: _Model = DecisionTreeClassifier(random_state=0)
        else:
            # scikit-learn takes 32 bits; a seed may be any non-negative integer.
            model = self.make(int(np.random.SeedSequence(released.seed).generate_state(1)[0]))
        plain = self.equal_is_none and bool((weights == weights[0]).all())
        with warnings.catch_warnings():
            # Steps are limited, so that a fit takes seconds.
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(rows, labels, sample_weight=None if plain else weights)
        return ScikitStudent(model, released.inputs.shape[1:], released.classes)


def random_forest(*, device: str) -> ScikitKind:
    """A random forest of STUDENT_TREES trees."""
    check_cpu_only("random_forest", device)
    return ScikitKind(
        lambda seed: RandomForestClassifier(STUDENT_TREES, random_state=seed, n_jobs=1), equal_is_none=True
    )


def logistic_regression(*, device: str) -> ScikitKind:
    """Multinomial logistic regression with a normal prior; inputs should be standardised. The seed changes nothing."""
    check_cpu_only("logistic_regression", device)
    return ScikitKind(lambda seed: LogisticRegression(C=_INVERSE_REGULARISATION, max_iter=_MOST_ITERATIONS))


def gradient_boosting(*, device: str) -> ScikitKind:
    """Gradient boosting of STUDENT_ROUNDS small trees a class on binned features, without early stopping."""
    check_cpu_only("gradient_boosting", device)
    return ScikitKind(
        lambda seed: HistGradientBoostingClassifier(
            max_iter=STUDENT_ROUNDS, max_leaf_nodes=_BOOSTED_LEAVES, early_stopping=False, random_state=seed
        )
    )
