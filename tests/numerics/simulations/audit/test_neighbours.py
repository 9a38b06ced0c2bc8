"""The audited pairs: their exact epsilon never passes the claim, and reaches it where the bound is tight."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.bounds.gaussian import gdp_epsilon
from simulations.audit.bounds import composed_epsilon
from simulations.audit.targets import audited_pairs, claim_of, outcome_log_laws, pair_at
from tests.harness.audits import of_mechanisms

TERMS = dict(
    trials=1000, queries=4, classes=3, weight=1.0, sigma=3.0,
    parameters={"sigma_threshold": 3.0, "gamma": 0.3},
    rate=0.5, delta=0.01,
    confidence=0.99, noise="fast", seed=0,
)  # fmt: skip


def label_targets(**changed):
    return of_mechanisms(**(TERMS | {"views": ("label",)} | changed)).of.targets()


def exact(target, pair, delta):
    before, after = outcome_log_laws(target, pair)
    return float(composed_epsilon(before[None], after[None], queries=target.queries, delta=delta)[0])


def test_one_label_of_two_classes_reaches_gaussian_dp_and_its_claim():
    """The worst pair of one query is the best half-line; the label-only bound is tight there (within 2 %)."""
    (target,) = label_targets(mechanisms=("gnmax",), queries=1, classes=2, sigma=2.0, rate=1.0)
    worst, tied = audited_pairs(target, delta=0.01)
    mu = np.array([np.sqrt(2) / 2.0])
    best = float(gdp_epsilon(mu, np.array([0.01]))[0])
    assert exact(target, worst, 0.01) == pytest.approx(best, rel=1e-4)
    assert exact(target, tied, 0.01) < best
    claim = claim_of(target, delta=0.01, total_weight=worst.total_weight)
    assert best <= claim.epsilon < 1.02 * best


@pytest.mark.parametrize("target", label_targets(), ids=lambda target: target.name)
def test_the_worst_pair_costs_more_than_the_tied_one_and_less_than_is_claimed(target):
    worst, tied = audited_pairs(target, delta=0.01)
    claim = claim_of(target, delta=0.01, total_weight=worst.total_weight)
    assert exact(target, tied, 0.01) * 0.999 <= exact(target, worst, 0.01) <= claim.epsilon
    # The claim for a bit and a label of one coin has more slack than the others.
    blunt = target.rate < 1 and target.mechanism.name != "gnmax"
    assert exact(target, worst, 0.01) > (0.4 if blunt else 0.5) * claim.epsilon


@pytest.mark.parametrize("target", label_targets(classes=5), ids=lambda target: target.name)
def test_counts_are_no_less_than_zero_and_one_vote_moves(target):
    for pair in audited_pairs(target, delta=0.01):
        assert (pair.levels > 0).all()
        before, after = pair.votes(1.0, moved=False), pair.votes(1.0, moved=True)
        assert before.tolist() == [1, 0, 0]
        assert after.tolist() == [0, 1, 0]
        assert pair.total_weight == pytest.approx(pair.levels @ [1, 1, 3] + 1)
        if pair.predictions is not None:
            assert pair.predictions @ [1, 1, 3] == pytest.approx(1, abs=1e-12)
            assert (pair.predictions >= 0).all()
            # Class 0 alone carries the tested maximum, whoever has the vote.
            for vote in (before, after):
                tested = pair.levels + vote - pair.total_weight * pair.predictions
                assert tested[0] > tested[1:].max() + 50


@settings(max_examples=6, deadline=None)
@given(
    sigma=st.floats(4.0, 30.0), ratio=st.floats(0.5, 4.0), queries=st.integers(1, 6), classes=st.integers(2, 5),
    weight=st.floats(0.1, 3.0), delta=st.floats(-6, -1).map(lambda x: 10**x), rate=st.sampled_from([0.25, 0.5, 1.0]),
    seed=st.integers(0, 2**32),
)  # fmt: skip
def test_no_pair_at_all_costs_more_than_is_claimed(sigma, ratio, queries, classes, weight, delta, rate, seed):
    """Random counts in place of the search, all mechanisms: the claim is an upper bound of every exact epsilon.

    sigma is above every weight: where it is not, float noise leaves no claim to hold against.
    """
    rng = np.random.default_rng(seed)
    for target in label_targets(
        queries=queries, classes=classes, weight=weight, sigma=sigma,
        parameters={"sigma_threshold": ratio * sigma, "gamma": 1 / sigma},
        rate=rate,
    ):  # fmt: skip
        dimensions = (1 if classes == 2 else 2) + (target.mechanism.name in ("confident_gnmax", "interactive_gnmax"))
        pair = pair_at("random", target, rng.normal(scale=2.0, size=dimensions))
        claim = claim_of(target, delta=delta, total_weight=pair.total_weight)
        assert exact(target, pair, delta) <= claim.epsilon * (1 + 1e-9)
