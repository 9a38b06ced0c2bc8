"""The data sets that come with scikit-learn, and so need no file: `digits` and `breast_cancer`.

1,797 handwritten digits of 8 x 8 pixels: Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, UCI 1998, its
test part. 569 tumours, 30 measurements each: Wolberg, Mangasarian, Street, Street, Breast Cancer Wisconsin
(Diagnostic), UCI 1995. Both CC BY 4.0.
"""

from __future__ import annotations

import numpy as np

from protocols.errors import DataUnavailable
from protocols.installing import install
from simulations.datasets.dataset import Dataset, DatasetRequest, cut_as_asked

_DIGITS_SIZES = (400, 300)


def load_digits(request: DatasetRequest) -> Dataset:
    """Images f32 [N, 8, 8] in [0, 1]; a split by record from the seed, stratified by class.

    Raises DataUnavailable when scikit-learn is not installed, InvalidInput on sizes that do not fit.
    """
    try:
        from sklearn.datasets import load_digits as read
    except ImportError as error:
        raise DataUnavailable(f"digits comes with scikit-learn: {install('sklearn')}") from error
    images, labels = read(return_X_y=True)
    inputs = (images.reshape(-1, 8, 8) / 16.0).astype(np.float32)
    labels = labels.astype(np.int64)
    parts = cut_as_asked(request, labels, sizes=_DIGITS_SIZES, name="digits")
    return Dataset.of(
        inputs,
        labels,
        parts,
        name="digits",
        kind="image",
        class_names=tuple("0123456789"),
        about="Handwritten digits, 8 x 8 pixels, from scikit-learn; split by image, stratified by class.",
    )


_CANCER_SIZES = (150, 100)


def load_breast_cancer(request: DatasetRequest) -> Dataset:
    """Rows f32 [N, 30], standardised with the public part's mean and deviation; a stratified split by patient
    (one row is one patient) from the seed.

    Raises DataUnavailable when scikit-learn is not installed, InvalidInput on sizes that do not fit.
    """
    try:
        from sklearn.datasets import load_breast_cancer as read
    except ImportError as error:
        raise DataUnavailable(f"breast_cancer comes with scikit-learn: {install('sklearn')}") from error
    measured, labels = read(return_X_y=True)
    labels = labels.astype(np.int64)
    parts = cut_as_asked(request, labels, sizes=_CANCER_SIZES, name="breast_cancer")
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
