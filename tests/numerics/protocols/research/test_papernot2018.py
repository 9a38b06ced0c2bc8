"""Papernot et al. 2018 against the vectors, the papers' votes, and straightforward high-precision formulas."""

import json
import os
import re
from pathlib import Path

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.papers.students import published_threshold_rdp
from protocols.bounds.rdp import rdp_to_epsilon, rdp_to_epsilon_mironov
from protocols.research.data_dependent import _log_q, answer_probability, total_label_rdp, total_threshold_rdp
from tests.harness.published import label_rdp

DOCS = Path(__file__).parents[4] / "docs"
VECTORS = Path(__file__).parents[3] / "vectors"
GNMAX = json.loads((VECTORS / "gnmax.json").read_text())
INDIVIDUALIZED = json.loads((VECTORS / "individualized.json").read_text())
ARRAYS = np.load(VECTORS / "individualized.npz")
ONE = np.ones(1)


@pytest.mark.parametrize("row", GNMAX["rows"], ids=lambda row: f"{row['h']}-{row['sigma']:g}")
def test_costs_and_q_are_those_of_the_vectors(row):
    counts, sigma = np.array([GNMAX["hist"][row["h"]]], float), float(row["sigma"])
    assert _log_q(counts, sigma)[0] == pytest.approx(row["logq"], rel=1e-12)
    cost = label_rdp(counts, np.array(GNMAX["orders"]), sigma=sigma, sensitivity=ONE)[0, 0]
    # Below 1e-14 the reference holds rounding, not figures.
    np.testing.assert_allclose(cost, row["rdp"], rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("name", list(INDIVIDUALIZED["results"]))
def test_totals_at_individual_sensitivity_are_those_of_individualized_pate(name):
    row = INDIVIDUALIZED["results"][name]
    votes = ARRAYS["weight_50_50_votes" if name.startswith("weight") else "GNMax_votes"]
    orders, answered = ARRAYS["orders"], ARRAYS["answered"].astype(float)
    units = np.array(row["sensitivities_last"])
    threshold = len(votes) * published_threshold_rdp(orders, sigma_threshold=150.0, sensitivity=units)
    tight = total_label_rdp(votes, orders, sigma=40.0, sensitivity=units, times=answered).for_research() + threshold
    loose = threshold + answered.sum() * orders * (units[:, None] / 40.0) ** 2
    np.testing.assert_allclose(tight, ARRAYS[f"{name}_rdp_total_tight"], rtol=1e-9)
    np.testing.assert_allclose(loose, ARRAYS[f"{name}_rdp_total_loose"], rtol=1e-9)
    epsilon = rdp_to_epsilon_mironov(tight, orders[None, :], delta=1e-5)
    np.testing.assert_allclose(epsilon.min(axis=1), [value for value, _ in row["eps_tight_classic"]], rtol=1e-9)


@pytest.mark.parametrize(
    ("name", "terms", "queries", "answered", "epsilon", "order"),
    [("mnist", (200.0, 150.0, 40.0), 640, 282.7, 2.00, 14.0), ("adult", (300.0, 200.0, 40.0), 1500, 538.3, 1.68, 15.5)],
)
def test_the_papers_votes_give_the_papers_expected_figures(name, terms, queries, answered, epsilon, order):
    path = Path(os.environ.get("CONCLAVE_DATA", "")) / "pate_votes" / "pate2018" / f"{name}_250_teachers.npy"
    if not path.exists():
        pytest.skip("CONCLAVE_DATA has no pate_votes")
    counts = np.load(path)[:queries]
    threshold, sigma_threshold, sigma = terms
    orders = np.arange(2.0, 100.0, 0.5)
    top = counts.max(axis=1)
    passes = answer_probability(top, sigma_threshold=sigma_threshold, threshold=threshold).for_research()
    total = total_label_rdp(counts, orders, sigma=sigma, sensitivity=ONE, times=passes).for_research()[0]
    total += total_threshold_rdp(
        top, orders, sigma_threshold=sigma_threshold, threshold=threshold, sensitivity=ONE
    ).for_research()[0]
    classic = rdp_to_epsilon_mironov(total, orders, delta=1e-5)
    assert passes.sum() == pytest.approx(answered, abs=0.05)
    assert round(classic.min(), 2) == epsilon
    assert orders[classic.argmin()] == order
    # By both conversions, as the page on stored votes states them.
    tight = rdp_to_epsilon(total, orders, delta=np.full(len(orders), 1e-5)).min()
    said = re.search(
        r"epsilon ([\d.]+) at order 14 on MNIST .* and ([\d.]+) at 15.5 on Adult "
        r".*the same costs are ([\d.]+) and ([\d.]+)\.",
        " ".join((DOCS / "how-to" / "replay-stored-votes.md").read_text(encoding="utf-8").split()),
    )
    assert said is not None
    stated = {"mnist": said.group(1, 3), "adult": said.group(2, 4)}[name]
    assert stated == (f"{classic.min():.3f}", f"{tight:.3f}")
    assert rdp_to_epsilon(total, orders, delta=1e-5).min() < classic.min()


def theorem_6(counts, sigma, order):
    """One query at sensitivity 1, straight from the paper in 400 digits."""
    with mpmath.workdps(400):
        n, s, a = [mpmath.mpf(x) for x in counts], mpmath.mpf(sigma), mpmath.mpf(order)
        top = max(range(len(n)), key=lambda i: n[i])
        q = sum(mpmath.erfc((n[top] - x) / (2 * s)) for i, x in enumerate(n) if i != top) / 2
        return theorem_6_at(min(q, 1 - mpmath.mpf(1) / len(n)), s, a)


def theorem_6_of_a_test(top, threshold, sigma_threshold, order):
    """One threshold test at sensitivity 1: the theorem at sqrt(2) sigma_threshold and the rarer outcome's q."""
    with mpmath.workdps(400):
        s = mpmath.mpf(sigma_threshold)
        q = mpmath.ncdf(-abs(mpmath.mpf(top) - mpmath.mpf(threshold)) / s)
        return theorem_6_at(q, mpmath.sqrt(2) * s, mpmath.mpf(order))


def theorem_6_at(q, s, a):
    with mpmath.workdps(400):
        worst = a / s**2
        mu2 = s * mpmath.sqrt(-mpmath.log(q))
        mu1 = mu2 + 1
        e1, e2 = mu1 / s**2, mu2 / s**2
        if not (a < mu1 and mu2 > 1 and q * mpmath.exp(e2) < 1):
            return float(worst)
        if q > mpmath.exp((mu2 - 1) * e2) / ((mu1 / (mu1 - 1)) * (mu2 / (mu2 - 1))) ** mu2:
            return float(worst)
        big_a = (1 - q) / (1 - (q * mpmath.exp(e2)) ** ((mu2 - 1) / mu2))
        big_b = mpmath.exp(e1) * q ** (-1 / (mu1 - 1))
        bound = mpmath.log((1 - q) * big_a ** (a - 1) + q * big_b ** (a - 1)) / (a - 1)
        return float(min(bound, worst))


@settings(deadline=None, max_examples=80)
@given(
    counts=st.lists(st.integers(0, 400), min_size=2, max_size=8),
    sigma=st.floats(0.5, 200),
    order=st.floats(1.01, 200),
    weight=st.floats(0.2, 3),
)
def test_every_query_costs_what_the_theorem_says_in_400_digits(counts, sigma, order, weight):
    """At weight s the theorem is that of counts and noise with sigma/s, but for q, which keeps the actual ones."""
    mine = label_rdp(np.array([counts], float), np.array([order]), sigma=sigma, sensitivity=ONE)
    assert mine[0, 0, 0] == pytest.approx(theorem_6(counts, sigma, order), rel=1e-9, abs=1e-290)
    # Scaling votes, weight and noise together changes nothing.
    scaled = label_rdp(
        weight * np.array([counts], float), np.array([order]), sigma=weight * sigma, sensitivity=weight * ONE
    )
    assert scaled[0, 0, 0] == pytest.approx(mine[0, 0, 0], rel=1e-7, abs=1e-290)


tested = st.tuples(st.integers(0, 400), st.floats(-100, 600), st.floats(0.5, 300), st.floats(1.01, 200))


@settings(deadline=None, max_examples=60)
@given(test=tested, weight=st.floats(0.2, 3))
def test_every_threshold_test_costs_what_the_theorem_says_in_400_digits(test, weight):
    top, threshold, sigma, order = test
    mine = threshold_test_rdp(top, threshold, sigma, order)
    assert mine == pytest.approx(theorem_6_of_a_test(top, threshold, sigma, order), rel=1e-9, abs=1e-290)
    scaled = threshold_test_rdp(weight * top, weight * threshold, weight * sigma, order, weight)
    assert scaled == pytest.approx(mine, rel=1e-7, abs=1e-290)


@settings(deadline=None, max_examples=200)
@given(test=tested, weight=st.floats(0.2, 3))
def test_a_threshold_test_costs_at_least_its_divergence_from_both_neighbours_and_at_most_the_worst_case(test, weight):
    """A moved vote shifts the maximum by at most its weight; in the direction D(M(D) || M(D')) that is bounded."""
    top, threshold, sigma, order = test
    bound = threshold_test_rdp(top, threshold, sigma, order, weight)
    worst = published_threshold_rdp(np.array([order]), sigma_threshold=sigma, sensitivity=weight * ONE)[0, 0]
    assert bound <= worst * (1 + 1e-12)
    for moved in (-weight, weight):
        with mpmath.workdps(60):
            here, there = (mpmath.mpf(top + shift - threshold) / sigma for shift in (0.0, moved))
            each = (mpmath.ncdf(sign * here) ** order * mpmath.ncdf(sign * there) ** (1 - order) for sign in (1, -1))
            divergence = mpmath.log(sum(each)) / (order - 1)
        assert float(divergence) <= bound * (1 + 1e-9) + 1e-50


def threshold_test_rdp(top, threshold, sigma_threshold, order, weight=1.0):
    total = total_threshold_rdp(
        np.array([float(top)]), np.array([order]), sigma_threshold=sigma_threshold, threshold=threshold,
        sensitivity=weight * ONE,
    )  # fmt: skip
    return total.for_research()[0, 0]


@settings(deadline=None, max_examples=40)
@given(
    sigma=st.sampled_from([0.5, 3.0, 1e2, 1e4]),
    classes=st.sampled_from([2, 10, 1000, 10_000]),
    scale=st.sampled_from([1.0, 250.0, 1e6]),
    seed=st.integers(0, 99),
)
def test_the_whole_numerical_range_is_finite_and_never_above_the_gaussian_bound(sigma, classes, scale, seed):
    counts = scale * np.random.default_rng(seed).dirichlet(np.full(classes, 0.05), size=3)
    orders, units = np.array([1.01, 2.0, 50.0, 1024.0]), np.array([0.01, 1.0, 300.0])
    cost = label_rdp(counts, orders, sigma=sigma, sensitivity=units)
    assert np.isfinite(cost).all()
    assert (cost >= 0).all()
    assert (cost <= orders * (units[:, None, None] / sigma) ** 2).all()
    assert (_log_q(counts, sigma) < 0).all()
