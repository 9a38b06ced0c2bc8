"""Smooth sensitivity: vectors, one vote at a time, every neighbour of small electorates, laws and range."""

import itertools
import json
import os
from math import exp, log
from pathlib import Path

import mpmath
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri_exp

from benchmarks import smooth as module
from benchmarks.smooth import (
    VoteSetting,
    critical_points,
    distance_bounds,
    gnmax_curve,
    gnmax_rdp,
    smooth_sensitivity,
)
from benchmarks.smooth_sensitivity import straightforward_bounds
from protocols.errors import InvalidInput
from protocols.research.private import Private

VECTORS = json.loads((Path(__file__).parents[3] / "vectors" / "smooth_sensitivity.json").read_text())
VOTES = Path(os.environ.get("CONCLAVE_DATA", "")) / "pate_votes" / "pate2018"
needs_data = pytest.mark.skipif(not VOTES.is_dir(), reason="CONCLAVE_DATA has no pate_votes")
HOLDS = [row for row in VECTORS["rows"] if all(row.get("C5_C6", [False]))]
FAILS = [row for row in VECTORS["rows"] if row not in HOLDS]


def vote_setting(sigma, order, classes, weights, sensitivity=1.0):
    return VoteSetting(
        sigma=sigma, order=order, classes=classes, weights=np.array(weights, float), sensitivity=sensitivity
    )


def row_setting(row):
    return vote_setting(row["sigma"], row["order"], row["classes"], np.ones(row["teachers"]))


def bounds_of(counts, setting, answered=None):
    counts = np.atleast_2d(np.asarray(counts, float))
    return distance_bounds(
        counts, setting, answered=np.ones(len(counts)) if answered is None else answered
    ).for_research()


def name(row):
    return f"{row['h']}-sigma={row['sigma']}-order={row['order']}"


@pytest.mark.parametrize("row", HOLDS, ids=name)
def test_bounds_and_smooth_sensitivities_equal_the_reference(row):
    setting, counts = row_setting(row), np.array([VECTORS["hist"][row["h"]]], float)
    points = critical_points(setting)
    assert (points.c5, points.c6) == (True, True)
    reference = [row["logq0"], row["logq1"], row["plateau"]]
    np.testing.assert_allclose([points.log_q0, points.log_q1, points.plateau], reference, rtol=2e-11)
    bounds = distance_bounds(counts, setting, answered=np.ones(1))
    shown = bounds.for_research()
    np.testing.assert_allclose(shown[: len(row["A_first_20"])], row["A_first_20"], rtol=2e-11)
    np.testing.assert_allclose(shown[[0, row["teachers"] - 1]], [row["ls0"], row["A_last"]], rtol=2e-11)
    for case in row["SS"].values():
        np.testing.assert_allclose(smooth_sensitivity(bounds, beta=case["beta"]).for_research(), case["SS"], rtol=2e-11)


@pytest.mark.parametrize("row", FAILS, ids=name)
def test_where_the_reference_fails_or_a_condition_does_the_condition_is_named(row):
    setting, counts = row_setting(row), np.array([VECTORS["hist"][row["h"]]], float)
    if "reference_error" not in row:
        points = critical_points(setting)
        assert [points.c5, points.c6] == row["C5_C6"]
        reference = [row["logq0"], row["logq1"], row["plateau"]]
        np.testing.assert_allclose([points.log_q0, points.log_q1, points.plateau], reference, rtol=2e-11)
    for function in (distance_bounds, gnmax_rdp):
        with pytest.raises(InvalidInput, match=r"condition C6 .* allowed: a larger sigma or a smaller order"):
            function(counts, setting, answered=np.ones(1))


def mp_curve(sigma, order, classes):
    """Theorem 6 and B_U as the paper writes them, in 60 digits."""
    mpmath.mp.dps = 60
    sigma, order, others = mpmath.mpf(sigma), mpmath.mpf(order), mpmath.mpf(classes - 1)

    def cost(q):
        mu2 = sigma * mpmath.sqrt(mpmath.log(1 / q))
        mu1 = mu2 + 1
        e1, e2 = mu1 / sigma**2, mu2 / sigma**2
        a = (1 - q) / (1 - (q * mpmath.exp(e2)) ** ((mu2 - 1) / mu2))
        b = mpmath.exp(e1) / q ** (1 / (mu1 - 1))
        return mpmath.log((1 - q) * a ** (order - 1) + q * b ** (order - 1)) / (order - 1)

    def upper(z):
        """B_U at q = others * Phi(-z)."""
        return others * mpmath.erfc((z - mpmath.sqrt(2) / sigma) / mpmath.sqrt(2)) / 2

    return cost, upper, lambda z: others * mpmath.erfc(z / mpmath.sqrt(2)) / 2


