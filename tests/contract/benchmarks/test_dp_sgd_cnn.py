"""DP-SGD: what a step is, its noise beside Opacus's own accountant, and the network's images."""

from dataclasses import replace
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from opacus.accountants import RDPAccountant
from scipy.special import softmax
from torch import nn

from benchmarks import dp_sgd_cnn as dp_sgd
from benchmarks.linear import clipped_sum, noise_multiplier_for
from benchmarks.methods import DP_SGD_CNN
from simulations.datasets import load
from simulations.datasets.dataset import DatasetRequest

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


def test_the_model_is_the_mean_over_the_second_half_of_the_steps():
    rows, labels = np.eye(4), np.array([0, 1, 0, 1])
    how = replace(STEP, rate=1.0, learning_rate=0.1)
    steps = [weights_after(rows, labels, how=replace(how, steps=n), noise_multiplier=0.0, seed=0) for n in (1, 2)]
    # Of two steps the second half is the second alone; of three, the second and the third.
    three = weights_after(rows, labels, how=replace(how, steps=3), noise_multiplier=0.0, seed=0)
    assert np.abs(steps[0]).sum() < np.abs(steps[1]).sum() < np.abs(three).sum()


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
    how = dp_sgd.NETWORK
    noise = noise_multiplier_for(1.0, rate=how.rate, steps=how.steps, delta=1e-5)
    other = RDPAccountant()
    other.history = [(noise, how.rate, how.steps)]
    # Its neighbours add or remove a record, which takes about half the epsilon of replacing one.
    assert 0.4 < other.get_epsilon(delta=1e-5) < 0.7


def test_the_method_is_where_it_says_and_has_no_score_for_a_table():
    module, _, name = DP_SGD_CNN.where.partition(":")
    assert getattr(import_module(module), name) is dp_sgd.dp_sgd_cnn
    table = load("breast_cancer", DatasetRequest(seed=0))
    assert dp_sgd.dp_sgd_cnn(SimpleNamespace(inputs=SimpleNamespace(dataset=table))).right is None


def test_the_networks_images_are_centred_by_the_public_pool_alone():
    data = load("glyphs", DatasetRequest(seed=0, private_size=20, public_size=20, test_size=5))
    planes = dp_sgd._planes(data, data.public_inputs)
    assert planes.shape == (20, 1, 28, 28)
    assert planes.std() == pytest.approx(1, rel=1e-4)
    changed = replace(data, private_inputs=data.private_inputs * 0)
    assert (dp_sgd._planes(changed, data.test_inputs) == dp_sgd._planes(data, data.test_inputs)).all()
    colour = np.repeat(data.public_inputs[..., None], 3, axis=-1)
    assert dp_sgd._planes(data, colour).shape == (20, 3, 28, 28)
    assert dp_sgd._network((3, 28, 28), 4)(torch.zeros(2, 3, 28, 28)).shape == (2, 4)
