"""SoftMatch's weights of guesses, against the paper's formulas computed one by one."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
import torch

from coordinator.students.semi_supervised import Gaussian


def test_weights_are_a_truncated_gaussian_of_aligned_confidences_with_running_mean_and_variance() -> None:
    """Chen et al. 2023, sections 3.1 and 3.2, guess by guess in double precision."""
    generator = np.random.default_rng(0)
    weigh = Gaussian(3)
    mean, variance, running = 1 / 3, 1.0, [1 / 3] * 3
    for _ in range(2):
        guessed = generator.dirichlet([0.3, 0.6, 2], 8)
        running = [0.99 * old + 0.01 * statistics.fmean(new) for old, new in zip(running, guessed.T, strict=True)]
        aligned = [[p / r for p, r in zip(row, running, strict=True)] for row in guessed.tolist()]
        confidence = [max(row) / sum(row) for row in aligned]
        mean = 0.99 * mean + 0.01 * statistics.fmean(confidence)
        variance = 0.99 * variance + 0.01 * statistics.variance(confidence)
        wanted = [1.0 if c >= mean else math.exp(-((c - mean) ** 2) / (2 * variance)) for c in confidence]
        found = weigh(torch.tensor(guessed, dtype=torch.float32)).tolist()
        assert found == pytest.approx(wanted, rel=1e-4)