@pytest.mark.parametrize(("sigma", "order", "classes"), [(0.6, 1.2, 2), (40, 14, 10), (1e4, 2, 10_000), (100, 60, 3)])
def test_the_curve_and_its_steps_agree_with_sixty_digits(sigma, order, classes):
    curve = gnmax_curve(noise=float(sigma), step=1 / sigma, order=float(order), classes=classes)
    cost, upper, q_of = mp_curve(sigma, order, classes)
    z1 = -ndtri_exp(curve.points.log_q1 - log(classes - 1))
    for z in (z1 * 1.001, z1 * 1.2, z1 * 2, z1 * 4):
        z = mpmath.mpf(z)
        log_q = np.array([float(mpmath.log(q_of(z)))])
        # q is passed as the float64 of its logarithm, which alone costs |ln q| 1e-16 relative.
        q = mpmath.exp(mpmath.mpf(log_q[0]))
        assert curve.cost(log_q)[0] == pytest.approx(float(cost(q)), rel=1e-12)
        climb = float(cost(upper(z)) - cost(q))
        assert curve.climb(log_q)[0] == pytest.approx(climb, rel=1e-9)


@pytest.mark.parametrize(
    ("sigma", "order", "classes", "c6"),
    [
        (20, 25, 10, False),
        (30, 25, 10, True),
        (2, 8, 3, False),
        (3, 2, 3, True),
        (40, 60, 2, False),
        (200, 60, 2, True),
    ],
)
def test_conditions_agree_with_derivatives_of_sixty_digits(sigma, order, classes, c6):
    """The first two rows are those of the authors' own test."""
    curve = gnmax_curve(noise=float(sigma), step=1 / sigma, order=float(order), classes=classes)
    assert (curve.points.c5, curve.points.c6) == (True, c6)
    cost, upper, q_of = mp_curve(sigma, order, classes)
    z1 = mpmath.mpf(-ndtri_exp(curve.points.log_q1 - log(classes - 1)))
    falls = [z1 * (1 + mpmath.mpf(k) ** 2 / 300) + mpmath.mpf("1e-6") for k in range(30)]
    slopes = [mpmath.diff(lambda z: cost(upper(z)) - cost(q_of(z)), z) for z in falls]
    assert all(mpmath.diff(lambda z: cost(q_of(z)), z) < 0 for z in falls)
    # q falls in z, so C6 says that every slope in z is <= 0.
    assert all(slope <= 0 for slope in slopes) == c6


histograms = st.lists(st.integers(0, 60), min_size=4, max_size=4).filter(lambda h: sum(h) > 0)


@given(
    rows=st.lists(histograms, min_size=1, max_size=4), sigma=st.floats(4, 40), order=st.floats(1.1, 6),
    answered=st.lists(st.floats(0, 2), min_size=4, max_size=4),
)  # fmt: skip
@settings(max_examples=40)
def test_bounds_equal_those_of_one_query_and_one_vote_at_a_time(rows, sigma, order, answered):
    total = max(map(sum, rows))
    counts = np.array([[row[0] + total - sum(row), *row[1:]] for row in rows], float)
    setting = vote_setting(sigma, order, 4, np.ones(total))
    points = critical_points(setting)
    assume(points.c5 and points.c6)
    weight = np.array(answered[: len(rows)])
    slow = np.zeros(total + 1)
    for histogram, share in zip(counts, weight, strict=True):
        slow += share * np.array(straightforward_bounds(list(histogram), sigma=sigma, order=order, teachers=total))
    np.testing.assert_allclose(bounds_of(counts, setting, weight), slow, rtol=1e-9, atol=1e-300)


def electorate(weights, classes):
    """Every way in which units of these weights vote or abstain, and which pairs of ways differ in one unit."""
    choices = np.array(list(itertools.product(range(classes + 1), repeat=len(weights))))
    counts = np.stack([(weights * (choices == one)).sum(axis=1) for one in range(classes)], axis=1)
    return choices, counts


