"""The model of the federated and private methods: its gradient, and that scaling looks at the public pool alone."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from simulations.baselines import federated
from simulations.datasets import load
from simulations.datasets.request import DatasetRequest


def test_the_gradient_is_that_of_the_loss():
    rng = np.random.default_rng(0)
    rows, labels, at = rng.normal(size=(6, 3)), rng.integers(0, 3, 6), rng.normal(size=(3, 3))
    slow = approx_fprime(at.ravel(), lambda flat: federated.loss(flat.reshape(3, 3), rows, labels))
    assert federated.gradient(at, rows, labels).ravel() == pytest.approx(slow, abs=1e-6)


def test_no_private_record_decides_how_rows_are_scaled():
    data = load("breast_cancer", DatasetRequest(seed=0))
    rows = federated.scaled_rows(data, data.test_inputs)
    assert rows.shape == (len(data.test_labels), data.test_inputs.shape[1] + 1)
    other = replace(data, private_inputs=data.private_inputs * 9)
    assert (federated.scaled_rows(other, data.test_inputs) == rows).all()
    pool = federated.scaled_rows(data, data.public_inputs)[:, :-1]
    assert (pool**2).sum(axis=1).mean() == pytest.approx(1)
