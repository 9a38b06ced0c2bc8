"""Filters that count a planned number of queries: caps, guarantees, and what they cost in Renyi DP."""

from dataclasses import replace

import numpy as np
import pytest

from protocols.bounds import label_only
from protocols.bounds.compositions import composition
from protocols.bounds.label_pairs import LabelPairs, PairKind
from protocols.budgets.accountant import accountant
from protocols.budgets.filter import PlannedQueries, budget_filters
from protocols.budgets.guarantee import Accounting, known_to
from protocols.budgets.individualization import weights
from protocols.budgets.planned import Planned
from protocols.errors import InvalidInput
from protocols.mechanisms import ConfidentGNMax, GNMax, Lattice, Sensitivity, ThresholdedGNMax
from tests.harness.refusals import refuses

ONE_DRAW = ThresholdedGNMax(sigma=20.0, threshold=20.0)
EPSILON, DELTA = np.array([1.0, 2.0]), np.full(2, 1e-6)
VOTES = np.array([1.0, 1.5])


def filters(name, mechanism=ONE_DRAW, *, query_limit=32, votes=VOTES, classes=4, epsilon=EPSILON):
    return budget_filters(
        accountant=accountant(name),
        mechanism=mechanism,
        sensitivity=Sensitivity.always(votes, delta_squared=2),
        epsilon=epsilon,
        delta=DELTA,
        view="label",
        classes=classes,
        query_limit=query_limit,
        total_weight=40.0,
        answer_rate=1.0,
    )


def test_the_cap_is_a_number_of_queries_whose_epsilon_is_within_the_budget():
    found = filters("exact_composition")
    more = found.planned.epsilon(found.cap + 1, found.delta)
    assert (found.epsilon_guaranteed <= EPSILON).all()
    assert (more > EPSILON).all()
    assert found.cap.tolist() == found.affordable(np.zeros(2, np.int64), limit=1000).tolist()


def test_more_queries_are_bought_than_by_the_renyi_filter():
    counted, converted = filters("exact_composition"), filters("label_only")
    fits = converted.affordable(np.zeros(2, np.int64), limit=1000)
    assert (counted.cap > fits).all()


def test_a_batch_costs_its_queries_answered_or_not_and_stops_at_the_cap():
    found = filters("exact_composition")
    assert found.amount(7, 0).tolist() == found.amount(7, 7).tolist() == [7, 7]
    assert found.amount(np.array([7, 3]), np.zeros(2, np.int64)).tolist() == [7, 3]
    assert found.affordable(found.cap - 5, limit=100).tolist() == [5, 5]
    assert found.affordable(found.cap, limit=100).tolist() == [0, 0]


def test_in_renyi_dp_a_planned_number_costs_that_many_labels_at_every_order():
    found = filters("exact_composition")
    label = accountant("label_only")
    cost = label.query_cost(ONE_DRAW, Sensitivity.always(VOTES, delta_squared=2), view="label", classes=4).ask
    at = np.searchsorted(label.orders, found.order)
    np.testing.assert_allclose(found.spend(found.cap), found.cap * cost[np.arange(2), at], rtol=1e-12)
    assert found.nano(int(found.cap[1]), 1) >= 1e9 * found.spend(found.cap)[1]


def test_a_person_at_two_hospitals_costs_no_less_than_at_either_by_exact_composition():
    found = filters("exact_composition")
    accounting = Accounting(
        budgets=found, mechanism=ONE_DRAW, votes=VOTES, delta_squared=2, apart=False, view="label", classes=4,
        noise_distance=0.0,
    )  # fmt: skip
    both = known_to(accounting, [[0], [1]], delta=1e-6)
    # Their votes add up: no fewer than the smaller number of queries, at the sum of both weights.
    together = composition(PairKind(3), 2.5 / 20.0, queries=32).epsilon(int(found.cap.min()), 1e-6)
    assert both.epsilon >= together * 0.99 > found.epsilon_guaranteed.max()


@pytest.mark.parametrize("units", [64, 512])
def test_integer_noise_buys_little_less_than_real_noise(units):
    lattice = Lattice(units=units, shares=1, classes=4)
    for classes in (2, 4):
        plain = filters("exact_composition", GNMax(sigma=20.0), classes=classes)
        integer = filters("exact_composition", GNMax(sigma=20.0, lattice=lattice), classes=classes)
        assert (integer.cap <= plain.cap).all()
        assert (integer.cap >= 0.98 * plain.cap - 1).all()


def test_two_classes_are_a_bit_unless_a_threshold_adds_a_third_outcome():
    bit, threshold = filters("exact_composition", GNMax(sigma=20.0), classes=2), filters("exact_composition", classes=2)
    assert bit.planned.pairs.kind == PairKind(2)
    assert threshold.planned.pairs.kind == PairKind(3)
    assert (threshold.cap <= bit.cap).all()


def test_a_vote_far_above_the_noise_costs_what_renyi_dp_says():
    planned = filters("exact_composition").planned
    far = PlannedQueries(LabelPairs(PairKind(3), np.array([7.0])), 49.0 * label_only.ORDERS[None, :], 100)
    assert far.affordable(np.array([400.0]), np.array([1e-6])).tolist() == [5]
    assert far.epsilon(np.array([5]), np.array([1e-6]))[0] <= 400
    assert planned.of(np.array([1, 1])).pairs.shifts.tolist() == [1.5 / 20.0] * 2


@pytest.mark.parametrize(
    ("mechanism", "secret"),
    [(ConfidentGNMax(sigma=4.0, sigma_threshold=8.0, threshold=20.0), False), (ONE_DRAW, True)],
    ids=["an answer costs extra", "secret coins"],
)
def test_a_mixture_of_prices_is_refused(mechanism, secret):
    with refuses(InvalidInput, "exact_composition"):
        accountant("exact_composition").check(mechanism, "label", secret_coins=secret)


class Dearer(GNMax):
    """What another distribution may derive: it inherits the pairs of GNMax, which are not its own."""

    name = "dearer"

    def label_only_rdp(self, sensitivity, orders, *, classes):
        cost = super().label_only_rdp(sensitivity, orders, classes=classes)
        return replace(cost, ask=4 * cost.ask)


def test_a_mechanism_that_changes_its_cost_does_not_inherit_the_pairs_of_another():
    dearer = Dearer(sigma=20.0)
    assert dearer.holding(view="label", on_lattice=False, secret_coins=False)[0] == "label_only"
    with refuses(InvalidInput, "exact_composition"):
        filters("exact_composition", dearer)


def test_exhaustive_weights_let_all_budgets_run_out_after_the_same_number_of_queries():
    planned = Planned(
        accountant=accountant("exact_composition"),
        mechanism=GNMax(sigma=20.0),
        epsilon=np.repeat([0.5, 2.0], 20),
        delta=np.full(40, 1e-6),
        sensitivity_per_weight=1,
        delta_squared=2,
        sigma=20.0,
        view="label",
        classes=2,
        query_limit=1000,
        answer_rate=1.0,
    )
    found = weights("exhaustive", planned)
    counted = filters("exact_composition", GNMax(sigma=20.0), classes=2, query_limit=1000,
                      votes=found[[0, -1]], epsilon=planned.epsilon[[0, -1]]).cap  # fmt: skip
    assert abs(counted[0] - counted[1]) <= 0.01 * counted.max() + 1
