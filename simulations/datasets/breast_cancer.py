"""The `breast_cancer` data set: 569 tumours, 30 measurements each, shipped with scikit-learn (no file
needed).

Wolberg, Mangasarian, Street, Street, Breast Cancer Wisconsin (Diagnostic), UCI 1995; CC BY 4.0.
"""

from __future__ import annotations

import numpy as np

from protocols.errors import DataUnavailable
from protocols.installing import install
from simulations.datasets.dataset import Dataset, cut_as_asked
from simulations.datasets.request import DatasetRequest

PUBLIC_SIZE, TEST_SIZE = 150, 100


def load(request: DatasetRequest) -> Dataset:
    """Rows f32 [N, 30], standardised with the public part's mean and deviation; a stratified split by patient
    (one row is one patient) from the seed.

    Raises DataUnavailable when scikit-learn is not installed, InvalidInput on sizes that do not fit.
    """
    try:
        from sklearn.datasets import load_breast_cancer
    except ImportError as error:
        raise DataUnavailable(f"breast_cancer comes with scikit-learn: {install('sklearn')}") from error
    measured, labels = load_breast_cancer(return_X_y=True)
    labels = labels.astype(np.int64)
    parts = cut_as_asked(request, labels, sizes=(PUBLIC_SIZE, TEST_SIZE), name="breast_cancer")
    deviation = measured[parts.public].std(axis=0)
    scale = np.where(deviation > 0, deviation, 1.0)
    inputs = np.clip((measured - measured[parts.public].mean(axis=0)) / scale, -10, 10).astype(np.float32)
    return Dataset.of(
        inputs,
        labels,
        parts,
        name="breast_cancer",
        kind="table",
        class_names=("malignant", "benign"),
        about="Breast tumours, 30 measurements, from scikit-learn; one row per patient, stratified by diagnosis.",
    )
