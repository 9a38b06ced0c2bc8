"""Smooth sensitivity: vectors, one vote at a time, every neighbour of small electorates, laws and range."""

import itertools
import json
import os
from math import exp, log
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtr

from benchmarks.smooth import VoteSetting, critical_points, distance_bounds, gnmax_rdp, smooth_sensitivity
from protocols.errors import InvalidInput
from protocols.research.private import Private
from tests.harness.refusals import refuses

VECTORS = json.loads((Path(__file__).parents[3] / "vectors" / "smooth_sensitivity.json").read_text())
VOTES = Path(os.environ.get("CONCLAVE_DATA", "")) / "pate_votes" / "pate2018"
needs_data = pytest.mark.skipif(not VOTES.is_dir(), reason="CONCLAVE_DATA has no pate_votes")
HOLDS = [row for row in VECTORS["rows"] if all(row.get("C5_C6", [False]))]
FAILS = [row for row in VECTORS["rows"] if row not in HOLDS]


def vote_setting(sigma, order, classes, weights, sensitivity=1.0):
    return VoteSetting(
        sigma=sigma, order=order, classes=classes, weights=np.array(weights, float), sensitivity=sensitivity
    )


def row_setting(row):
    return vote_setting(row["sigma"], row["order"], row["classes"], np.ones(row["teachers"]))


def bounds_of(counts, setting, answered=None):
    counts = np.atleast_2d(np.asarray(counts, float))
    return distance_bounds(
        counts, setting, answered=np.ones(len(counts)) if answered is None else answered
    ).for_research()


def name(row):
    return f"{row['h']}-sigma={row['sigma']}-order={row['order']}"


@pytest.mark.parametrize("row", HOLDS, ids=name)
def test_bounds_and_smooth_sensitivities_equal_the_reference(row):
    setting, counts = row_setting(row), np.array([VECTORS["hist"][row["h"]]], float)
    points = critical_points(setting)
    assert (points.c5, points.c6) == (True, True)
    reference = [row["logq0"], row["logq1"], row["plateau"]]
    np.testing.assert_allclose([points.log_q0, points.log_q1, points.plateau], reference, rtol=2e-11)
    bounds = distance_bounds(counts, setting, answered=np.ones(1))
    shown = bounds.for_research()
    np.testing.assert_allclose(shown[: len(row["A_first_20"])], row["A_first_20"], rtol=2e-11)
    np.testing.assert_allclose(shown[[0, row["teachers"] - 1]], [row["ls0"], row["A_last"]], rtol=2e-11)
    for case in row["SS"].values():
        np.testing.assert_allclose(smooth_sensitivity(bounds, beta=case["beta"]).for_research(), case["SS"], rtol=2e-11)


@pytest.mark.parametrize("row", FAILS, ids=name)
def test_where_the_reference_fails_or_a_condition_does_the_condition_is_named(row):
    setting, counts = row_setting(row), np.array([VECTORS["hist"][row["h"]]], float)
    if "reference_error" not in row:
        points = critical_points(setting)
        assert [points.c5, points.c6] == row["C5_C6"]
        reference = [row["logq0"], row["logq1"], row["plateau"]]
        np.testing.assert_allclose([points.log_q0, points.log_q1, points.plateau], reference, rtol=2e-11)
    for function in (distance_bounds, gnmax_rdp):
        with refuses(InvalidInput, "C6"):
            function(counts, setting, answered=np.ones(1))


def electorate(weights, classes):
    """Every way in which units of these weights vote or abstain, and which pairs of ways differ in one unit."""
    choices = np.array(list(itertools.product(range(classes + 1), repeat=len(weights))))
    counts = np.stack([(weights * (choices == one)).sum(axis=1) for one in range(classes)], axis=1)
    return choices, counts


@pytest.mark.parametrize(
    ("weights", "classes", "sigma", "order", "sensitivity"),
    [
        (np.ones(6), 2, 1.3, 1.5, 1.0),
        (np.ones(5), 3, 1.0, 1.2, 1.0),
        (np.full(6, 2.5), 2, 2.5, 1.2, 2.5),
        (np.array([1.0, 0.7, 1.3, 2.0, 0.1]), 2, 1.1, 1.3, 1.0),
        (np.array([1.0, 0.3, 1.7, 2.0]), 3, 1.1, 1.3, 0.6),
    ],
)
def test_every_neighbour_of_every_small_electorate_is_covered(weights, classes, sigma, order, sensitivity):
    """f moves by at most A(0); A(d) covers all votes within distance d; SS does not grow by more than e^beta."""
    setting = vote_setting(sigma, order, classes, weights, sensitivity)
    choices, counts = electorate(weights, classes)
    distinct, member = np.unique(np.sort(counts, axis=1), axis=0, return_inverse=True)
    f = np.array([gnmax_rdp(row[None], setting, answered=np.ones(1)).for_research() for row in distinct])
    f, bounds = f[member.ravel()], np.array([bounds_of(row, setting) for row in distinct])[member.ravel()]
    # The electorate reaches from the data-dependent side of the curve to the other.
    assert f.min() < 0.5 * f.max()
    distance = (choices[:, None, :] != choices[None, :, :]).sum(axis=2)
    change = np.where(distance == 1, np.abs(f[:, None] - f[None, :]), 0.0).max(axis=1)
    slack = 1e-12 * f.max()
    for d in range(len(weights) + 1):
        reach = np.where(distance <= d, change[None, :], 0.0).max(axis=1)
        assert (reach <= bounds[:, d] + slack).all()
    first, second = np.nonzero(distance == 1)
    assert (bounds[first, :-1] <= bounds[second, 1:] + slack).all()
    betas = np.array([0.05, 0.3, 1.0])
    smooth = np.array([smooth_sensitivity(Private(bound), beta=betas).for_research() for bound in bounds])
    for beta, ss in zip(betas, smooth.T, strict=True):
        assert (ss[first] <= exp(beta) * ss[second] * (1 + 1e-12)).all()
        assert (change <= ss * (1 + 1e-12)).all()


@needs_data
@pytest.mark.parametrize(
    ("votes", "queries", "threshold", "sigma1", "order", "lam_beta", "epsilon", "ss"),
    [("mnist", 640, 200, 150, 14.0, 0.46, 2.00, 0.0618), ("adult", 1500, 300, 200, 15.5, 0.48, 1.68, 0.0332)],
)
def test_the_papers_table_2_is_reproduced_on_the_papers_votes(
    votes, queries, threshold, sigma1, order, lam_beta, epsilon, ss
):
    """Expected answers, as the authors weigh; the threshold charged in full; to the digits that were printed."""
    counts = np.load(VOTES / f"{votes}_250_teachers.npy")[:queries]
    setting = vote_setting(40, order, counts.shape[1], np.ones(250))
    answered = ndtr((counts.max(axis=1) - threshold) / sigma1)
    answers = gnmax_rdp(counts, setting, answered=answered).for_research()
    assert answers + queries * order / (2 * sigma1**2) + log(1e5) / (order - 1) == pytest.approx(epsilon, abs=0.005)
    bounds = distance_bounds(counts, setting, answered=answered)
    assert smooth_sensitivity(bounds, beta=lam_beta / order).for_research()[0] == pytest.approx(ss, abs=1.5e-4)
