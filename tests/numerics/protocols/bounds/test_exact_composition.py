"""Exact composition against brute force, closed forms, fixed policies and published values."""

from functools import lru_cache
from math import sqrt

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.bounds.exact_composition import compose
from protocols.bounds.gaussian import gdp_delta
from protocols.bounds.label_cones import log_label_probabilities
from protocols.bounds.label_only import ORDERS, label_rdp
from protocols.bounds.label_pairs import PairKind, cone_law
from protocols.bounds.rdp import rdp_to_epsilon
from protocols.errors import InvalidInput
from tests.harness.refusals import refuses

LABEL, BIT = PairKind(3), PairKind(2)


@lru_cache(maxsize=8)
def composed(kind, shift, queries):
    return compose(kind, shift, queries=queries)


def pairs_of(kind, shift, *, points):
    """(P, Q), shapes [pairs, outcomes]: both directions of what one query can be, by a formula of its own."""
    if kind.classes == 2:
        at = np.linspace(-5, 5, 8 * points)
        p, q = scipy.special.ndtr(at), scipy.special.ndtr(at + sqrt(2) * shift)
        laws = np.stack([p, 1 - p], axis=1), np.stack([q, 1 - q], axis=1)
    else:
        x, y = (each.ravel() for each in np.meshgrid(*2 * [np.linspace(-5, 6, points)]))
        laws = tuple(np.exp(log_label_probabilities(*at)).T for at in ((x, y), (x - shift, y + shift)))
    return np.concatenate(laws), np.concatenate(laws[::-1])


def brute_force(kind, shift, queries, epsilons, *, points):
    """delta(epsilon) of an adversary who tries every pair at every node of the tree: a lower bound."""
    p, q = pairs_of(kind, shift, points=points)
    seen = (p > 1e-12) & (q > 1e-12)
    loss = np.where(seen, np.log(np.where(seen, p, 1.0) / np.where(seen, q, 1.0)), 0.0)
    p = np.where(seen, p, 0.0)

    def value(z, left):
        if left == 0:
            return np.maximum(0.0, -np.expm1(-z))
        # Between nodes a lower bound: U increases with z, and the node below is taken.
        nodes = np.linspace(z.min() - 6 * shift, z.max() + 6 * shift, 601) if left > 1 else None
        at = z[:, None, None] + loss
        if nodes is None:
            inner = np.maximum(0.0, -np.expm1(-at))
        else:
            table = value(nodes, left - 1)
            inner = table[np.clip(np.searchsorted(nodes, at, side="right") - 1, 0, None)]
        return (p * inner).sum(axis=2).max(axis=1)

    return np.array([value(np.array([-epsilon]), queries)[0] for epsilon in epsilons])


@pytest.mark.parametrize(
    ("kind", "shift", "queries"), [(BIT, 0.3, 1), (LABEL, 0.3, 1), (BIT, 0.2, 2), (LABEL, 0.4, 2), (LABEL, 0.2, 3)]
)
def test_few_queries_cost_no_less_than_brute_force_finds_and_little_more(kind, shift, queries):
    epsilons = np.array([0.0, 0.5, 1.0, 2.0]) * shift * sqrt(queries)
    least = brute_force(kind, shift, queries, epsilons, points=31)
    bound = composed(kind, shift, queries).delta(queries, epsilons)
    assert (bound >= least).all()
    # The tree takes the node below and knows a coarse grid of pairs; the bound shares curves among pairs.
    assert (bound <= 1.02 * least + 0.012 * shift).all()


@pytest.mark.parametrize("shift", [0.02, 0.5, 3.0])
def test_one_query_costs_the_largest_hockey_stick_divergence_of_the_family(shift):
    p, q = pairs_of(LABEL, shift, points=90)
    for epsilon in np.array([0.0, 1.0, 2.5]) * shift:
        exact = np.maximum(p - np.exp(epsilon) * q, 0.0).sum(axis=1).max()
        bound = composed(LABEL, shift, 1).delta(1, np.array([epsilon]))[0]
        assert exact <= bound <= 1.02 * exact + 1e-3 * shift


def balanced_bit_delta(shift, queries, epsilon):
    """Exact delta of a policy that asks the same balanced question between two classes each time: binomial."""
    p = scipy.special.ndtr(shift / sqrt(2))
    wins = np.arange(queries + 1)
    log_pmf = [
        scipy.special.gammaln(queries + 1) - scipy.special.gammaln(wins + 1) - scipy.special.gammaln(queries - wins + 1)
        + scipy.special.xlogy(wins, each) + scipy.special.xlogy(queries - wins, 1 - each)
        for each in (p, 1 - p)
    ]  # fmt: skip
    return float(np.maximum(np.exp(log_pmf[0]) - np.exp(epsilon + log_pmf[1]), 0.0).sum())


@settings(max_examples=12, deadline=None)
@given(st.floats(0.005, 1.0), st.integers(1, 900), st.floats(0.0, 3.0), st.sampled_from([BIT, LABEL]))
def test_no_bound_is_below_the_exact_delta_of_a_fixed_policy_or_above_gaussian_dp(shift, queries, deviations, kind):
    epsilon = min(deviations * 1.1 * shift * sqrt(queries), 20.0)
    bound = compose(kind, shift, queries=min(queries, 16)).delta(queries, np.array([epsilon]))[0]
    assert bound >= balanced_bit_delta(shift, queries, epsilon) * (1 - 1e-9)
    assert bound <= gdp_delta(np.array([shift * sqrt(2 * queries)]), np.array([epsilon]))[0]


