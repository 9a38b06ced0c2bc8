"""Tau voting: what a clipped vote on several findings moves, costs and releases, against all pairs of sets."""

from itertools import product
from math import isqrt, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from protocols.bounds.label_only import ORDERS, threshold_rdp
from protocols.bounds.lattice_label_only import lattice_bit_rdp
from protocols.budgets.accountant import accountant
from protocols.errors import InvalidInput
from protocols.mechanisms import GNMax, Lattice, Sensitivity, TauVoting
from protocols.mechanisms.tau import entries, findings_of, set_of
from protocols.study.several_findings import Binary, Powerset
from protocols.votes import LATTICE
from tests.harness.refusals import refuses


def clipped(weight, tau, findings):
    """Every set's vector in lattice units, set by set, by Python's integers."""
    return [
        [bit * min(weight, isqrt(int(weight**2 * tau**2 / max(1, sum(bits))))) for bit in bits]
        for bits in product((0, 1), repeat=findings)
    ]


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 6), st.integers(4, 16), st.integers(64, 4096))
def test_no_pair_of_sets_moves_further_than_is_charged(findings, quarters, weight):
    tau = quarters / 4
    vectors = np.array(clipped(weight, tau, findings))
    assert ((vectors**2).sum(axis=1) <= tau**2 * weight**2).all()
    assert {entries(weight, tau=tau, findings=findings)[sum(v > 0)] for v in vectors if v.any()} == {
        v.max() for v in vectors if v.any()
    }
    moved = ((vectors[:, None] - vectors[None]) ** 2).sum(axis=2).max()
    mechanism = TauVoting(sigma=1.0, tau=tau, threshold=0.0)
    allowed = mechanism.squared_move(findings) * weight**2
    assert moved <= allowed
    if tau**2 == int(tau**2) and findings >= 2 * tau**2:
        assert moved == 2 * tau**2 * weight**2


@pytest.mark.parametrize(("findings", "tau"), [(2, 1.0), (5, 1.8), (8, 1.0), (8, 1.8), (8, 3.0)])
def test_label_only_charge_is_the_largest_over_all_pairs_of_sets(findings, tau):
    mechanism, orders = TauVoting(sigma=3.0, tau=tau, threshold=0.0), ORDERS[[10, 40, 90]]
    moved = Sensitivity.always(np.array([1.0, 0.5]), delta_squared=mechanism.squared_move(findings))
    charged = mechanism.label_only_rdp(moved, orders, classes=findings).ask
    for row, weight in enumerate((LATTICE, LATTICE // 2)):
        vectors = np.array(clipped(weight, tau, findings))
        sizes, at = np.unique(np.abs(vectors[:, None] - vectors[None]), return_inverse=True)
        bits = threshold_rdp(sizes[:, None] / LATTICE / 3.0, orders[None, :])
        each = bits[at.reshape(len(vectors), len(vectors), findings)].sum(axis=2)
        np.testing.assert_allclose(charged[row], each.max(axis=(0, 1)), rtol=1e-12)
    assert (charged < mechanism.noise_rdp(moved, orders, view="label").ask).all()


def test_label_only_charge_is_reached_by_released_sets():
    """The divergence of the released bits of two neighbours, over a grid of everybody else's counts."""
    tau, sigma, order = 1.5, 1.3, ORDERS[40]
    mechanism = TauVoting(sigma=sigma, tau=tau, threshold=0.0)
    moved = Sensitivity.always(np.array([1.0]), delta_squared=mechanism.squared_move(3))
    charged = mechanism.label_only_rdp(moved, np.array([order]), classes=3).ask[0, 0]
    vectors, others, largest = np.array(clipped(LATTICE, tau, 3)) / LATTICE, np.linspace(-8, 8, 641), 0.0
    for before, after in product(vectors, repeat=2):
        p, q = (norm.cdf((others[:, None] + each) / sigma) for each in (before, after))
        total = p**order * q ** (1 - order) + (1 - p) ** order * (1 - q) ** (1 - order)
        largest = max(largest, (np.log(total) / (order - 1)).max(axis=0).sum())
    assert 0.999 * charged < largest <= charged


def test_integer_noise_costs_a_little_more_and_shares_are_counted():
    real = TauVoting(sigma=3.0, tau=1.8, threshold=0.0)
    whole = real.on_lattice(Lattice(units=1024, shares=1, classes=20))
    moved, orders = Sensitivity.always(np.array([1.0]), delta_squared=real.squared_move(20)), ORDERS[[20, 60]]
    few, more = (each.label_only_rdp(moved, orders, classes=20).ask for each in (real, whole))
    np.testing.assert_allclose(more, few, rtol=0.01)  # entries are rounded down, integer noise costs more
    bits = lattice_bit_rdp(np.array([1024]), orders, sigma_units=3 * 1024)
    np.testing.assert_allclose(more, 6 * bits, rtol=0.08)  # two sets of three: six counts by a whole vote
    shared = real.on_lattice(Lattice(units=1024, shares=4, classes=20))
    assert (shared.noise_rdp(moved, orders, view="label").ask >= real.noise_rdp(moved, orders, view="label").ask).all()


def test_what_is_released_is_the_set_of_findings_that_reach_the_threshold():
    from protocols.noise import simulated

    mechanism = TauVoting(sigma=1e-6, tau=2.0, threshold=2.0)
    counts = np.array([[0.0, 2.5, 3.0], [1.9, 0.0, 0.0]])
    noise = simulated(np.random.default_rng(3))
    found = mechanism.release(counts, noise, view="label")
    assert findings_of(found, findings=3).tolist() == [[0, 1, 1], [0, 0, 0]]
    assert (set_of(findings_of(np.arange(8), findings=3)) == np.arange(8)).all()


def test_it_refuses_what_is_not_proved():
    with pytest.raises(InvalidInput, match=r"tau is 0\.9"):
        TauVoting(sigma=1.0, tau=0.9, threshold=0.0)
    mechanism = TauVoting(sigma=1.0, tau=sqrt(2), threshold=0.0)
    with refuses(InvalidInput, "accountant"):
        accountant("gaussian").check(mechanism, "label", secret_coins=True)
    with pytest.raises(InvalidInput, match="one vote"):
        accountant("label_only").check(mechanism, "label", several_votes=True)
    accountant("gaussian").check(mechanism, "label", several_votes=True)
    assert not mechanism.decides_on_one_histogram()


@pytest.mark.parametrize("findings", [2, 5, 8])
def test_no_pair_of_sets_moves_binary_or_powerset_votes_further_than_their_rows_are_charged(findings):
    """Every pair of sets: L rows of Delta^2 2 where each finding is a question, one where each set is a class."""
    every = findings_of(np.arange(2**findings), findings=findings)
    sets = tuple(tuple(np.flatnonzero(each).tolist()) for each in every)
    for way, rows in ((Binary(findings), findings), (Powerset(findings, sets), 1)):
        given = dict(units=LATTICE, mechanism=GNMax(sigma=1.0), classes=way.classes)
        counts = way.counts(way.votes(every).reshape(1, 1, -1), np.ones(1), **given).reshape(len(every), -1)
        moved = (counts**2).sum(axis=1)[:, None] + (counts**2).sum(axis=1) - 2 * counts @ counts.T
        assert way.rows == rows
        assert moved.max() == rows * GNMax(sigma=1.0).squared_move(way.classes) == 2 * rows