@pytest.mark.parametrize(
    ("weights", "classes", "sigma", "order", "sensitivity"),
    [
        (np.ones(6), 2, 1.3, 1.5, 1.0),
        (np.ones(5), 3, 1.0, 1.2, 1.0),
        (np.full(6, 2.5), 2, 2.5, 1.2, 2.5),
        (np.array([1.0, 0.7, 1.3, 2.0, 0.1]), 2, 1.1, 1.3, 1.0),
        (np.array([1.0, 0.3, 1.7, 2.0]), 3, 1.1, 1.3, 0.6),
    ],
)
def test_every_neighbour_of_every_small_electorate_is_covered(weights, classes, sigma, order, sensitivity):
    """f moves by at most A(0); A(d) covers all votes within distance d; SS does not grow by more than e^beta."""
    setting = vote_setting(sigma, order, classes, weights, sensitivity)
    choices, counts = electorate(weights, classes)
    distinct, member = np.unique(np.sort(counts, axis=1), axis=0, return_inverse=True)
    f = np.array([gnmax_rdp(row[None], setting, answered=np.ones(1)).for_research() for row in distinct])
    f, bounds = f[member.ravel()], np.array([bounds_of(row, setting) for row in distinct])[member.ravel()]
    # The electorate reaches from the data-dependent side of the curve to the other.
    assert f.min() < 0.5 * f.max()
    distance = (choices[:, None, :] != choices[None, :, :]).sum(axis=2)
    change = np.where(distance == 1, np.abs(f[:, None] - f[None, :]), 0.0).max(axis=1)
    slack = 1e-12 * f.max()
    for d in range(len(weights) + 1):
        reach = np.where(distance <= d, change[None, :], 0.0).max(axis=1)
        assert (reach <= bounds[:, d] + slack).all()
    first, second = np.nonzero(distance == 1)
    assert (bounds[first, :-1] <= bounds[second, 1:] + slack).all()
    betas = np.array([0.05, 0.3, 1.0])
    smooth = np.array([smooth_sensitivity(Private(bound), beta=betas).for_research() for bound in bounds])
    for beta, ss in zip(betas, smooth.T, strict=True):
        assert (ss[first] <= exp(beta) * ss[second] * (1 + 1e-12)).all()
        assert (change <= ss * (1 + 1e-12)).all()


@given(
    seed=st.integers(0, 2**32), sigma=st.floats(0.3, 1.2), order=st.floats(1.05, 1.6), distance=st.integers(0, 4),
)  # fmt: skip
@settings(max_examples=60)
def test_units_that_split_their_votes_are_covered(seed, sigma, order, distance):
    """Random weights and splits; `distance` units change, then one more."""
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0.1, 1.0, size=5)
    setting = vote_setting(sigma, order, 3, weights, rng.uniform(0.2, 1.0))
    assume(critical_points(setting).c6)
    votes = [weights[:, None] * rng.dirichlet(np.full(4, 0.2), size=5)[:, :3] for _ in range(3)]
    steps, chosen = [votes[0]], rng.permutation(5)
    for unit in chosen[: distance + 1]:
        steps.append(steps[-1].copy())
        steps[-1][unit] = votes[rng.integers(1, 3)][unit]
    counts = [step.sum(axis=0) for step in steps]
    f = [gnmax_rdp(row[None], setting, answered=np.ones(1)).for_research() for row in counts]
    bounds = [bounds_of(row, setting) for row in counts]
    assert abs(f[-1] - f[-2]) <= bounds[0][distance] * (1 + 1e-12)
    assert (bounds[-2][:-1] <= bounds[-1][1:] * (1 + 1e-12)).all()
    assert (bounds[-1][:-1] <= bounds[-2][1:] * (1 + 1e-12)).all()


@given(counts=st.lists(histograms, min_size=1, max_size=3), weight=st.floats(0.1, 50), order=st.floats(1.1, 4))
@settings(max_examples=30)
def test_equal_weights_are_unweighted_votes_with_less_noise(counts, weight, order):
    plain, weighted = np.array(counts, float), np.array(counts, float) * weight
    one = vote_setting(20.0, order, 4, np.ones(240))
    many = vote_setting(20.0 * weight, order, 4, np.full(240, weight), weight)
    np.testing.assert_allclose(bounds_of(weighted, many), bounds_of(plain, one), rtol=1e-9, atol=1e-300)


