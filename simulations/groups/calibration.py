"""Whether a model's probabilities are true: expected calibration error, Brier score, the bins of a reliability plot.

A model is calibrated where, of the records that it is sure of to 0.8, eight in ten are right. The expected calibration
error is that of Guo et al. 2017, "On Calibration of Modern Neural Networks", eq. 3, with bins of equal mass in place of
equal width, as Nixon et al. 2019, "Measuring Calibration in Deep Learning", advise: no bin is of few records. It is not
0 for a calibrated model, as each bin's accuracy is a mean of few records.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64, Int64
from numpy import ndarray

MOST_BINS = 15
# Fewer bins where one would have fewer records than this.
_RECORDS_PER_BIN = 20


@dataclass(frozen=True, eq=False)
class Calibration:
    """error: the expected calibration error, in [0, 1]; brier: in [0, 2]; per bin, from the least sure to the surest:
    its records, their mean confidence (of the named class) and the share of them that is right.
    """

    error: float
    brier: float
    records: Int64[ndarray, " bins"]
    confidence: Float64[ndarray, " bins"]
    accuracy: Float64[ndarray, " bins"]


def calibration(probabilities: Float32[ndarray, "records classes"], labels: Int64[ndarray, " records"]) -> Calibration:
    """The calibration of a model on these records, of which there is at least one.

    Up to 15 bins of equal mass, up to one record; records of equal confidence stay in their order.
    """
    sure = probabilities.max(axis=1).astype(np.float64)
    right = probabilities.argmax(axis=1) == labels
    bins = max(1, min(MOST_BINS, len(labels) // _RECORDS_PER_BIN))
    parts = np.array_split(np.argsort(sure, kind="stable"), bins)
    records = np.array([len(part) for part in parts], np.int64)
    confidence = np.array([sure[part].mean() for part in parts])
    accuracy = np.array([right[part].mean() for part in parts])
    error = float((records / len(labels)) @ np.abs(accuracy - confidence))
    return Calibration(error, float(brier_terms(probabilities, labels).mean()), records, confidence, accuracy)


def brier_terms(
    probabilities: Float32[ndarray, "records classes"], labels: Int64[ndarray, " records"]
) -> Float64[ndarray, " records"]:
    """Each record's squared distance from the truth, in [0, 2]; their mean is the Brier score (Brier 1950, over all
    classes)."""
    truth = np.zeros(probabilities.shape)
    truth[np.arange(len(labels)), labels] = 1.0
    squares: Float64[ndarray, " records"] = ((probabilities.astype(np.float64) - truth) ** 2).sum(axis=1)
    return squares
