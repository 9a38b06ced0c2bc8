"""How often a model is right on records that it did not learn from, with an interval, and what a constant would reach.

Wilson 1927 for a share; Newcombe's and Zou & Donner's square-and-add (Zou & Donner 2008, eq. 7) for a mean of shares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import sqrt
from typing import Any, Final  # the values of a JSON object

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from protocols.errors import InvalidInput

# The two-sided 95 % quantile of the standard normal distribution.
DEVIATIONS: Final = 1.959964
# From this share of the commonest class on, accuracy alone says little.
_SKEWED: Final = 0.6


@dataclass(frozen=True)
class TeacherScore:
    """A model's figures on labelled records; every share is in [0, 1].

    records: how many; accuracy, interval: the share that is right, and its 95 % interval; balanced, balanced_interval:
    the mean over the classes that occur of the share that is right in each; commonest: the share of the commonest
    class, which is the accuracy of always answering it; commonest_class: its name; recalls: the share that is right by
    class.
    """

    records: int
    accuracy: float
    interval: tuple[float, float]
    balanced: float
    balanced_interval: tuple[float, float]
    commonest: float
    commonest_class: str
    recalls: Mapping[str, float] = field(repr=False)

    @property
    def skewed(self) -> bool:
        """Whether one class is so common that the balanced figure is the one to read."""
        return self.commonest >= _SKEWED

    def words(self) -> str:
        """The figures in one sentence."""
        said = f"right in {share_words(self.accuracy, self.interval)}"
        if self.skewed:
            said += f"; balanced over classes {share_words(self.balanced, self.balanced_interval)}"
        return f"{said}; always {self.commonest_class!r} would be right in {100 * self.commonest:.1f} %"

    def figures(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def score_teacher(
    predicted: Int64[ndarray, " records"], labels: Int64[ndarray, " records"], class_names: tuple[str, ...]
) -> TeacherScore:
    """The score of predicted class ids. Raises InvalidInput without records."""
    if not len(labels):
        raise InvalidInput("there are 0 labelled records to score on; allowed: at least 1")
    right = predicted == labels
    counts = np.bincount(labels, minlength=len(class_names))
    present = np.flatnonzero(counts)
    recalls = np.array([right[labels == each].mean() for each in present])
    ends = np.array([wilson(share, int(counts[each])) for share, each in zip(recalls, present, strict=True)])
    reach = np.sqrt(((ends - recalls[:, None]) ** 2).sum(axis=0)) / len(present)
    middle, commonest = float(recalls.mean()), int(counts.argmax())
    return TeacherScore(
        records=len(labels),
        accuracy=float(right.mean()),
        interval=wilson(float(right.mean()), len(labels)),
        balanced=middle,
        balanced_interval=(max(0.0, middle - reach[0]), min(1.0, middle + reach[1])),
        commonest=float(counts[commonest] / len(labels)),
        commonest_class=class_names[commonest],
        recalls={class_names[each]: float(share) for each, share in zip(present, recalls, strict=True)},
    )


def wilson(share: float, records: float) -> tuple[float, float]:
    """Wilson's 95 % score interval of a share (Wilson 1927), which is valid near 0 and 1 too."""
    square = DEVIATIONS**2
    middle = (share + square / (2 * records)) / (1 + square / records)
    half = DEVIATIONS / (1 + square / records) * sqrt(share * (1 - share) / records + square / (4 * records**2))
    # At 0 and 1 the end is the share itself, but for rounding.
    return max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half))


def share_words(share: float, interval: tuple[float, float]) -> str:
    """A share with its 95 % interval."""
    low, high = interval
    return f"{100 * share:.1f} % (95 %: {100 * low:.1f} to {100 * high:.1f})"
