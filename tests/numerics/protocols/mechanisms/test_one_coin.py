"""A bit and a label that share one secret coin never cost more than is charged: exact laws of two classes."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_ndtr, logsumexp
from scipy.stats import binom

from protocols.bounds.secret_sampling import sampled_bit_gaussian_rdp, sampled_label_gaussian_rdp
from protocols.mechanisms import Sensitivity, make_mechanism
from tests.harness.pages import ROOT

PAGE = ROOT / "docs" / "explanation" / "secret-sampling.md"


def law(first, second, bit_sigma, sigma):
    """ln of the probabilities of refusal, first and second class; the threshold is at 0."""
    above, ahead = np.maximum(first, second) / bit_sigma, (first - second) / (np.sqrt(2) * sigma)
    answered = log_ndtr(above)
    return np.stack([log_ndtr(-above), answered + log_ndtr(ahead), answered + log_ndtr(-ahead)])


def exact(bit_sigma, sigma, rate, order, s):
    """The largest divergence on a grid of votes: a vote for the first class becomes one for the second, or none."""
    reach = 12 + order * s / bit_sigma
    top, gap = np.meshgrid(
        np.linspace(-reach * bit_sigma - s, 6 * bit_sigma, 260), np.linspace(-5 * sigma, 5 * sigma, 121), indexing="ij"
    )
    first, second = top + np.minimum(gap, 0), top - np.maximum(gap, 0)
    out = law(first, second, bit_sigma, sigma)
    enters = [law(first + s, second, bit_sigma, sigma), law(first, second + s, bit_sigma, sigma)]
    p, q = (np.logaddexp(np.log1p(-rate) + out, np.log(rate) + each) for each in enters)
    pairs = ((p, q), (q, p), (p, out), (out, p))
    return max((logsumexp(order * x + (1 - order) * y, axis=0) / (order - 1)).max() for x, y in pairs)


def charged(bit_sigma, sigma, rate, order, s, *, account):
    mechanism = make_mechanism("confident_gnmax", view="label", sigma=sigma, sigma_threshold=bit_sigma, threshold=0.0)
    unit, orders = Sensitivity(np.array([s]), np.array([rate]), delta_squared=2), np.array([order])
    if account == "gaussian":
        cost = mechanism.noise_rdp(unit, orders, view="label")
    else:
        cost = mechanism.label_only_rdp(unit, orders, classes=2)
    return float(cost.ask[0, 0]), float(cost.answer[0, 0])


def two_coins(bit_sigma, sigma, rate, order):
    """What a bit and a label would cost with a coin each."""
    one, rates, orders = np.ones(1), np.array([rate]), np.array([order])
    bit = sampled_bit_gaussian_rdp(one / bit_sigma, rates, orders)
    return float((bit + sampled_label_gaussian_rdp(one / sigma, rates, orders))[0, 0])


@pytest.mark.parametrize(
    ("bit_sigma", "sigma", "rate", "order"), [(1.7, 3.0, 1 / 128, 30.4), (3.6, 5.0, 1 / 256, 151.5)]
)
def test_prices_of_two_coins_would_be_too_low_for_one_and_are_not_what_is_charged(bit_sigma, sigma, rate, order):
    true = exact(bit_sigma, sigma, rate, order, 1.0)
    assert true > 1.1 * two_coins(bit_sigma, sigma, rate, order)
    for account in ("gaussian", "label_only"):
        assert sum(charged(bit_sigma, sigma, rate, order, 1.0, account=account)) >= true


def test_the_page_shows_what_one_coin_costs():
    rows = re.findall(r"^\| ([\d.]+), ([\d.]+) \| 1/(\d+) \| ([\d.]+) \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    assert len(rows) == 4
    for *terms, said in rows:
        bit_sigma, sigma, rate, order = map(float, terms)
        point = (bit_sigma, sigma, 1 / rate, order)
        costs = (
            exact(*point, 1.0),
            two_coins(*point),
            sum(charged(*point, 1.0, account="label_only")),
            sum(charged(bit_sigma, sigma, 1.0, order, 1.0, account="label_only")),
        )
        assert said.split(" | ") == [f"{cost:.4f}" for cost in costs]


@settings(max_examples=30, deadline=None)
@given(
    st.floats(1, 60),
    st.floats(1, 60),
    st.floats(2**-9, 0.99),
    st.floats(1.05, 300),
    st.floats(0.1, 2),
    st.sampled_from(["gaussian", "label_only"]),
)
def test_no_votes_of_two_classes_cost_more_than_is_charged(bit_sigma, sigma, rate, order, s, account):
    ask, answer = charged(bit_sigma, sigma, rate, order, s, account=account)
    assert ask > 0
    assert answer >= 0
    assert exact(bit_sigma, sigma, rate, order, s) <= (ask + answer) * (1 + 1e-6)


@pytest.mark.parametrize("account", ["gaussian", "label_only"])
def test_a_coin_never_makes_a_query_dearer(account):
    for rate in (0.01, 0.3, 0.9):
        for order in (1.5, 8.0, 64.0, 512.0):
            always = sum(charged(20.0, 10.0, 1.0, order, 1.0, account=account))
            assert sum(charged(20.0, 10.0, rate, order, 1.0, account=account)) <= always * (1 + 1e-9)


def exact_with_other_teachers(sigma, rate, order, others, *, one_coin):
    """GNMax's label of two classes when a seat has `others` more votes for class 0, with one coin or one a vote."""

    def label(counts_ahead):
        return np.array([log_ndtr(counts_ahead / (2**0.5 * sigma)), log_ndtr(-counts_ahead / (2**0.5 * sigma))])

    def mixture(ahead, own):
        if one_coin:
            return np.logaddexp(np.log1p(-rate) + label(ahead), np.log(rate) + label(ahead + others + own))
        entering = np.arange(others + 1)
        log_binomial = binom.logpmf(entering, others, rate)
        terms = [
            log_binomial + np.log1p(-rate) + label(ahead + entering[:, None]).squeeze(-1),
            log_binomial + np.log(rate) + label(ahead + entering[:, None] + own).squeeze(-1),
        ]
        return logsumexp(np.stack(terms), axis=(0, 2))

    worst = 0.0
    for ahead in np.linspace(-6 * sigma - others, 6 * sigma, 400):
        p, q = (mixture(np.array([ahead]) if not one_coin else ahead, own) for own in (1.0, -1.0))
        worst = max(worst, logsumexp(order * p + (1 - order) * q), logsumexp(order * q + (1 - order) * p))
    return worst / (order - 1)


def test_a_record_among_several_teachers_needs_a_coin_for_each_vote():
    sigma, rate, order, others = 10.0, 1 / 16, 10.17, 49
    charge = sampled_label_gaussian_rdp(np.array([1 / sigma]), np.array([rate]), np.array([order]))[0, 0]
    assert exact_with_other_teachers(sigma, rate, order, others, one_coin=True) > 2 * charge
    assert exact_with_other_teachers(sigma, rate, order, others, one_coin=False) <= charge
