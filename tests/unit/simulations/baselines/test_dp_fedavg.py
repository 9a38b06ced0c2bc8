"""DP-FedAvg: how far one party can move a round, and its noise."""

import numpy as np
import pytest

from simulations.baselines.federated import noisy_mean


def test_a_party_moves_the_sum_of_a_round_by_no_more_than_one_and_the_noise_is_a_multiple_of_that():
    small, large = np.full((50, 20), 0.001), np.full((50, 20), 7.0)
    rng = np.random.default_rng(0)
    found = noisy_mean([small, large], noise_multiplier=0.0, rng=rng)
    assert found == pytest.approx((small + large / np.linalg.norm(large)) / 2)
    noisy = noisy_mean([small, large], noise_multiplier=3.0, rng=rng) - found
    # 1,000 normal numbers: six standard errors of their standard deviation.
    assert noisy.std() == pytest.approx(3.0 / 2, rel=6 / 2000**0.5)
