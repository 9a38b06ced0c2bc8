"""Lines of an audit against the exact law: every break is found, quickly. Honest mechanisms are in ../test_audit.py.

Seeds are fixed, so nothing here fails by chance. A line's false alarms are 1e-6: with other seeds one honest line in a
million would fail.
"""

import numpy as np
import pytest

from benchmarks.breaks import MECHANISM_BREAKS as BREAKS
from protocols.mechanisms import GNMax
from protocols.noise import simulated
from simulations.audit.as_run import noise_of_sources
from simulations.audit.batches import FACTORS, audited_batches, power, target_agreement
from simulations.audit.breaks import HONEST, scaled_noise
from simulations.audit.laws import low_bits_evidence, seen_noise_evidence
from tests.harness.audits import of_mechanisms

ALPHA = 1e-6
SETTINGS = of_mechanisms(
    trials=6000, queries=8, classes=3, weight=1.0, sigma=4.0, rate=0.5, delta=0.01, confidence=0.999, noise="fast",
    seed=0,
)  # fmt: skip
TARGETS = {(target.name, target.view): target for target in SETTINGS.of.targets()}
# Breaks that only some mechanisms have a place for.
# The last is found in more trials, below.
LABELS_ONLY = {"bare-threshold", "scales-exchanged", "sure-noiseless", "rare-noiseless"}


def line(target, *, broken=None, trials=6000, seed=0):
    rng = np.random.default_rng(seed)
    return target_agreement(
        target,
        BREAKS.get(broken, HONEST),
        trials=trials,
        alpha=ALPHA,
        seed=0,
        noise=simulated(rng),
        coins_from=rng.bytes,
    )


# The trials at which each break was found with room to spare; 6,000 for all others.
TRIALS = {"noise-90": 20_000, "clipped": 200_000, "sparse": 60_000, "uniform": 12_000, "whole-votes": 20_000}


@pytest.mark.parametrize("name", [name for name in BREAKS if name != "rare-noiseless"])
def test_every_break_is_found_through_labels_alone(name):
    found = line(TARGETS["confident_gnmax", "label"], broken=name, trials=TRIALS.get(name, 6000))
    assert found.failed, found.worst


@pytest.mark.parametrize("name", [name for name in BREAKS if name not in LABELS_ONLY])
def test_every_break_of_noise_that_is_seen_is_found(name):
    found = line(TARGETS["gnmax", "histogram"], broken=name, trials=6000)
    assert found.failed, found.worst


@pytest.mark.parametrize("which", [("thresholded_gnmax", "label"), ("lnmax", "label")], ids=lambda each: each[0])
@pytest.mark.parametrize("name", ["batch-noise", "sure-noiseless", "noise-85", "query-before", "bare-class"])
def test_the_breaks_that_bounds_cannot_show_are_found_in_other_mechanisms_too(which, name):
    assert line(TARGETS[which], broken=name, trials=12_000).failed


def test_a_batch_asks_every_kind_twice_and_its_laws_are_those_of_the_votes():
    batch, second = audited_batches(TARGETS["interactive_gnmax", "label"], seed=0)
    for one in (batch, second):
        np.testing.assert_allclose(one.laws.sum(axis=1), 1, atol=1e-9)
        assert (np.bincount(one.kinds) == 2).all()
        for kind in range(3):
            first, again = np.flatnonzero(one.kinds == kind)
            assert (one.without[first] == one.without[again]).all()
    assert batch.predictions is None
    assert second.predictions is not None
    np.testing.assert_allclose(second.predictions.sum(axis=1), 1)
    # Answers are neither certain nor impossible around the threshold.
    assert ((second.laws[:, -1] > 0.05) & (second.laws[:, -1] < 0.95)).sum() > 10


def test_the_stated_power_is_reached_and_grows_with_trials_and_with_the_fault():
    target = TARGETS["gnmax", "label"]
    told = dict(alpha=ALPHA, families=40, seed=0)
    assert power(target, 0.9, trials=2000, **told) < power(target, 0.9, trials=8000, **told)
    assert list(FACTORS) == sorted(FACTORS, reverse=True)
    by_factor = [power(target, factor, trials=8000, **told) for factor in FACTORS]
    assert by_factor == sorted(by_factor)
    # 20 audits of a noise for which half of them should fail: at least 3 do, but for a probability of 2e-4.
    at = next(trials for trials in range(1000, 20_000, 250) if power(target, 0.9, trials=trials, **told) > 0.5)
    broken = scaled_noise(0.9)
    assert isinstance(broken(target.mechanism), GNMax)
    assert sum(line(target, broken="noise-90", trials=at, seed=seed).failed for seed in range(20)) >= 3


def test_uniform_values_pass_and_a_correlation_of_a_tenth_does_not():
    rng = np.random.default_rng(0)
    uniform = rng.random((4000, 5, 3))
    assert min(each.p for each in seen_noise_evidence(uniform)) > 1e-4
    uniform[:, 1, 0] = np.where(rng.random(4000) < 0.1, uniform[:, 4, 2], uniform[:, 1, 0])
    assert min(each.p for each in seen_noise_evidence(uniform)) < 1e-6


def test_one_draw_in_5_000_without_noise_is_found_where_the_noise_is_seen():
    found = line(TARGETS["gnmax", "histogram"], broken="rare-noiseless", trials=60_000)
    assert found.failed
    assert "centre" in found.worst.family


def test_low_bits_of_honest_noise_raise_no_more_false_alarms_than_stated():
    """In 2,000 batches of integer noise, for each family: the least p-values are as rare as they say, or rarer."""
    rng, law = np.random.default_rng(11), noise_of_sources(3.0, sources=2)
    reach = law.reach
    values, chance = np.arange(-reach, reach + 1), law.masses / law.masses.sum()
    found = [low_bits_evidence(rng.choice(values, size=(60, 5), p=chance), law.masses) for _ in range(2000)]
    for family in zip(*found, strict=True):
        p = np.array([each.p for each in family])
        assert (p <= 0.05).mean() <= 0.05
        assert (p <= 0.005).mean() <= 0.005
