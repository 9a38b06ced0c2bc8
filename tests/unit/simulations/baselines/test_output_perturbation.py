"""Output perturbation: how far a record moves the minimum, and the fit."""

import numpy as np
import pytest

from protocols.errors import InvalidInput
from simulations.baselines import federated as perturbation


def test_replacing_any_record_moves_the_minimum_by_no_more_than_is_said():
    rng = np.random.default_rng(3)
    rows, labels = perturbation.unit_rows(rng.normal(size=(20, 3)) * 2), rng.integers(0, 3, 20)
    assert np.linalg.norm(rows, axis=1).max() == pytest.approx(1)
    first = perturbation.minimum(rows, labels, classes=3, strength=0.2)
    moved = []
    for record, label in ((-rows[0], 0), (-rows[0], 1), (rows[0], 2)):
        others, other_labels = rows.copy(), labels.copy()
        others[0], other_labels[0] = record, label
        second = perturbation.minimum(others, other_labels, classes=3, strength=0.2)
        moved.append(float(np.linalg.norm(second - first)))
    bound = perturbation.moved_by(20, 0.2)
    assert bound == pytest.approx(2 * 2**0.5 / (20 * 0.2), rel=1e-4)
    assert 0.1 * bound < max(moved) <= bound


def test_a_fit_that_does_not_end_at_the_minimum_is_an_error(monkeypatch):
    monkeypatch.setattr(perturbation, "_GRADIENT_LEFT", 1e-30)
    rows = np.eye(4)[:, :3]
    with pytest.raises(InvalidInput, match="ends at a gradient of"):
        perturbation.minimum(rows, np.array([0, 1, 1, 0]), classes=2, strength=0.1)
