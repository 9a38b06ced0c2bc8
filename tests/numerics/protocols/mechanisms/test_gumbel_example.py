"""The page's Gumbel noisy-max: its release, its bound against exact divergences, and its noise in float64."""

import sys
from importlib import import_module

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from protocols.budgets.accountant import accountant, default_accountant
from protocols.errors import InvalidInput
from protocols.mechanisms import Sensitivity
from protocols.noise import simulated
from tests.harness.distributions import install_gumbel
from tests.harness.refusals import refuses


@pytest.fixture(scope="module")
def gumbel(tmp_path_factory):
    """The class of the page."""
    folder = install_gumbel(tmp_path_factory.mktemp("plugin"))
    sys.path.insert(0, str(folder))
    try:
        yield import_module("gumbel_noisy_max").GumbelMax
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("gumbel_noisy_max", None)


def softmax(counts, scale):
    """The exponential mechanism with 30 digits."""
    weights = [mpmath.exp(mpmath.mpf(float(count)) / mpmath.mpf(float(scale))) for count in counts]
    return [weight / mpmath.fsum(weights) for weight in weights]


def divergence(before, after, scale, order):
    """D_order(before || after) of the label, with 30 digits."""
    with mpmath.workdps(30):
        pairs = list(zip(softmax(before, scale), softmax(after, scale), strict=True))
        total = mpmath.fsum(p ** mpmath.mpf(order) * q ** (1 - mpmath.mpf(order)) for p, q in pairs)
        return float(mpmath.log(total) / (mpmath.mpf(order) - 1))


def test_the_release_is_the_exponential_mechanism(gumbel):
    """Chi-squared on 200,000 releases, false-alarm rate 1e-6; the law against an independent softmax."""
    counts, draws = np.array([30.0, 26.0, 20.0, 20.0]), 200_000
    mechanism = gumbel(scale=4.0)
    labels = mechanism.release(np.tile(counts, (draws, 1)), simulated(np.random.default_rng(3)), view="label")
    expected = np.array([float(p) for p in softmax(counts, 4.0)])
    assert stats.chisquare(np.bincount(labels, minlength=4), expected * draws).pvalue > 1e-6
    law = mechanism.outcome_log_law(np.array([30.0, 26.0, 20.0]), np.array([1, 1, 2]))
    np.testing.assert_allclose(np.exp(law), [expected[0], expected[1], expected[2] + expected[3]], rtol=1e-12)


@settings(max_examples=60, deadline=None)
@given(
    rest=st.lists(st.floats(0, 40), min_size=2, max_size=5), first=st.integers(0, 1), weight=st.floats(0.1, 8),
    scale=st.floats(0.5, 20), order=st.floats(1.1, 60),
)  # fmt: skip
def test_the_bound_is_above_the_exact_divergence_of_any_moved_vote(gumbel, rest, first, weight, scale, order):
    before, after = np.array(rest), np.array(rest)
    before[first] += weight
    after[1 - first] += weight
    cost = gumbel(scale=scale).noise_rdp(
        Sensitivity.always(np.array([weight]), delta_squared=2), np.array([order]), view="label"
    )
    exact = divergence(before, after, scale, order)
    assert exact <= cost.ask[0, 0] * (1 + 1e-9)
    assert cost.answer[0, 0] == 0


def test_each_noisy_count_lies_within_what_the_noise_distance_assumes(gumbel):
    """Float Gumbel quantiles against mpmath, at draws from deep tail to deep tail."""
    z = np.linspace(-9.8, 9.8, 201)
    got = gumbel(scale=1.0).noisy(np.zeros((201, 1)), lambda shape: z.reshape(shape), view="label")[:, 0]
    with mpmath.workdps(40):
        exact = [-mpmath.log(-mpmath.log(mpmath.ncdf(mpmath.mpf(float(each))))) for each in z]
        errors = np.array([float(abs(mpmath.mpf(float(a)) - b)) for a, b in zip(got, exact, strict=True)])
    allowed = 34 + 3 * (z**2 / 2 + np.abs(z) + 2)
    assert (errors <= allowed * 2.0**-53).all()
    assert 0 < gumbel(scale=4.0).noise_distance(classes=10, total_weight=250.0) < 1e-11


def test_no_accountant_but_its_own_holds_and_none_for_what_would_show_its_counts(gumbel):
    mechanism = gumbel(scale=4.0)
    assert default_accountant(mechanism, "label").name == "renyi"
    for name in ("gaussian", "gaussian_dp", "label_only", "laplace"):
        with refuses(InvalidInput, name, "gumbel_max"):
            accountant(name).check(mechanism, "label")
    with refuses(InvalidInput, "histogram", "gumbel_max"):
        default_accountant(mechanism, "histogram")
    with refuses(InvalidInput, "label", "gumbel_max"):
        default_accountant(mechanism, "label", secret_coins=True)
    with refuses(InvalidInput, "scale", "0.0"):
        gumbel(scale=0.0)
