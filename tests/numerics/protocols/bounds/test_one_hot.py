"""The cost of a one-hot contribution under the label view, against the exact divergences of histograms."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_ndtr, logsumexp

from protocols.bounds.label_only import ORDERS, label_rdp, threshold_rdp
from protocols.bounds.one_hot import lattice_one_hot_label_rdp, one_hot_label_rdp
from protocols.errors import InvalidInput

NODES = np.linspace(-12.0, 12.0, 1201)
orders_of_the_table = st.sampled_from([float(order) for order in ORDERS])


def log_label_law(counts):
    """log-probability of each class under GNMax with sigma = 1: trapezoid over the winner's noise."""
    gaps = counts[:, None] - counts[None, :]
    np.fill_diagonal(gaps, np.inf)
    others = log_ndtr(NODES[:, None, None] + gaps).sum(axis=2)
    return logsumexp(others - NODES[:, None] ** 2 / 2, axis=0) + np.log(NODES[1] - NODES[0]) - np.log(2 * np.pi) / 2


def divergence(before, after, order):
    log_p, log_q = log_label_law(before), log_label_law(after)
    return logsumexp(order * log_p - (order - 1) * log_q) / (order - 1)


def both(before, after, order):
    return max(divergence(before, after, order), divergence(after, before, order))


def bound(shift, order, classes, **more):
    return float(one_hot_label_rdp(np.array([shift]), np.array([order]), classes=classes, **more)[0, 0])


@given(
    gaps=st.lists(st.floats(-5, 5), min_size=2, max_size=6), shift=st.floats(-2.5, 0.3).map(lambda x: 10**x),
    order=orders_of_the_table, seed=st.integers(0, 2**32),
)  # fmt: skip
@settings(max_examples=40)
def test_no_move_of_a_unit_costs_more_than_the_bound(gaps, shift, order, seed) -> None:
    """Within a query, and from one query to another: there the two costs, each in its own direction, add."""
    first, one = np.array(gaps), shift * np.eye(len(gaps))
    second = np.random.default_rng(seed).uniform(-3, 3, len(gaps))
    slack = 1e-12 * order / (order - 1)
    swap = both(first + one[0], first + one[1], order)
    leaves = divergence(first + one[0], first, order) + divergence(second, second + one[-1], order)
    enters = divergence(first, first + one[0], order) + divergence(second + one[-1], second, order)
    assert max(swap, leaves, enters) <= bound(shift, order, len(gaps)) * (1 + 1e-9) + slack


@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("order", [2.0, 8.0, 32.0])
def test_the_bound_of_a_move_between_queries_is_attained_in_the_limit(classes, order) -> None:
    """Two cells near their thresholds, where all other classes are far behind one."""
    shift, best = 0.3, 0.0
    for gap in np.linspace(-9, 9, 361):
        base = np.full(classes, -40.0)
        base[1] = 0.0
        one = np.zeros(classes)
        one[0] = shift
        # The winner's own noise widens what the loser's is held against: sqrt(2) here, 1 against a fixed maximum.
        near = base.copy()
        near[0] = gap
        best = max(best, both(near, near + one, order))
    # Against one competitor the shift is worth shift/sqrt(2); against many it tends to the whole of it.
    assert best == pytest.approx(float(threshold_rdp(shift / np.sqrt(2), order)), rel=5e-3)
    assert 2 * best < bound(shift, order, classes)


def test_two_one_cell_shifts_never_cost_more_than_a_swap_of_three_or_more_classes() -> None:
    orders = ORDERS[::40]
    d = np.array([0.01, 0.05, 0.2, 0.5, 1.0, 2.0])
    swap = label_rdp(d[:, None], orders[None, :], classes=3)
    leave = 2 * threshold_rdp(d[:, None], orders[None, :])
    assert (leave <= swap * (1 + 1e-9)).all()
    np.testing.assert_allclose(one_hot_label_rdp(d, orders, classes=3), swap, rtol=1e-9)


@given(shift=st.floats(0.01, 2.0), order=orders_of_the_table, nearest=st.integers(1, 9), classes=st.integers(2, 5))
@settings(max_examples=40)
def test_laws(shift, order, nearest, classes) -> None:
    cost = bound(shift, order, classes)
    assert bound(shift, order, classes, nearest=nearest) <= cost * (1 + 5e-3)  # the table's own margin
    assert cost <= order * shift**2 * (1 + 1e-9)
    with_bit = bound(shift, order, classes, threshold_d=np.array([shift / 3]))
    assert cost < with_bit <= order * (shift**2 + (shift / 3) ** 2) * (1 + 1e-9)
    assert bound(shift * 0.9, order, classes) <= cost


def test_integer_noise_costs_a_little_more_and_never_more_than_the_gaussian_bound() -> None:
    orders = np.array([2.0, 8.0, 32.0])
    for units, sigma in ((64, 640.0), (30, 320.0), (1, 64.0)):
        lattice = lattice_one_hot_label_rdp(np.array([units]), orders, sigma_units=sigma, classes=4)
        continuous = one_hot_label_rdp(np.array([units / sigma]), orders, classes=4)
        assert (lattice >= continuous * (1 - 1e-9)).all()
        assert (lattice <= np.minimum(continuous * 1.05, orders * (units / sigma) ** 2) * (1 + 1e-9)).all()


def test_exact_laws_of_a_single_cell_on_the_lattice_stay_below_the_bound() -> None:
    """A cell that wins with an integer threshold, ties going either way, summed over the discrete Gaussian itself."""
    sigma, shift = 64.0, 30
    support = np.arange(-1600, 1601)
    law = np.exp(-(support.astype(float) ** 2) / (2 * sigma**2))
    law /= law.sum()
    tail = np.cumsum(law[::-1])[::-1]
    for order in (2.0, 8.0, 32.0):
        worst = 0.0
        for threshold in range(-300, 301):
            p, q = tail[threshold + 1600], tail[threshold - shift + 1600]
            for a, b in ((p, q), (q, p)):
                power = a**order * b ** (1 - order) + (1 - a) ** order * (1 - b) ** (1 - order)
                worst = max(worst, np.log(power) / (order - 1))
        found = lattice_one_hot_label_rdp(np.array([shift]), np.array([order]), sigma_units=sigma, classes=3)
        assert 2 * worst <= float(found[0, 0])
        assert worst > 0


@pytest.mark.parametrize(("d", "more", "words"), [(0.1, {"nearest": 0}, "nearest is 0"), (-1.0, {}, "d spans")])
def test_values_out_of_range_are_refused(d, more, words) -> None:
    with pytest.raises(InvalidInput, match=words):
        one_hot_label_rdp(np.array([d]), np.array([2.0]), classes=3, **more)
