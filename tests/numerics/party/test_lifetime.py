import dataclasses
import math
import re

import mpmath
import numpy as np
import pytest

from party.budget.policy import Policy
from party.home import PartyHome
from party.lifetime import (
    CURRENCIES,
    LifetimeCap,
    _costs,
    allowance,
    epsilon_reached,
    first_order,
    position_of,
    study_cost,
)
from protocols.budgets.accountant import accountant
from protocols.budgets.filter import NANO
from protocols.errors import InvalidInput, Refused
from protocols.mechanisms import Sensitivity
from protocols.study.study import Seat
from tests.harness.levels import lattice_study, secure_sum, two_server
from tests.harness.refusals import refused_for, refuses
from tests.harness.studies import make_study

BIG = [1.0] * 250


def cost_of(study, *, unit="record", spent=None, party="p0"):
    return study_cost(study, party, unit=unit, spent=spent, told_apart=False)


@pytest.mark.parametrize("account", ["label_only", "gaussian", "gaussian_dp"])
def test_a_study_of_the_whole_cap_fits_exactly_once(account):
    study = make_study(BIG, account=account)
    cost = cost_of(study)
    cap = LifetimeCap(1.0, 1e-5)
    order, room = first_order(cap, cost)
    allowed = allowance(cap, order, room)
    assert cost.at(order) <= allowed < 2 * cost.at(order)
    with refused_for("lifetime_cap"):
        first_order(LifetimeCap(0.9 if account != "gaussian" else 0.85, 1e-5), cost)


@pytest.mark.parametrize("account", ["label_only", "gaussian", "gaussian_dp"])
@pytest.mark.parametrize("mechanism", ["confident_gnmax", "gnmax"])
def test_the_bound_in_every_currency_is_that_of_the_worst_stream_of_queries(account, mechanism):
    """Enumerates streams (asked, answered) that fill the study's own cap, and adds up their costs at other orders."""
    more = {"sigma_threshold": None, "threshold": None} if mechanism == "gnmax" else {}
    study = make_study(BIG, account=account, mechanism=mechanism, **more)
    budgets = study.budgets
    bound = cost_of(study).nano / NANO
    moved = Sensitivity.always(np.array([study.roster[0].weight]), delta_squared=2)
    charging = accountant(account)
    cost = charging.query_cost(study.mechanism, moved, view="label", classes=10)
    squared = study.mechanism.gaussian_dp(moved, view="label")
    cap = budgets.cap[0] / NANO
    worst = np.zeros_like(bound)
    for answered_of_asked in np.linspace(0, 1, 21):
        per_query = budgets.ask[0] + answered_of_asked * budgets.answer[0]
        if per_query == 0:
            continue
        count = cap / per_query
        mu2 = count * (squared.ask[0, 0] + answered_of_asked * squared.answer[0, 0])
        if account == "gaussian_dp":
            spent = np.append(CURRENCIES[:-1] * mu2 / 2, mu2)
        else:
            spent = np.append(count * (cost.ask[0] + answered_of_asked * cost.answer[0]), mu2)
        worst = np.maximum(worst, spent)
    assert (bound >= worst * (1 - 1e-12)).all()
    np.testing.assert_allclose(bound, worst, rtol=1e-6, atol=2e-9)


def test_what_is_allowed_does_not_sink_as_studies_of_float_noise_are_approved(tmp_path):
    """An allowance that did would need delta + (1 + e^epsilon) max t: its sinking depends on earlier releases."""
    caps, home = {"record": LifetimeCap(8.0, 1e-5)}, PartyHome(tmp_path)
    study = make_study([0.5] * 30, threshold=1.0, teachers=1)
    with Policy(":memory:") as policy:
        seen = []
        for number in range(60):
            one = dataclasses.replace(study, name=f"study {number}")
            try:
                policy.approve(one, party="p0", data_set="ward", caps=caps, home=home, told_apart=False)
            except Refused as error:
                refusal = str(error)
                break
            (standing,) = policy.lifetime_uses()
            seen.append((standing.allowed, standing.noise_used))
            # The definition: what is allowed, converted, leaves delta for all float noise that was drawn.
            reached = epsilon_reached(
                standing.allowed, standing.currency, delta=1e-5, noise_distance=standing.noise_room
            )
            assert reached <= 8.0 * (1 + 1e-8)
            assert standing.noise_used <= standing.noise_room
    assert len(seen) >= 8
    assert len({allowed for allowed, _ in seen}) == 1
    assert [used for _, used in seen] == sorted(used for _, used in seen)
    assert seen[0][1] > 0
    assert "set aside for float64 rounding of noise" in refusal


def test_gaussian_studies_compose_as_one_gaussian_of_the_added_squares():
    study = make_study(BIG, account="gaussian_dp")
    cost = cost_of(study)
    order, _ = first_order(LifetimeCap(2.0, 1e-5), cost)
    assert math.isnan(order)
    for copies in (1, 2, 5):
        reached = epsilon_reached(copies * cost.at(order), order, delta=1e-5, noise_distance=0.0)
        with mpmath.workdps(40):
            mu = mpmath.sqrt(mpmath.mpf(copies * cost.at(order)) / 10**9)

            def delta_of(e, mu=mu):
                return mpmath.ncdf(-e / mu + mu / 2) - mpmath.exp(e) * mpmath.ncdf(-e / mu - mu / 2)

            exact = mpmath.findroot(lambda e: mpmath.log(delta_of(e)) - mpmath.log(mpmath.mpf("1e-5")), reached)
        assert float(exact) <= reached <= float(exact) * (1 + 1e-6)


