"""DP-SGD of a softmax regression: what a step is, and its noise beside Opacus's own accountant."""

import numpy as np
import pytest
from opacus.accountants import RDPAccountant
from scipy.special import softmax

from simulations.baselines import dp_sgd
from simulations.baselines.noise_multiplier import noise_multiplier_for


def test_a_step_adds_the_clipped_gradients_of_a_poisson_sample(monkeypatch):
    monkeypatch.setattr(dp_sgd, "STEPS", 1)
    monkeypatch.setattr(dp_sgd, "SAMPLING_RATE", 0.5)
    rng = np.random.default_rng(1)
    rows, labels = rng.normal(size=(40, 3)) * 3, rng.integers(0, 2, 40)
    found = dp_sgd.trained(rows, labels, classes=2, noise_multiplier=0.0, seed=4)
    total = np.zeros((3, 2))
    for row, label, drawn in zip(rows, labels, np.random.default_rng([4, *b"dp_sgd samples"]).random(40), strict=True):
        if drawn < 0.5:
            each = np.outer(row, softmax(np.zeros(2)) - np.eye(2)[label])
            total += each / max(1, np.linalg.norm(each))
    assert found == pytest.approx(-4.0 / (0.5 * 40) * total, rel=1e-4)


def test_noise_has_the_scale_that_the_epsilon_needs_and_its_seed_alone_decides_it(monkeypatch):
    monkeypatch.setattr(dp_sgd, "STEPS", 1)
    rows, labels = np.zeros((50, 400)), np.zeros(50, np.int64)
    first, again, other = (
        dp_sgd.trained(rows, labels, classes=2, noise_multiplier=3.0, seed=seed) for seed in (0, 0, 1)
    )
    assert (first == again).all()
    assert (first != other).any()
    # 800 normal numbers of standard deviation 3 * 4 / 5: six standard errors of their standard deviation.
    assert first.std() == pytest.approx(2.4, rel=6 / 40)


def test_the_noise_is_enough_by_opacuss_accountant_too():
    noise = noise_multiplier_for(1.0, rate=dp_sgd.SAMPLING_RATE, steps=dp_sgd.STEPS, delta=1e-5)
    other = RDPAccountant()
    other.history = [(noise, dp_sgd.SAMPLING_RATE, dp_sgd.STEPS)]
    # Its neighbours add or remove a record, which takes about half the epsilon of replacing one.
    assert 0.4 < other.get_epsilon(delta=1e-5) < 0.7