@given(counts=histograms, order=st.floats(1.1, 4), extra=st.floats(0.01, 0.99))
@settings(max_examples=30)
def test_votes_that_may_be_split_have_bounds_no_lower_than_whole_ones(counts, order, extra):
    whole = bounds_of(counts, vote_setting(12.0, order, 4, np.ones(240)))
    split = bounds_of(counts, vote_setting(12.0, order, 4, [*np.ones(240), extra]))
    assert (split[:-1] >= whole * (1 - 1e-12)).all()


@given(rows=st.lists(histograms, min_size=2, max_size=5), beta=st.floats(0.01, 1), seed=st.integers(0, 99))
@settings(max_examples=30)
def test_bounds_add_over_queries_do_not_depend_on_order_and_do_not_fall_with_distance(rows, beta, seed):
    setting, counts, rng = vote_setting(10.0, 3.0, 4, np.ones(240)), np.array(rows, float), np.random.default_rng(seed)
    together = bounds_of(counts, setting)
    shuffled = rng.permuted(counts, axis=1)[rng.permutation(len(counts))]
    np.testing.assert_allclose(bounds_of(shuffled, setting), together, rtol=1e-12)
    np.testing.assert_allclose(sum(bounds_of(row, setting) for row in counts), together, rtol=1e-12)
    assert (np.diff(together) >= -1e-12 * together[1:]).all()
    ss = smooth_sensitivity(Private(together), beta=np.array([beta, 2 * beta])).for_research()
    assert together[0] <= ss[1] <= ss[0] <= together[-1]


def test_memory_is_bounded_by_chunks_that_change_nothing(monkeypatch):
    counts = np.random.default_rng(0).multinomial(60, [0.7, 0.2, 0.05, 0.05], size=50).astype(float)
    setting = vote_setting(6.0, 3.0, 4, np.ones(60))
    whole = bounds_of(counts, setting)
    monkeypatch.setattr(module, "_CHUNK", 70)
    np.testing.assert_allclose(bounds_of(counts, setting), whole, rtol=1e-12)


@pytest.mark.parametrize("order", [1 + 1e-6, 1.5, 20, 1024])
@pytest.mark.parametrize(("sigma", "total"), [(0.5, 40), (40, 250), (1e4, 1_000_000)])
@pytest.mark.parametrize("classes", [2, 10_000])
def test_the_whole_range_gives_finite_bounds_or_names_a_condition(sigma, total, classes, order):
    """Warnings are errors here: nothing overflows."""
    top = np.array([0.5, 0.6, 0.9, 1.0]) * total
    counts = np.zeros((4, classes))
    counts[:, 0], counts[:, 1] = np.ceil(top), total - np.ceil(top)
    setting = vote_setting(sigma, order, classes, np.ones(total))
    points = critical_points(setting)
    if not (points.c5 and points.c6):
        assert order >= 20
        with pytest.raises(InvalidInput, match="condition C"):
            bounds_of(counts, setting)
        return
    bounds = bounds_of(counts, setting)
    assert np.isfinite(bounds).all()
    assert (bounds >= 0).all()
    assert bounds[-1] == pytest.approx(4 * critical_points(setting).plateau, rel=1e-9)
    assert len(bounds) == min(total, 20_000) + 1


@needs_data
@pytest.mark.parametrize(
    ("votes", "queries", "threshold", "sigma1", "order", "lam_beta", "epsilon", "ss"),
    [("mnist", 640, 200, 150, 14.0, 0.46, 2.00, 0.0618), ("adult", 1500, 300, 200, 15.5, 0.48, 1.68, 0.0332)],
)
def test_the_papers_table_2_is_reproduced_on_the_papers_votes(
    votes, queries, threshold, sigma1, order, lam_beta, epsilon, ss
):
    """Expected answers, as the authors weigh; the threshold charged in full; to the digits that were printed."""
    counts = np.load(VOTES / f"{votes}_250_teachers.npy")[:queries]
    setting = vote_setting(40, order, counts.shape[1], np.ones(250))
    answered = ndtr((counts.max(axis=1) - threshold) / sigma1)
    answers = gnmax_rdp(counts, setting, answered=answered).for_research()
    assert answers + queries * order / (2 * sigma1**2) + log(1e5) / (order - 1) == pytest.approx(epsilon, abs=0.005)
    bounds = distance_bounds(counts, setting, answered=answered)
    assert smooth_sensitivity(bounds, beta=lam_beta / order).for_research()[0] == pytest.approx(ss, abs=1.5e-4)