def test_four_equal_studies_cost_about_half_of_what_adding_epsilons_says():
    cost = cost_of(make_study(BIG))
    best = min(
        epsilon_reached(
            int(4 * cost.nano[at]), float(CURRENCIES[at]), delta=1e-5, noise_distance=4 * cost.noise_distance
        )
        for at in range(len(CURRENCIES) - 1)
    )
    assert 1.9 < best < 2.4
    # The order that the first study fixes is as good as the best one known afterwards.
    # A hundredth of delta is kept for the float noise of all studies.
    cap = LifetimeCap(best * 1.001, 1e-5)
    order, room = first_order(cap, cost)
    assert 4 * cost.noise_distance <= room
    assert 4 * cost.at(order) <= allowance(cap, order, room)


@pytest.mark.parametrize("account", ["exact_composition", "gaussian", "label_only"])
def test_a_cap_of_15_to_40_admits_a_study_of_epsilon_8_and_a_larger_cap_never_admits_fewer(account):
    study = make_study([8.0] * 3, mechanism="gnmax", sigma=8.0, threshold=None, sigma_threshold=None, account=account)
    cost = cost_of(study)
    assert cost.noise_distance > 0
    orders = {epsilon: first_order(LifetimeCap(epsilon, 1e-5), cost) for epsilon in (10.0, 15.0, 20.0, 40.0, 100.0)}
    for epsilon, (order, room) in orders.items():
        assert allowance(LifetimeCap(epsilon, 1e-5), order, room) >= cost.at(order)
    for order, room in orders.values():
        allowed = [allowance(LifetimeCap(float(each), 1e-5), order, room) for each in range(1, 60)]
        assert allowed == sorted(allowed)


def test_the_message_names_the_least_cap_that_admits_the_study():
    noise = {"mechanism": "gnmax", "sigma": 8.0, "threshold": None, "sigma_threshold": None}
    cost = cost_of(make_study([8.0] * 3, account="exact_composition", **noise))
    with pytest.raises(Refused, match=r"a lifetime cap of epsilon [\d.]+ at this delta admits it") as refused:
        first_order(LifetimeCap(4.0, 1e-5), cost)
    least = float(re.search(r"cap of epsilon ([\d.]+) at this", str(refused.value))[1])
    first_order(LifetimeCap(least, 1e-5), cost)
    with pytest.raises(Refused):
        first_order(LifetimeCap(least - 0.1, 1e-5), cost)


def test_a_record_of_a_study_of_whole_parties_moves_one_vote_of_many():
    study = make_study([4.0] * 20, unit="party", teachers=5, threshold=1.0)
    party, record = cost_of(study, unit="party"), cost_of(study, unit="record")
    ratio = record.nano[:100] / party.nano[:100]
    assert (ratio < 0.06).all()  # one vote of five: about 1/25
    again = make_study([4.0] * 20, unit="record", teachers=5, threshold=1.0)
    assert (cost_of(again, unit="party").nano[:50] > 15 * cost_of(again, unit="record").nano[:50]).all()


def test_privacy_groups_count_by_their_largest_and_have_no_bound_for_a_whole_party():
    base = make_study([1.0, 2.0], threshold=1.0)
    study = dataclasses.replace(
        base, roster=tuple(dataclasses.replace(s, party=f"a/{n}") for s, n in zip(base.roster, "xy", strict=True))
    )
    both = study_cost(study, "a", unit="record", spent=None, told_apart=True)
    assert both.nano[position_of(float(study.budgets.order[1]))] == study.budgets.cap[1]
    with refuses(InvalidInput, "privacy groups"):
        cost_of(study, party="a", unit="party")
    with refuses(InvalidInput, "roster"):
        cost_of(study, party="b")
    mixed = dataclasses.replace(
        study, roster=(*study.roster, Seat(party="a", epsilon=1.0, delta=1e-5, weight=1.0, rate=1.0))
    )
    with refuses(InvalidInput, "groups"):
        cost_of(mixed, party="a")


def test_secret_coins_have_no_bound_in_gaussian_dp():
    study = make_study([1.0, 1.0], threshold=1.0, participation="secret", rates=[0.5, 1.0])
    cost = cost_of(study)
    with refused_for("lifetime_currency"):
        cost.at(float("nan"))
    assert first_order(LifetimeCap(1.0, 1e-5), cost)[0] > 1
    assert cost.nano[position_of(float(study.budgets.order[0]))] == study.budgets.cap[0]


def test_labels_of_integer_noise_are_never_counted_in_gaussian_dp_and_histograms_are():
    ask, both = _costs(lattice_study(two_server()), 0, unit="record", weight=None)
    assert np.isinf(ask[-1])
    assert np.isinf(both[-1])
    assert np.isfinite(both[:-1]).any()
    study = lattice_study(secure_sum())
    both = _costs(study, 0, unit="record", weight=None)[1]
    continuous = 2 * (study.weights[0] / study.mechanism.sigma) ** 2
    assert continuous < both[-1] < 1.001 * continuous
