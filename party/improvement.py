"""What labels do for the hospital that asked for them: its own model before and after, on records that it kept back.

This is CaPC's experiment (Choquette-Choo et al. 2021, section 4): the model is trained on the hospital's own labelled
records, and again with the answered queries beside them. Figures are of the hospital's own data and stay with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray

from party.data.records import Records
from party.teachers.own import kind_of
from protocols.errors import InvalidInput


@dataclass(frozen=True)
class Improvement:
    """Accuracies on the test records, with their standard errors, and what each model was trained on."""

    model: str
    own_records: int
    answered: int
    test_records: int
    accuracy_before: float
    accuracy_after: float
    error_before: float
    error_after: float

    def lines(self) -> list[str]:
        """For people."""
        return [
            f"A {self.model} of this hospital, on {self.test_records} test records:",
            f"  before, from {self.own_records} own records: {_percent(self.accuracy_before, self.error_before)}",
            f"  after, with {self.answered} labels of others: {_percent(self.accuracy_after, self.error_after)}",
        ]


def improve(
    kind: str,
    own: Records,
    test: Records,
    queries: Float32[ndarray, "queries ..."],
    labels: Int64[ndarray, " queries"],
    *,
    classes: int,
    seed: int,
) -> Improvement:
    """Trains both models. labels: below 0 where there is none. Raises InvalidInput for an unknown kind."""
    if len(test.labels) == 0:
        raise InvalidInput("there are no test records; allowed: one or more")
    answered = labels >= 0
    both = (
        np.concatenate([own.inputs, queries[answered]]),
        np.concatenate([own.labels, labels[answered]]),
    )
    trainer = kind_of(kind)
    scores = [
        float((trainer.fit([each], classes=classes, seeds=[seed])[0].predict(test.inputs) == test.labels).mean())
        for each in ((own.inputs, own.labels), both)
    ]
    before, after = scores
    return Improvement(
        kind,
        len(own.labels),
        int(answered.sum()),
        len(test.labels),
        before,
        after,
        _error(before, len(test.labels)),
        _error(after, len(test.labels)),
    )


def _error(accuracy: float, records: int) -> float:
    """The standard error of a share."""
    return sqrt(accuracy * (1 - accuracy) / records)


def _percent(share: float, error: float) -> str:
    return f"{100 * share:.1f} % (standard error {100 * error:.1f})"
