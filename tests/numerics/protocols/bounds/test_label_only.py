"""The public bounds: vectors, laws, exact divergences of histograms, refusals."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_ndtr, logsumexp

from protocols.bounds.label_only import ORDERS, label_rdp, threshold_rdp
from protocols.errors import InvalidInput
from tests.harness.refusals import refuses

VECTORS = json.loads((Path(__file__).parents[3] / "vectors" / "label_only.json").read_text())["rows"]
NODES = np.linspace(-12.0, 12.0, 1201)


def log_label_law(counts):
    """log-probability of each class under GNMax: trapezoid over the winner's noise, exact to 1e-14."""
    counts = np.asarray(counts, dtype=float)
    gaps = counts[:, None] - counts[None, :]
    np.fill_diagonal(gaps, np.inf)
    others = log_ndtr(NODES[:, None, None] + gaps).sum(axis=2)
    return logsumexp(others - NODES[:, None] ** 2 / 2, axis=0) + np.log(NODES[1] - NODES[0]) - np.log(2 * np.pi) / 2


def renyi(log_p, log_q, order):
    return logsumexp(order * log_p - (order - 1) * log_q) / (order - 1)


@pytest.mark.parametrize("row", VECTORS, ids=lambda row: f"d={row['w_over_sigma']}-order={row['alpha']}")
def test_bounds_lie_just_above_the_reference_values(row) -> None:
    d, order = row["w_over_sigma"], float(row["alpha"])
    label2, label3 = (float(label_rdp(d, order, classes=classes)) for classes in (2, 3))
    assert threshold_rdp(d, order) == pytest.approx(row["threshold"], rel=5e-4)
    assert threshold_rdp(d, order) >= row["threshold"] * (1 - 1e-6)
    assert label2 == pytest.approx(row["label2"], rel=5e-4)
    assert label2 >= row["label2"] * (1 - 1e-6)
    assert label3 == pytest.approx(row["label3"], rel=5e-4)
    assert label3 >= row["label3"] * (1 - 1e-6)


shifts = st.floats(-5.0, 0.6).map(lambda x: 10**x)
grid_orders = st.sampled_from([float(order) for order in ORDERS])
any_orders = st.one_of(grid_orders, st.floats(-1.5, 2.2).map(lambda x: 1 + 10**x))


