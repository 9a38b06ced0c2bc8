"""Claims: what a budget filter publishes when it affords just the audited queries, and no less."""

import numpy as np
import pytest

from protocols.bounds.gaussian import gdp_epsilon
from protocols.budgets.filter import budget_filters
from protocols.errors import InvalidInput
from protocols.mechanisms import Sensitivity
from simulations.audit.targets import claim_of, noise_scales
from tests.harness.audits import of_mechanisms
from tests.harness.refusals import refuses

TERMS = dict(
    trials=1000, queries=8, classes=3, weight=1.0, sigma=4.0,
    parameters={"sigma_threshold": 5.0, "gamma": 0.25},
    rate=0.5, delta=0.01,
    confidence=0.99, noise="fast", seed=0,
)  # fmt: skip
TARGETS = of_mechanisms(**TERMS).of.targets()


def affordable(target, epsilon):
    filters = budget_filters(
        accountant=target.accountant, mechanism=target.mechanism,
        sensitivity=Sensitivity(np.array([target.weight]), np.array([target.rate]), delta_squared=2),
        epsilon=np.array([epsilon]), delta=np.array([0.01]), view=target.view, classes=3, query_limit=8,
        total_weight=300.0, answer_rate=1.0,
    )  # fmt: skip
    return filters.affordable(np.zeros(1, dtype=np.int64), limit=100)[0]


def test_every_mechanism_is_audited_under_every_view_that_says_something_new():
    audited = {(target.name, target.view, target.accountant.name) for target in TARGETS}
    assert audited == {
        ("gnmax", "label", "label_only"),
        ("gnmax, secret coins", "label", "label_only"),
        ("gnmax", "histogram", "gaussian_dp"),
        ("gnmax, secret coins", "histogram", "gaussian"),
        ("thresholded_gnmax", "label", "label_only"),
        ("thresholded_gnmax, secret coins", "label", "label_only"),
        ("confident_gnmax", "label", "label_only"),
        ("confident_gnmax, secret coins", "label", "label_only"),
        ("interactive_gnmax", "label", "label_only"),
        ("interactive_gnmax, secret coins", "label", "label_only"),
        ("lnmax", "label", "laplace"),
        ("lnmax", "histogram", "laplace"),
    }


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: f"{target.name}-{target.view}")
def test_a_budget_of_the_claim_affords_the_queries_and_a_smaller_one_does_not(target):
    claim = claim_of(target, delta=0.01, total_weight=300.0)
    assert affordable(target, claim.epsilon * (1 + 1e-6)) == 8
    assert affordable(target, claim.epsilon * (1 - 1e-4)) == 7


def test_the_claim_of_a_histogram_is_exact_gaussian_dp():
    (target,) = of_mechanisms(**(TERMS | {"mechanisms": ("gnmax",), "views": ("histogram",), "rate": 1.0})).of.targets()
    claim = claim_of(target, delta=0.01, total_weight=300.0)
    assert claim.mu == pytest.approx(1.0)
    assert claim.epsilon == pytest.approx(float(gdp_epsilon(np.array([1.0]), np.array([0.01]))[0]), rel=1e-6)
    assert noise_scales(target.mechanism) == "sigma 4"


def test_a_view_that_is_not_audited_is_refused_with_the_reason():
    settings = of_mechanisms(**(TERMS | {"mechanisms": ("confident_gnmax",), "views": ("histogram",)}))
    with refuses(InvalidInput, "threshold"):
        settings.of.targets()
