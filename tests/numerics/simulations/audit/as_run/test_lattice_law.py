"""The law of labels of integer noise against plain enumeration of all noise, and against the continuous law."""

import itertools

import numpy as np
import pytest

from protocols.mechanisms import GNMax
from simulations.audit.as_run import integer_laws, noise_of_sources

COUNTS = np.array([[0, 0, 1], [3, 1, 0], [2, 2, 2]])


def enumerated(counts, label, *, threshold, apart):
    """Every combination of noise, one by one."""
    laws = np.zeros(len(counts) + 1)
    values = range(-label.reach, label.reach + 1)
    for drawn in itertools.product(values, repeat=len(counts)):
        mass = np.prod([label.masses[each + label.reach] for each in drawn])
        noisy = counts + np.array(drawn)
        passed = 1.0
        if threshold is not None and apart is None:
            passed = float(noisy.max() >= threshold)
        elif threshold is not None:
            passed = sum(
                apart.masses[each + apart.reach]
                for each in range(-apart.reach, apart.reach + 1)
                if counts.max() + each >= threshold
            )
        laws[noisy.argmax()] += mass * passed
        laws[-1] += mass * (1 - passed)
    return laws


@pytest.mark.parametrize(("threshold", "own_draw"), [(None, False), (2, False), (4, False), (2, True)])
def test_the_law_is_that_of_all_noise_one_by_one(threshold, own_draw):
    label = noise_of_sources(0.5, sources=1)
    apart = noise_of_sources(0.6, sources=1) if own_draw else None
    laws = integer_laws(COUNTS, label, threshold=threshold, threshold_noise=apart)
    for counts, law in zip(COUNTS, laws, strict=True):
        np.testing.assert_allclose(law, enumerated(counts, label, threshold=threshold, apart=apart), atol=1e-12)


def test_sums_have_the_variance_of_all_sources_and_fine_units_approach_the_continuous_law():
    noise = noise_of_sources(20.0, sources=3)
    values = np.arange(-noise.reach, noise.reach + 1)
    assert (noise.masses * values**2).sum() == pytest.approx(3 * 400, rel=1e-9)
    assert noise.at_most(np.array([-10_000, 0, 10_000])) == pytest.approx([0, 0.5 + noise.masses.max() / 2, 1])
    fine = integer_laws(1000 * COUNTS, noise_of_sources(2000.0, sources=1), threshold=None, threshold_noise=None)
    continuous = np.exp(GNMax(sigma=2.0).outcome_log_law(COUNTS.astype(float), np.ones(3, dtype=np.int64)))
    np.testing.assert_allclose(fine[:, :3], continuous, atol=1e-3)
