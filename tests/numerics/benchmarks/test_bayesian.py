"""The Bayesian accountant: against the vectors, mpmath, and the laws it must obey."""

import json
from pathlib import Path

import mpmath
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import binom
from scipy.stats import t as student_t

from benchmarks.bayesian import BayesianCurve, bayesian_cost, bounded_cost
from protocols.errors import InvalidInput
from tests.harness.refusals import refuses

RECORDS = json.loads((Path(__file__).parents[2] / "vectors" / "bayesian.json").read_text())["records"]
SAMPLED = [record for record in RECORDS if "lmu" in record]
POWERS = np.array([1.0, 2.0, 4.0, 8.0])


def one_step(apart, record, *, both):
    """x = l D_{l+1} of a step of the subsampled Gaussian at whole l (Triastcyn & Faltings 2020, Theorem 3).

    `both` takes the larger of the two directions; without it the left one alone, as the published program does.
    """
    c = ((np.array(apart) / record["sigma"]) ** 2).sum(axis=1)[:, None] / 2

    def moment(trials, sign):
        k = np.arange(trials + 1)
        return logsumexp(binom.logpmf(k, trials, record["q"]) + (k * k + sign * k) * c, axis=1)

    found = [np.maximum(moment(n + 1, -1), moment(n, 1) if both else 0.0) for n in record["powers"]]
    return np.stack(found, axis=1)


def curve(record, *, both):
    x = record["steps"] * one_step(np.subtract(record["lmu"], record["rmu"]), record, both=both)
    powers = np.array(record["powers"], dtype=np.float64)
    one = bayesian_cost(x, powers, total=record["total"], confidence=1 - record["conf_minus"]).for_research()
    return one * (record["total"] // record["steps"])


def cost(samples, **changes):
    given = {"total": 1, "confidence": 0.99, **changes}
    return bayesian_cost(samples, POWERS[: samples.shape[1]], **given).for_research()


@pytest.mark.parametrize("record", SAMPLED)
@pytest.mark.parametrize(("both", "field"), [(False, "cost_float64_independent"), (True, "cost_with_right_direction")])
def test_costs_agree_with_the_vectors(record, both, field):
    ours = curve(record, both=both)
    np.testing.assert_allclose(ours.costs, record[field], rtol=1e-9)
    assert ours.log_confidence == pytest.approx(record["logconf"], rel=1e-9)


@pytest.mark.parametrize("record", SAMPLED)
def test_epsilon_and_delta_follow_from_the_costs_as_the_vectors_say(record):
    ours = curve(record, both=False)
    if record["eps_at_delta_1e_5"] is None:
        with refuses(InvalidInput, "product of the confidences"):
            ours.to_epsilon(delta=1e-5)
    else:
        # The published program computes in float32.
        assert ours.to_epsilon(delta=1e-5)[0] == pytest.approx(record["eps_at_delta_1e_5"], rel=2e-6)


def test_the_closed_form_of_the_worst_case_agrees_with_the_vectors():
    (record,) = [record for record in RECORDS if "lmu" not in record]
    powers = np.array(record["powers"], dtype=np.float64)
    x = one_step([[record["sensitivity"]]], record, both=False)
    steps = record["steps"]
    total = BayesianCurve(powers, steps * x[0], 0.0, steps, steps, np.zeros(len(powers)))
    np.testing.assert_allclose(total.costs, record["cost_reference"], rtol=1e-9)
    assert total.to_epsilon(delta=1e-5)[0] == pytest.approx(record["eps_at_delta_1e_5"], rel=1e-9)


@pytest.mark.parametrize("scale", [1e-9, 1e-3, 1.0, 200.0, 1e6])
@pytest.mark.parametrize("total", [1, 7, 10_000])
def test_the_estimator_agrees_with_mpmath_at_every_scale(scale, total):
    samples = scale * np.random.default_rng(1).random((12, 3))
    ours = cost(samples, total=total, confidence=1 - 1e-9).costs
    with mpmath.workdps(60):
        quantile = mpmath.mpf(float(student_t.isf(1 - (1 - 1e-9), 11)))
        for column, value in enumerate(ours):
            e = [mpmath.exp(total * mpmath.mpf(float(x))) for x in samples[:, column]]
            mean = sum(e) / 12
            sd = mpmath.sqrt(sum((v - mean) ** 2 for v in e) / 12)
            expected = mpmath.log(mean + quantile / mpmath.sqrt(11) * sd) / total
            assert value == pytest.approx(float(expected), rel=1e-9)


def too_small_with_probability(pairs, share, x, estimate):
    """Of all outcomes of sampling a pair that costs x with probability `share`, those whose estimate is too small."""
    true = np.log1p(share * np.expm1(x))
    fails = [estimate(k) < true for k in range(pairs + 1)]
    return binom.pmf(np.arange(pairs + 1), pairs, share)[fails].sum()


@pytest.mark.parametrize(("pairs", "share", "x"), [(20, 0.01, 5.0), (100, 0.05, 3.0), (100, 0.001, 8.0)])
def test_a_bounded_cost_is_large_enough_as_often_as_it_says_and_an_estimated_one_is_not(pairs, share, x):
    failure = 1e-4

    def estimated(k):
        samples = np.where(np.arange(pairs) < k, x, 0.0)[:, None]
        return cost(samples, confidence=1 - failure).costs[0]

    def bounded(k):
        return bounded_cost(k, pairs, np.array([x]), POWERS[:1], confidence=1 - failure).for_research().costs[0]

    assert too_small_with_probability(pairs, share, x, bounded) <= failure
    assert too_small_with_probability(pairs, share, x, estimated) > 50 * failure
