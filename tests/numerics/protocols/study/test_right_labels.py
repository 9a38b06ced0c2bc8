"""The bound on right labels against quadrature, and against votes of every other shape."""

import numpy as np
import pytest
import scipy.integrate
from scipy.stats import binom, laplace, norm

from protocols.study.right_labels import (
    LEAST_RIGHT,
    answered_by_noise,
    doubtful,
    most_right,
    needed_agreement,
    seldom_named,
    share_of_noise,
)
from tests.harness.levels import two_server
from tests.harness.studies import make_study

VOTERS = 50
ONE_DRAW = {"mechanism": "thresholded_gnmax", "sigma": 12.0, "threshold": 35.0, "sigma_threshold": None}
KINDS = {
    "thresholded_gnmax": ONE_DRAW,
    "confident_gnmax": {"mechanism": "confident_gnmax", "sigma": 9.0, "threshold": 40.0, "sigma_threshold": 20.0},
    "gnmax": {"mechanism": "gnmax", "sigma": 12.0, "threshold": None, "sigma_threshold": None},
    "lnmax": {"mechanism": "lnmax", "sigma": None, "threshold": None, "sigma_threshold": None, "gamma": 0.1,
              "account": "laplace"},
}  # fmt: skip


def study(kind, classes=4, **more):
    return make_study([4.0] * VOTERS, classes=classes, queries=100, **KINDS[kind], **more)


def slowly(kind, counts):
    """P(class 0 is released) and P(any is), by quadrature over the noise of each class in turn."""
    given = KINDS[kind]
    noise = laplace(scale=10.0) if kind == "lnmax" else norm(scale=given["sigma"])
    least = given["threshold"] if kind == "thresholded_gnmax" else -np.inf

    at = np.linspace(max(least, -250.0), 350.0, 12_001)

    def wins(label):
        others = noise.cdf(at[:, None] - np.delete(counts, label)).prod(axis=1)
        return scipy.integrate.trapezoid(noise.pdf(at - counts[label]) * others, at)

    answered = 1.0
    if kind == "confident_gnmax":
        answered = norm.sf(given["threshold"], loc=max(counts), scale=given["sigma_threshold"])
    won = np.array([wins(label) for label in range(len(counts))])
    return answered * won[0], answered * won.sum()


@pytest.mark.parametrize("kind", KINDS)
def test_the_share_of_right_labels_is_that_of_quadrature_and_no_other_votes_are_released_right_more_often(kind):
    made = study(kind)
    rng = np.random.default_rng(0)
    for agreement in (0.4, 0.9):
        top = agreement * VOTERS
        right, answered = slowly(kind, np.array([top, *[(VOTERS - top) / 3] * 3]))
        bound = most_right(made, agreement)
        assert bound == pytest.approx(right / answered, rel=1e-6)
        for _ in range(3):
            rest = rng.dirichlet(np.full(3, 0.7)) * (VOTERS - top)
            right, answered = slowly(kind, np.array([top, *rest]))
            assert right / answered <= bound + 1e-9


def test_more_agreement_and_less_noise_are_more_often_right_and_the_agreement_needed_gives_what_was_asked():
    made = study("thresholded_gnmax")
    shares = [most_right(made, share) for share in np.linspace(0.25, 1, 12)]
    assert np.all(np.diff(shares) > 0)
    assert shares[0] == pytest.approx(1 / 4)
    assert most_right(made, needed_agreement(made)) == pytest.approx(LEAST_RIGHT, abs=1e-4)
    loud = make_study([4.0] * VOTERS, classes=4, **{**KINDS["gnmax"], "sigma": 90.0})
    assert needed_agreement(loud) is None
    # Each of two servers adds all of the noise.
    shared = make_study(
        [4.0] * 5, classes=4, confidentiality=two_server(seats=5), **{**ONE_DRAW, "sigma": 3.0, "threshold": 4.0}
    )
    alone = make_study([4.0] * 5, classes=4, **{**ONE_DRAW, "sigma": 3.0 * 2**0.5, "threshold": 4.0})
    assert most_right(shared, 0.8) == pytest.approx(most_right(alone, 0.8), rel=1e-2)


def test_labels_that_noise_alone_would_have_released_are_doubted_and_so_is_one_class():
    made = study("thresholded_gnmax")
    alone = answered_by_noise(made)
    assert alone == pytest.approx(slowly("thresholded_gnmax", np.full(4, VOTERS / 4))[1], rel=1e-5)
    asked = 300
    enough = int(binom.isf(0.05, asked, alone)) + 1
    labels = np.full(asked, -1)
    labels[: enough - 1] = np.arange(enough - 1) % 4
    assert "the labels may be noise" in doubtful(made, labels)[0]
    # Where a model of some of the labels foretells the others, votes were heard.
    assert doubtful(made, labels, 9 * enough // 10) == []
    assert "the labels may be noise" in doubtful(made, labels, enough // 4)[-1]
    labels[enough - 1] = 0
    assert doubtful(made, labels) == []
    labels[labels >= 0] = 2
    assert "100 % of the released labels are of one class" in doubtful(made, labels)[0]
    labels[labels >= 0] = np.arange(enough) % 3
    assert "the released labels name 3 of 4 classes" in doubtful(made, labels)[0]


@pytest.mark.parametrize("agreement", [0.25, 0.4, 0.7])
def test_the_share_of_labels_that_noise_makes_wrong_is_told_by_how_many_queries_are_answered(agreement):
    rng = np.random.default_rng(1)
    right = np.maximum(rng.beta(4 * agreement, 4 * (1 - agreement), 3_000), 1 / 4)
    counts = VOTERS * np.stack([right, *[(1 - right) / 3] * 3], axis=1)
    noisy = counts + rng.normal(0.0, ONE_DRAW["sigma"], counts.shape)
    released = np.where(noisy.max(axis=1) >= ONE_DRAW["threshold"], noisy.argmax(axis=1), -1)
    wrong = 1 - ((released == 0) & (right > 1 / 4)).sum() / (released >= 0).sum()
    asked = np.concatenate([released, np.full(500, -2)])
    assert share_of_noise(study("thresholded_gnmax"), asked) == pytest.approx(wrong, abs=0.04)
    assert share_of_noise(study("gnmax"), np.maximum(released, 0)) == 0.0


def test_a_class_that_is_hardly_ever_the_likeliest_is_said_where_its_probability_is_more():
    soft = np.tile([0.9, 0.1, 0.0], (100, 1))
    soft[:4] = [0.2, 0.8, 0.0]
    assert seldom_named(soft, None) == []
    soft[1:4] = [0.6, 0.4, 0.0]
    said = (
        "class 1 is the likeliest for 1.0 % of the pool, with a probability of 11.6 % in the mean (1 such of 3 classes)"
    )
    assert said in seldom_named(soft, None)[0]
    assert seldom_named(soft, ["well", "ill", "dead"])[0].startswith("class ill is the likeliest for 1.0 %")
