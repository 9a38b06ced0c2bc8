"""The `digits` data set: 1,797 handwritten digits of 8 x 8 pixels shipped with scikit-learn (no file needed).

Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, UCI 1998, its test part; CC BY 4.0.
"""

from __future__ import annotations

import numpy as np

from protocols.errors import DataUnavailable
from protocols.installing import install
from simulations.datasets.dataset import Dataset, cut_as_asked
from simulations.datasets.request import DatasetRequest

PUBLIC_SIZE, TEST_SIZE = 400, 300


def load(request: DatasetRequest) -> Dataset:
    """Images f32 [N, 8, 8] in [0, 1]; a split by record from the seed, stratified by class.

    Raises DataUnavailable when scikit-learn is not installed, InvalidInput on sizes that do not fit.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise DataUnavailable(f"digits comes with scikit-learn: {install('sklearn')}") from error
    images, labels = load_digits(return_X_y=True)
    inputs = (images.reshape(-1, 8, 8) / 16.0).astype(np.float32)
    labels = labels.astype(np.int64)
    parts = cut_as_asked(request, labels, sizes=(PUBLIC_SIZE, TEST_SIZE), name="digits")
    return Dataset.of(
        inputs,
        labels,
        parts,
        name="digits",
        kind="image",
        class_names=tuple("0123456789"),
        about="Handwritten digits, 8 x 8 pixels, from scikit-learn; split by image, stratified by class.",
    )
