"""DP-SGD: what a step is, its noise beside Opacus's own accountant, and the network's images."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import softmax
from torch import nn

from benchmarks import dp_sgd_cnn as dp_sgd
from benchmarks.linear import clipped_sum, noise_multiplier_for

STEP = dp_sgd.Steps(rate=0.5, steps=1, largest=1.0, learning_rate=4.0)


def weights_after(rows, labels, *, how, noise_multiplier, seed):
    model = nn.Linear(rows.shape[1], 2, bias=False, dtype=torch.float64)
    nn.init.zeros_(model.weight)
    dp_sgd.trained(model, rows, labels, how=how, noise_multiplier=noise_multiplier, seed=seed)
    return model.weight.detach().numpy().T


def test_a_step_adds_the_clipped_gradients_of_a_poisson_sample():
    rng = np.random.default_rng(1)
    rows, labels = rng.normal(size=(40, 3)) * 3, rng.integers(0, 2, 40)
    found = weights_after(rows, labels, how=STEP, noise_multiplier=0.0, seed=4)
    total = np.zeros((3, 2))
    for row, label, drawn in zip(rows, labels, np.random.default_rng([4, *b"dp_sgd samples"]).random(40), strict=True):
        if drawn < 0.5:
            each = np.outer(row, softmax(np.zeros(2)) - np.eye(2)[label])
            total += each / max(1, np.linalg.norm(each))
    assert found == pytest.approx(-4.0 / (0.5 * 40) * total, rel=1e-4)
    sampled = np.random.default_rng([4, *b"dp_sgd samples"]).random(40) < 0.5
    assert clipped_sum(rows[sampled], labels[sampled], np.zeros((3, 2)), 1.0) == pytest.approx(total)
    longer = replace(STEP, largest=0.5)
    half = weights_after(rows, labels, how=longer, noise_multiplier=0.0, seed=4)
    assert np.linalg.norm(half) <= np.linalg.norm(found) * 2 + 1e-9  # the rate is over the largest length


def test_noise_has_the_scale_that_the_epsilon_needs_and_its_seed_alone_decides_it():
    rows, labels = np.zeros((50, 400)), np.zeros(50, np.int64)
    first, again, other = (
        weights_after(rows, labels, how=replace(STEP, rate=0.1), noise_multiplier=3.0, seed=seed) for seed in (0, 0, 1)
    )
    assert (first == again).all()
    assert (first != other).any()
    # 800 normal numbers of standard deviation 3 * 4 / 5: six standard errors of their standard deviation.
    assert first.std() == pytest.approx(2.4, rel=6 / 40)


def test_the_noise_is_enough_by_opacuss_accountant_too():
    from opacus.accountants import RDPAccountant  # takes seconds, which every worker would pay when it collects tests

    how = dp_sgd.NETWORK
    noise = noise_multiplier_for(1.0, rate=how.rate, steps=how.steps, delta=1e-5)
    other = RDPAccountant()
    other.history = [(noise, how.rate, how.steps)]
    # Its neighbours add or remove a record, which takes about half the epsilon of replacing one.
    assert 0.4 < other.get_epsilon(delta=1e-5) < 0.7
