"""Semi-supervised students of the benchmarks: what they learn, and SoftMatch's weights against the paper's formulas."""

import math
import statistics

import numpy as np
import pytest
import torch

from benchmarks import semi_supervised
from benchmarks.semi_supervised import Gaussian
from coordinator.students import torch_student
from coordinator.students.student import one_hot


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


@pytest.mark.parametrize("name", ["fixmatch", "mean_teacher", "vat", "freematch", "softmatch", "mixmatch"])
@pytest.mark.parametrize("shape", [(9, 8), (6,)])
def test_two_kinds_of_inputs_are_told_apart_and_the_same_seed_gives_the_same(
    name: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    short = torch_student.Schedule(batch=32, epochs=1, fewest_steps=60, most_steps=60)
    monkeypatch.setattr(semi_supervised, "_SCHEDULE", short)
    labels = np.arange(80) % 2
    inputs = np.random.default_rng(2).random((80, *shape), np.float32) / 2
    inputs[labels == 1, ..., :4] += 0.5
    kind = getattr(semi_supervised, name)(device="cpu")
    first, again = (
        kind.fit(inputs[:40], one_hot(labels[:40], 2), unlabelled=inputs[40:], classes=2, seed=3) for _ in range(2)
    )
    assert (first.predict(inputs[40:]) == labels[40:]).mean() >= 0.9
    np.testing.assert_array_equal(first.predict_proba(inputs), again.predict_proba(inputs))
