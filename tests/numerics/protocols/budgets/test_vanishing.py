"""Rates and the one weight of vanishing: budgets run out together, and the nominal total weight is kept."""

import numpy as np
import pytest

from protocols.budgets.accountant import accountant
from protocols.budgets.individualization import vanishing
from protocols.budgets.planned import Planned
from protocols.errors import InvalidInput
from protocols.mechanisms import Sensitivity, make_mechanism
from tests.harness.refusals import refuses

CONFIDENT = make_mechanism("confident_gnmax", view="label", sigma=8.0, sigma_threshold=20.0, threshold=25.0)


def solved(pattern, epsilon, *, account="label_only", view="label", mechanism=CONFIDENT):
    budgets = np.array(epsilon, dtype=float)
    planned = Planned(
        accountant=accountant(account),
        mechanism=mechanism,
        epsilon=budgets,
        delta=np.full(len(budgets), 1e-5),
        sensitivity_per_weight=1,
        delta_squared=2,
        sigma=mechanism.label_sigma,
        view=view,
        classes=10,
        query_limit=500,
        answer_rate=1.0,
    )
    return vanishing(pattern, planned)


@pytest.mark.parametrize("pattern", ["periodic", "secret"])
def test_the_total_weight_is_kept_and_the_largest_budget_takes_part_in_everything(pattern):
    rates, weight = solved(pattern, [2.0, 2.0, 4.0, 8.0])
    assert weight * rates.sum() == pytest.approx(4, rel=2e-3)
    assert rates[0] == rates[1] < rates[2] < rates[3] == 1
    assert weight > 1


@pytest.mark.parametrize("pattern", ["periodic", "secret"])
def test_equal_budgets_take_part_in_everything_with_votes_of_weight_one(pattern):
    rates, weight = solved(pattern, [3.0, 3.0, 3.0])
    assert (rates == 1).all()
    assert weight == 1


def answers(epsilon, rate, weight, *, secret):
    """How many queries a budget affords, when all are answered, at its best order."""
    account = accountant("label_only")
    cost = account.query_cost(
        CONFIDENT,
        Sensitivity(np.array([weight]), np.array([rate if secret else 1.0]), delta_squared=2),
        view="label",
        classes=10,
    )
    each = (cost.ask + cost.answer)[0] * (1 if secret else rate)
    return float((account.affords(np.array([epsilon]), np.array([1e-5]))[0] / each).max())


@pytest.mark.parametrize("pattern", ["periodic", "secret"])
def test_all_budgets_afford_about_as_many_queries(pattern):
    epsilon = [1.5, 3.0, 9.0]
    rates, weight = solved(pattern, epsilon)
    afforded = [answers(e, r, weight, secret=pattern == "secret") for e, r in zip(epsilon, rates, strict=True)]
    assert max(afforded) / min(afforded) < 1.03


def test_secret_coins_let_a_small_budget_vote_more_often_than_a_public_pattern():
    secret, _ = solved("secret", [2.0, 8.0], account="gaussian")
    public, _ = solved("periodic", [2.0, 8.0], account="gaussian")
    assert secret[0] > 1.3 * public[0]


def test_a_budget_that_affords_nothing_or_would_hardly_vote_is_refused():
    with refuses(InvalidInput, "0.0001"):
        solved("secret", [1e-4, 1e-4], account="gaussian")
    with pytest.raises(InvalidInput, match="too small beside"):
        solved("secret", [0.02, 60.0], account="gaussian")