@given(
    gaps=st.lists(st.floats(-6, 6), min_size=2, max_size=10), shift=st.floats(-2.5, 0.3).map(lambda x: 10**x),
    order=any_orders,
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_no_histogram_costs_more_than_the_bound_when_one_vote_moves(gaps, shift, order) -> None:
    counts = np.array(gaps)
    moved = counts + shift * (np.eye(len(gaps))[1] - np.eye(len(gaps))[0])
    before, after = log_label_law(counts), log_label_law(moved)
    bound = float(label_rdp(shift, order, classes=len(gaps)))
    # The quadrature's own error, 1e-14, weighs the more the nearer the order is to one.
    slack = 1e-12 * order / (order - 1)
    assert renyi(before, after, order) <= bound * (1 + 1e-9) + slack
    assert renyi(after, before, order) <= bound * (1 + 1e-9) + slack


@given(
    gaps=st.lists(st.floats(-4, 4), min_size=3, max_size=6), shift=st.floats(-1.5, 0.3).map(lambda x: 10**x),
    order=any_orders, seed=st.integers(0, 2**32),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_several_votes_of_one_unit_cost_no_more_than_one_of_their_total_weight(gaps, shift, order, seed) -> None:
    """A unit of total weight `shift` spreads it over classes and abstention in any two ways."""
    rng, counts = np.random.default_rng(seed), np.array(gaps)
    spread = shift * rng.dirichlet(np.full(len(gaps) + 1, 0.5), size=2)[:, :-1]
    before, after = log_label_law(counts + spread[0]), log_label_law(counts + spread[1])
    bound = float(label_rdp(shift, order, classes=len(gaps)))
    assert renyi(before, after, order) <= bound * (1 + 1e-9) + 1e-12 * order / (order - 1)


def test_the_worst_histograms_come_within_a_percent_of_the_bound() -> None:
    """Two leaders and a third class: the bound is about attained, so it is not needlessly large."""
    d, order = 0.1, 4.0
    best = 0.0
    for lead in np.linspace(-1.0, 2.5, 15):
        for tilt in np.linspace(-1.0, 1.0, 15):
            counts = np.array([lead + tilt, lead - tilt, 0.0])
            moved = counts + d * np.array([-1.0, 1.0, 0.0])
            best = max(best, renyi(log_label_law(counts), log_label_law(moved), order))
    bound = float(label_rdp(d, order, classes=3))
    assert 0.99 * bound < best <= bound


@given(shift=shifts, order=any_orders)
@settings(max_examples=20, deadline=None)
def test_bounds_are_ordered_bit_two_classes_many_classes_gaussian(shift: float, order: float) -> None:
    bit = float(threshold_rdp(shift, order))
    label2, label3, label9 = (float(label_rdp(shift, order, classes=classes)) for classes in (2, 3, 9))
    assert 0 < bit <= order * shift**2 / 2
    assert bit <= label2 * (1 + 2e-4)
    assert label2 <= label3 * (1 + 3e-4)
    assert label3 == label9 <= order * shift**2


def test_orders_off_the_grid_agree_with_their_neighbours_on_it() -> None:
    d = 0.07
    between = 0.5 * (ORDERS[30:60:5] + ORDERS[31:61:5])
    direct = label_rdp(d, between, classes=3) / between
    below, above = (label_rdp(d, ORDERS[i : i + 30 : 5], classes=3) / ORDERS[i : i + 30 : 5] for i in (30, 31))
    assert (below <= direct * (1 + 3e-4)).all()
    assert (direct <= above * (1 + 3e-4)).all()


def test_extreme_shifts_and_orders_give_finite_bounds_without_warnings() -> None:
    d = np.array([0.0, 1e-12, 1e-9, 1e-6, 1e-4, 0.03, 0.4, 3.0, 5.03, 7.1, 50.0, 1e6])[:, None]
    orders = np.array([1 + 1e-9, 1.01, 1.05, 2.0, 17.3, 300.0, 1024.0, 99_999.0, 1e7])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bit, label2, label3 = (
            threshold_rdp(d, orders),
            label_rdp(d, orders, classes=2),
            label_rdp(d, orders, classes=3),
        )
    for bound, gaussian in ((bit, orders * d * d / 2), (label2, orders * d * d), (label3, orders * d * d)):
        assert bound.shape == (12, 9)
        assert np.isfinite(bound).all()
        assert (bound[0] == 0).all()
        assert (bound[1:] > 0.5 * gaussian[1:] * (d[1:] < 1)).all()
        assert (bound <= gaussian * (1 + 1e-15)).all()


@pytest.mark.parametrize("d", [0.02, 0.3])
def test_tiny_orders_approach_the_kullback_leibler_divergence(d: float) -> None:
    assert float(threshold_rdp(d, 1 + 1e-7)) == pytest.approx(float(threshold_rdp(d, 1 + 1e-5)), rel=1e-4)


@pytest.mark.parametrize("classes", [2, 3])
def test_many_orders_outside_the_table_cost_little_more_than_each_alone(classes: int) -> None:
    d, orders = np.geomspace(1e-3, 2.0, 250)[:, None], np.array([1.02, 1.3, 2.5, 9.99, 63.0, 700.0])
    assert not np.isin(orders, ORDERS).any()
    together = label_rdp(d, orders, classes=classes)
    chosen = [0, 100, 200, 249]
    alone = label_rdp(d[chosen], orders, classes=classes)
    # Both are upper bounds; the computed one is within 2e-5 of the supremum.
    assert (together[chosen] >= alone * (1 - 3e-5)).all()
    assert (together[chosen] <= alone * np.array([1.04, 1.002, 1.002, 1.002, 1.002, 1.005])).all()
    assert (together <= orders * d**2 * (1 + 1e-15)).all()


@pytest.mark.parametrize(
    ("d", "orders", "classes", "named"),
    [
        (-0.1, 2.0, 3, ("-0.1",)),
        (np.nan, 2.0, 3, ("nan",)),
        (np.inf, 2.0, 3, ("inf",)),
        (0.1, 1.0, 3, ("1.0",)),
        (0.1, np.nan, 3, ("nan",)),
        (0.1, np.inf, 3, ("inf",)),
        (0.1, 2.0, 1, ("classes = 1",)),
        (np.zeros(3), np.full(2, 2.0), 3, ("broadcast",)),
    ],
)
def test_values_outside_their_range_are_refused(d, orders, classes, named) -> None:
    with refuses(InvalidInput, *named):
        label_rdp(d, orders, classes=classes)
    if classes > 1:
        with refuses(InvalidInput, *named):
            threshold_rdp(d, orders)
