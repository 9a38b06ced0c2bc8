"""How much the labels help the hospital that asked for them: its own model before and after, on held-out records.

This is CaPC's experiment (Choquette-Choo et al. 2021, section 4): the model is trained on the hospital's own labelled
records, and again with the answered queries added. Figures concern the hospital's own data and stay with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
import scipy
from jaxtyping import Bool, Float32, Int64
from numpy import ndarray

from party.data.records import Records
from party.teachers.own import trained_kind
from party.teachers.scores import percent, wilson
from party.teachers.teacher import Teacher
from protocols.errors import InvalidInput
from protocols.levels.hidden_queries.inference.architecture import Precision
from protocols.levels.hidden_queries.inference.fixed_point import plain_inference, quantise
from protocols.plural import counted

# The two-sided 95 % quantile of the standard normal distribution.
_DEVIATIONS = 1.959964
# Below this p-value, a change is said to be more than chance.
CHANCE = 0.05


@dataclass(frozen=True)
class Improvement:
    """Accuracies on the test records, with standard errors and 95 % intervals, and what each model was trained on.

    gained, lost: numbers of test records that only the later, or only the earlier, model gets right; they show whether
    the change is more than chance. agreement: the share of queries, in [0, 1], on which the later model gives the same
    label when computed in the study's fixed point; None for a kind that cannot be computed in fixed point.
    """

    model: str
    own_records: int
    answered: int
    test_records: int
    accuracy_before: float
    accuracy_after: float
    error_before: float
    error_after: float
    interval_before: tuple[float, float]
    interval_after: tuple[float, float]
    gained: int
    lost: int
    agreement: float | None

    def lines(self) -> list[str]:
        """The figures as lines of text."""
        before = percent(self.accuracy_before, self.interval_before)
        after = percent(self.accuracy_after, self.interval_after)
        return [
            f"This hospital's own {self.model}, on {self.test_records} test records:",
            f"  before, from {self.own_records} own records: {before}",
            f"  after, with {counted(self.answered, 'label')} from the others: {after}",
            f"  {self.gained} test records are right only after, {self.lost} only before",
            f"  {fixed_point(self.agreement)}",
        ]


def by_chance(gained: int, lost: int) -> float:
    """The two-sided p-value, in [0, 1], of models that are equally good: McNemar's exact test (McNemar 1947).

    Each record that only one of them gets right is a fair coin then.
    """
    return float(scipy.stats.binomtest(gained, gained + lost).pvalue) if gained + lost else 1.0


def fixed_point(agreement: float | None) -> str:
    """In words: how much rounding to fixed point, as in the others' models, changes this model."""
    if agreement is None:
        return "a model of this kind cannot be computed in fixed point, so the effect of rounding is not known"
    return (
        f"in fixed point, as the others' models compute, it gives {100 * agreement:.1f} % of your records the same "
        "label"
    )


def check_model(kind: str) -> None:
    """Raises InvalidInput for a kind of model that cannot be trained here, before anything is asked."""
    trained_kind(kind, setting="--model", others=())


def improve(
    kind: str,
    own: Records,
    test: Records,
    queries: Float32[ndarray, "queries ..."],
    labels: Int64[ndarray, " queries"],
    *,
    classes: int,
    seed: int,
    precision: Precision,
) -> Improvement:
    """Trains both models and scores them on the test records.

    labels: class ids, below 0 where there is none. Raises InvalidInput for an unknown kind, or without test records.
    """
    if len(test.labels) == 0:
        raise InvalidInput("there are 0 test records; allowed: at least 1")
    answered = labels >= 0
    own_inputs, own_labels = own.inputs[own.usable], own.labels[own.usable]
    both = (
        np.concatenate([own_inputs, queries[answered]]),
        np.concatenate([own_labels, labels[answered]]),
    )
    trainer = trained_kind(kind, setting="--model", others=())
    before, after = (trainer.fit([each], classes=classes, seeds=[seed])[0] for each in ((own_inputs, own_labels), both))
    tested, truth = test.inputs[test.usable], test.labels[test.usable]
    right_before, right_after = (each.predict(tested) == truth for each in (before, after))
    return Improvement(
        model=kind,
        own_records=len(own_labels),
        answered=int(answered.sum()),
        test_records=len(truth),
        accuracy_before=float(right_before.mean()),
        accuracy_after=float(right_after.mean()),
        error_before=_error(right_before),
        error_after=_error(right_after),
        interval_before=wilson(float(right_before.mean()), len(right_before)),
        interval_after=wilson(float(right_after.mean()), len(right_after)),
        gained=int((right_after & ~right_before).sum()),
        lost=int((right_before & ~right_after).sum()),
        agreement=_agreement(after, queries, classes=classes, precision=precision),
    )


def _agreement(
    model: Teacher, queries: Float32[ndarray, "queries ..."], *, classes: int, precision: Precision
) -> float | None:
    try:
        quantised = quantise(model.private_model(classes=classes), precision)
    except InvalidInput:
        return None
    return float((plain_inference(quantised, queries) == model.predict(queries)).mean())


def _error(right: Bool[ndarray, " records"]) -> float:
    """The standard error of the share of records that are right."""
    share = float(right.mean())
    return sqrt(share * (1 - share) / len(right))
