"""What a plan can maximise: the worth of a released label of a given accuracy; and the usual spread of difficulty."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy
from jaxtyping import Float64
from numpy import ndarray


def information(accuracy: Float64[ndarray, "*shape"], classes: int) -> Float64[ndarray, "*shape"]:
    """The least number of bits that a label of this accuracy carries, in [0, log2 classes]; 0 at chance and below.

    log2 m - H(A) - (1 - A) log2(m - 1): the capacity of a symmetric channel, and by Fano's inequality (Cover &
    Thomas 2006, Thm 2.10.1) a lower bound on the information about a truth of balanced classes for any other errors.
    """
    wrong = 1 - accuracy
    entropy = -(scipy.special.xlogy(accuracy, accuracy) + scipy.special.xlogy(wrong, wrong)) / np.log(2)
    bits = np.log2(classes) - entropy - wrong * np.log2(classes - 1)
    return np.where(accuracy > 1 / classes, np.maximum(bits, 0.0), 0.0)


@dataclass(frozen=True)
class Objective:
    """What a plan maximises: the number of released labels times the worth of one of a given accuracy."""

    name: str
    statement: str
    worth: Callable[[Float64[ndarray, "..."], int], Float64[ndarray, "..."]]

    def value(
        self, answered: Float64[ndarray, "*shape"], accuracy: Float64[ndarray, "*shape"], *, classes: int
    ) -> Float64[ndarray, "*shape"]:
        """The objective's value for `answered` labels of this mean accuracy."""
        return answered * self.worth(accuracy, classes)


OBJECTIVES: dict[str, Objective] = {
    objective.name: objective
    for objective in (
        Objective(
            "information",
            "expected bits of the released labels: answered x (log2 m - H(A) - (1 - A) log2(m - 1)), "
            "A = their mean accuracy, m = classes; at least that by Fano's inequality for balanced classes",
            information,
        ),
        Objective(
            "correct",
            "expected right labels beyond guessing: answered x (m A - 1)/(m - 1), A = mean accuracy, m = classes",
            lambda accuracy, classes: np.maximum(classes * accuracy - 1, 0) / (classes - 1),
        ),
        Objective("labels", "expected number of released labels", lambda accuracy, classes: np.ones_like(accuracy)),
    )
}
