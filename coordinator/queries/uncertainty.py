"""Questions about which a student of the labels so far is least certain, spread over the pool.

Active learning by margin (Scheffer, Decomain & Wrobel 2001; Settles 2009, section 3.1): a record counts 1 less the
difference of the two largest probabilities that a quick student gives it, a logistic regression on the pool's features.
A batch is those questions that stand best for the records that count, given what was asked before: the facility
location of coverage.py, with weights (Wei, Iyer & Bilmes 2015, "Submodularity in data subset selection and active
learning"). So it is not many copies of one uncertain record, nor outliers, on which teachers disagree. Before labels of
two classes are known all records count the same, and the order is that of `coverage`.

The student learns from released labels and public records alone, so all of this is post-processing (Dwork & Roth 2014,
Proposition 2.1).
"""

from __future__ import annotations

import hashlib
from typing import Final

import numpy as np
from jaxtyping import Float32, Float64, Int64
from numpy import ndarray

from coordinator.queries.coverage import Cover
from protocols.errors import InvalidInput
from protocols.installing import install

# Of standardised features: the inverse of the prior's weight, as of the student logistic_regression, and of the mean
# deviation, at least, by which one that hardly varies is divided.
_INVERSE_REGULARISATION: Final = 1.0
_LEAST_DEVIATION: Final = 0.05
_MOST_ITERATIONS: Final = 200


class UncertainFirst:
    """A choice of questions between batches, see protocols/labelling/questions.py: the same for the same labels.

    features: of the pool. Raises InvalidInput without scikit-learn.
    """

    def __init__(self, features: Float32[ndarray, "pool features"]) -> None:
        self._cover = Cover(features)
        values = features.astype(np.float64)
        deviation = values.std(axis=0)
        floor = max(_LEAST_DEVIATION * float(deviation.mean()), float(np.finfo(np.float32).tiny))
        self._rows = (values - values.mean(axis=0)) / np.maximum(deviation, floor)
        # A replay and the live study that is compared with it choose the same.
        self._known: dict[bytes, Int64[ndarray, " chosen"]] = {}

    def __call__(
        self, labels: Int64[ndarray, " pool"], left: Int64[ndarray, " left"], size: int
    ) -> Int64[ndarray, " chosen"]:
        """`size` of the positions in `left`, those that are worth most first."""
        key = hashlib.sha256(b"%d" % size + labels.tobytes() + left.tobytes()).digest()
        if key not in self._known:
            asked = np.setdiff1d(np.arange(len(labels)), left)
            self._known[key] = self._cover.best(left, size, counts=self.uncertainty(labels), asked=asked)
        return self._known[key]

    def uncertainty(self, labels: Int64[ndarray, " pool"]) -> Float64[ndarray, " pool"]:
        """1 less the margin of the student of these labels, in [0, 1]; 1 everywhere without labels of two classes."""
        has = np.flatnonzero(labels >= 0)
        if len(np.unique(labels[has])) < 2:
            return np.ones(len(labels))
        try:
            from sklearn.linear_model import LogisticRegression
        except ModuleNotFoundError as missing:
            raise InvalidInput(f"questions by uncertainty need scikit-learn: {install('sklearn')}") from missing
        student = LogisticRegression(C=_INVERSE_REGULARISATION, max_iter=_MOST_ITERATIONS)
        chances = np.sort(student.fit(self._rows[has], labels[has]).predict_proba(self._rows), axis=1)
        return np.asarray(1.0 - (chances[:, -1] - chances[:, -2]), np.float64)
