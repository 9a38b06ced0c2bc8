"""One suite for every mechanism of the table, and what each alone promises."""

import sys

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from protocols.errors import InvalidInput
from protocols.mechanisms import MECHANISMS, GNMax, Sensitivity, check_view, make_mechanism
from protocols.noise import simulated
from protocols.votes import ABSTAIN, LATTICE
from tests.harness.distributions import install, refreshed
from tests.harness.refusals import refuses

PARAMETERS = {
    "gnmax": {"sigma": 10.0},
    "thresholded_gnmax": {"sigma": 10.0, "threshold": 30.0},
    "confident_gnmax": {"sigma": 10.0, "sigma_threshold": 12.0, "threshold": 30.0},
    "interactive_gnmax": {
        "sigma": 10.0,
        "sigma_threshold": 12.0,
        "threshold": 30.0,
        "interactive_threshold": 15.0,
        "reinforce_confidence": 0.9,
        "round_one": 10,
    },
    "lnmax": {"gamma": 0.1},
    # Of its votes the squared move is then that of a vote between classes.
    "tau": {"sigma": 10.0, "tau": 1.0, "threshold": 30.0},
}
GAUSSIAN = [name for name in MECHANISMS.own if MECHANISMS[name].noise_law == "gaussian"]
ORDERS = np.array([1.5, 2.0, 8.0, 64.0])


def make(name, view="label"):
    parameters = dict(PARAMETERS[name])
    if view == "histogram":
        parameters.pop("sigma_threshold", None)
    return make_mechanism(name, **parameters, view=view)


def noise(seed=0):
    return simulated(np.random.default_rng(seed))


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("from protocols.mechanisms import GNMax\nclass Odd(GNMax):\n    name = 'even'\n", ("name", "even", "odd")),
        (
            "from protocols.mechanisms import Mechanism\nclass Odd(Mechanism):\n    name = 'even'\n",
            ("odd", "tested_odd", "released_words", "allowed"),
        ),
        ("Odd = 3\n", ("it", 3)),
    ],
)
def test_a_mechanism_of_another_distribution_with_a_wrong_name_or_a_missing_method_is_refused_for_that_alone(
    tmp_path, monkeypatch, source, why
):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "tested_odd", raising=False)
    install(tmp_path, name="tested_odd", group="conclave.mechanisms", entries={"odd": "tested_odd:Odd"}, source=source)
    with refuses(InvalidInput, *why) as refused:
        _ = refreshed(MECHANISMS)["odd"]
    assert ("does not define" in str(refused.value)) + ("its name is" in str(refused.value)) <= 1


@pytest.mark.parametrize("view", ["label", "histogram"])
@pytest.mark.parametrize("name", MECHANISMS.own)
def test_every_mechanism_has_parameters_here_and_releases_one_label_or_abstention_a_query(name, view):
    counts = np.random.default_rng(1).integers(0, 50, (200, 7)).astype(float)
    labels = make(name, view).release(counts, noise(), view=view)
    assert labels.shape == (200,)
    assert ((labels >= ABSTAIN) & (labels < (2**7 if name == "tau" else 7))).all()
    np.testing.assert_array_equal(labels, make(name, view).release(counts, noise(), view=view))


@pytest.mark.parametrize("name", GAUSSIAN)
def test_costs_grow_with_sensitivity_and_order_and_label_only_is_never_above_gaussian(name):
    mechanism = make(name)
    sensitivity = Sensitivity.always(np.array([0.1, 1.0, 5.0]), delta_squared=2)
    gaussian = mechanism.noise_rdp(sensitivity, ORDERS, view="label")
    label_only = mechanism.label_only_rdp(sensitivity, ORDERS, classes=10)
    for part in ("ask", "answer"):
        loose, tight = getattr(gaussian, part), getattr(label_only, part)
        assert loose.shape == tight.shape == (3, 4)
        assert (tight <= loose * (1 + 1e-12)).all()
        assert (np.diff(tight, axis=0) >= 0).all()
        assert (np.diff(tight, axis=1) >= 0).all()
    mu = mechanism.gaussian_dp(sensitivity, view="label")
    # RDP of mu-GDP is a mu^2 / 2: the Gaussian accountants speak of the same mechanism.
    np.testing.assert_allclose(mu.ask * ORDERS / 2, gaussian.ask)
    np.testing.assert_allclose(mu.answer * ORDERS / 2, gaussian.answer)


def test_a_bound_for_votes_between_classes_is_refused_to_a_unit_that_moves_the_counts_further(subtests):
    far = Sensitivity.always(np.ones(1), delta_squared=4)
    secret = Sensitivity(np.ones(1), np.full(1, 0.5), delta_squared=4)
    costs = {
        "label of GNMax": lambda: make("gnmax").label_only_rdp(far, ORDERS, classes=10),
        "pairs of GNMax": lambda: make("gnmax").label_pairs(far, classes=10),
        "secret coins": lambda: make("gnmax").noise_rdp(secret, ORDERS, view="histogram"),
        "threshold": lambda: make("confident_gnmax").noise_rdp(far, ORDERS, view="label"),
        "threshold, by mu": lambda: make("confident_gnmax").gaussian_dp(far, view="label"),
        "Laplace": lambda: make("lnmax").noise_rdp(far, ORDERS, view="label"),
    }
    for name, cost in costs.items():
        with subtests.test(name), refuses(InvalidInput, 4, 2):
            cost()