def test_a_bit_of_200_queries_costs_the_published_epsilon_and_at_most_a_hundredth_more():
    found = composed(BIT, 0.05 / sqrt(2), 200).epsilon(200, 1e-5)
    # 2.296 of PRIVACY analyses with spacings .004 and .002, which agree to .002.
    assert 2.294 <= found <= 1.01 * 2.296


def test_the_queries_of_a_label_are_within_two_hundredths_of_the_published_numbers_and_never_more():
    for shift, epsilon, published in ((1 / 52.5, 2.0, 535), (1 / 40, 2.0, 310), (1 / 40, 3.0, 640)):
        found = composed(LABEL, shift, 700).queries(epsilon, 1e-5, limit=2000)
        assert 0.98 * published <= found <= published + 1


def test_a_share_of_ties_lies_between_the_label_and_gaussian_dp():
    epsilons = np.array([0.2, 0.5])
    plain, mixed = (composed(PairKind(3, ties), 0.1, 16).delta(16, epsilons) for ties in (0.0, 0.02))
    whole = gdp_delta(np.full(2, 0.1 * sqrt(32)), epsilons)
    assert (plain < mixed).all()
    assert (mixed < plain + 0.06 * (whole - plain)).all()


def test_the_law_of_the_cones_agrees_with_quadrature_where_noise_is_equal_in_both_axes():
    u, w = np.random.default_rng(5).uniform(-9, 9, (2, 4000))
    u[:3], w[:3] = (0.0, 1.0, 0.0), (0.0, -1.0, 2.0)
    exact = np.exp(log_label_probabilities((w + u) / sqrt(2), (w - u) / sqrt(2)))
    np.testing.assert_allclose(cone_law(u, w, 1.0), exact, rtol=0, atol=2e-15)


@pytest.mark.parametrize("shift", [0.0, -1.0, 6.1, float("nan")])
def test_a_shift_out_of_range_is_refused(shift):
    with refuses(InvalidInput, "shift"):
        compose(LABEL, shift, queries=1)


def test_large_shifts_and_many_queries_neither_overflow_nor_fall_below_a_fixed_policy():
    for shift, queries in ((6.0, 40), (2.0, 400), (1e-6, 300)):
        bound = composed(BIT, shift, 16).delta(queries, np.array([0.0, 1.0, 40.0]))
        assert (bound >= [balanced_bit_delta(shift, queries, e) * (1 - 1e-9) for e in (0.0, 1.0, 40.0)]).all()
        assert (bound <= 1).all()


def game_epsilon(kind, shift, queries, *, delta, lowest, points):
    """epsilon of the adaptive game played on a fine grid of losses with many pairs, without blocks or shared curves."""
    spacing = shift / 16
    p, q = (each.T for each in pairs_of(kind, shift, points=points))
    p, q = (each[:, ((p > 1e-15) & (q > 1e-15)).all(axis=0)] for each in (p, q))
    step, share = np.divmod(np.log(p / q) / spacing, 1.0)
    step = step.astype(int)
    lower = (np.exp(-spacing * share) - np.exp(-spacing)) / -np.expm1(-spacing)
    z = np.arange(lowest, 25.0, spacing)
    value, pad = np.maximum(0.0, -np.expm1(-z)), int(np.abs(step).max()) + 2
    for _ in range(queries):
        wide = np.concatenate([np.zeros(pad), value, np.full(pad, value[-1])])
        best = np.zeros_like(value)
        for at in range(p.shape[1]):
            asked = np.zeros_like(value)
            for outcome in range(p.shape[0]):
                start, weight = pad + step[outcome, at], lower[outcome, at]
                near, far = wide[start : start + len(z)], wide[start + 1 : start + 1 + len(z)]
                asked += p[outcome, at] * (weight * near + (1 - weight) * far)
            np.maximum(best, asked, out=best)
        value = best
    return -float(np.interp(np.log(delta), np.log(value[value > 0]), z[value > 0]))


@pytest.mark.parametrize(
    ("kind", "shift", "queries", "game", "above"),
    [
        (LABEL, 0.2, 20, 4.627, 0.008),
        (LABEL, 0.4, 20, 10.66, 0.012),
        (LABEL, 0.4, 30, 13.55, 0.022),
        (BIT, 0.3 / sqrt(2), 100, 12.67, 0.012),
        (BIT, 0.3 / sqrt(2), 200, 19.68, 0.061),
    ],
)
def test_what_is_charged_is_above_the_game_by_the_stated_share(kind, shift, queries, game, above):
    """The figures of docs/explanation/exact-composition.md, section 6, at delta 1e-5; filters take the least."""
    delta = 1e-5
    found = game_epsilon(kind, shift, queries, delta=delta, lowest=-2.3 * game, points=31)
    classes = 2 if kind is BIT else 3
    spend = queries * label_rdp(np.array([shift]), ORDERS, classes=classes)
    renyi = rdp_to_epsilon(spend, ORDERS, delta=np.full(len(ORDERS), delta))
    charged = min(composed(kind, shift, queries).epsilon(queries, delta), renyi.min())
    assert found == pytest.approx(game, rel=2e-3)
    assert charged / found - 1 == pytest.approx(above, abs=2e-3)