def label_probabilities(counts, sigma):
    """P[argmax = c] by quadrature, independently of the mechanism."""
    result = []
    for c, own in enumerate(counts):
        others = np.delete(counts, c)
        density = lambda x, own=own, others=others: (  # noqa: E731
            stats.norm.pdf(x, own, sigma) * stats.norm.cdf(x, others, sigma).prod()
        )
        result.append(quad(density, max(counts) - 12 * sigma, max(counts) + 12 * sigma, limit=400)[0])
    return np.array(result)


def test_gnmax_has_the_label_distribution_of_independent_gaussian_noise():
    """Chi-squared on 100,000 releases, false-alarm rate 1e-6. Noise shared by the classes would never err."""
    counts = np.array([30.0, 26.0, 20.0, 5.0])
    draws = 100_000
    labels = make("gnmax").release(np.tile(counts, (draws, 1)), noise(), view="label")
    expected = label_probabilities(counts, 10.0)
    assert expected.sum() == pytest.approx(1, abs=1e-8)
    observed = np.bincount(labels, minlength=4)
    assert stats.chisquare(observed, expected / expected.sum() * draws).pvalue > 1e-6


def test_confident_gnmax_answers_with_the_probability_of_its_threshold():
    """Exact binomial test of the number of answers, and the labels' law given an answer is that of GNMax."""
    counts = np.array([28.0, 20.0, 8.0])
    draws = 100_000
    labels = make("confident_gnmax").release(np.tile(counts, (draws, 1)), noise(), view="label")
    passed = stats.norm.sf((30.0 - 28.0) / 12.0)
    answered = int((labels != ABSTAIN).sum())
    assert stats.binomtest(answered, draws, passed).pvalue > 1e-6
    expected = label_probabilities(counts, 10.0)
    observed = np.bincount(labels[labels != ABSTAIN], minlength=3)
    assert stats.chisquare(observed, expected / expected.sum() * answered).pvalue > 1e-6


def test_the_histogram_view_tests_the_threshold_on_the_histogram_that_is_seen():
    counts = np.tile(np.array([28.0, 20.0, 8.0]), (5000, 1))
    labels = make("confident_gnmax", "histogram").release(counts, noise(), view="histogram")
    seen = np.rint((counts + 10.0 * np.random.default_rng(0).standard_normal(counts.shape)) * LATTICE) / LATTICE
    expected = np.where(seen.max(axis=1) >= 30.0, seen.argmax(axis=1), ABSTAIN)
    np.testing.assert_array_equal(labels, expected)


@pytest.mark.parametrize("sigma", [0.0, -2.0, float("nan"), float("inf")])
@pytest.mark.parametrize("name", GAUSSIAN)
def test_a_sigma_out_of_range_is_refused(name, sigma):
    with refuses(InvalidInput, "> 0"):
        make_mechanism(name, **{**PARAMETERS[name], "sigma": sigma}, view="label")


def test_parameters_that_are_missing_or_have_no_use_are_refused():
    with refuses(InvalidInput, "gnmax", "sigma"):
        make_mechanism("gnmax", sigma=1.0, sigma_threshold=None, threshold=3.0, view="label")
    with refuses(InvalidInput, "threshold"):
        make_mechanism("confident_gnmax", sigma=1.0, sigma_threshold=1.0, threshold=None, view="label")
    with refuses(InvalidInput, "sigma_threshold"):
        make_mechanism("confident_gnmax", sigma=1.0, sigma_threshold=None, threshold=1.0, view="label")
    with refuses(InvalidInput, "sigma_threshold", "histogram"):
        make_mechanism("confident_gnmax", sigma=1.0, sigma_threshold=1.0, threshold=1.0, view="histogram")
    with refuses(InvalidInput, "thresholded_gnmax", "confident_gnmax"):
        make_mechanism("noisy_max", sigma=1.0, view="label")
    with refuses(InvalidInput, "scale", "gnmax"):
        make_mechanism("gnmax", sigma=1.0, scale=2.0, view="label")
    with refuses(InvalidInput, "label, histogram"):
        check_view("clear")


def test_a_mechanism_of_one_round_reinforces_no_label_and_takes_nothing_off_the_counts():
    predictions = np.array([[0.99, 0.01], [0.5, 0.5]])
    plain = GNMax(sigma=4.0)
    np.testing.assert_array_equal(plain.reinforced(np.array([ABSTAIN, 0]), predictions), [ABSTAIN, ABSTAIN])
    with refuses(NotImplementedError, "gnmax"):
        plain.offsets(predictions, 10.0)
