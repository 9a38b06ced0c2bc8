"""A warning of noise that hides the votes, or of a threshold out of reach, counts the noise that is released."""

from dataclasses import replace
from math import floor

import numpy as np
import pytest
from scipy.special import ndtr

from protocols.study.released_noise import (
    few_answers,
    little_released,
    noise_in,
    noise_of_mean,
    seldom_answered,
    thin_queries,
    usual_residuals,
)
from tests.harness.deployed_records import draft, record_study_of
from tests.harness.levels import two_server
from tests.harness.studies import make_study


def test_units_are_usually_asked_twice_where_the_pool_is_too_small_for_the_noise_of_graded_features_of_one_label():
    study, _ = record_study_of("graded", epsilon=8.0)
    most = 1 / (study.votes.queries * study.classes * noise_of_mean(study) ** 2)
    assert [usual_residuals(study, pool=round(share * most)) for share in (0.9, 1.1)] == [True, False]
    for other in ({"share": 0.2}, {"findings": ("first", "second")}):
        assert not usual_residuals(record_study_of("graded", epsilon=8.0, **other)[0], pool=2)
    assert not usual_residuals(record_study_of("columns", epsilon=8.0)[0], pool=2)


def test_a_warning_counts_all_the_noise_in_a_sum():
    study = draft()
    held = study.votes.held
    clear = study.voting(sigma=0.9 * held)
    assert thin_queries(clear) is None
    # Each of two servers adds all of sigma.
    shared = draft(level=two_server(seats=3)).voting(sigma=0.9 * held)
    assert noise_in(shared) == pytest.approx(2**0.5 * 0.9 * held)
    assert thin_queries(shared).startswith(f"a query holds about {held:.3g} votes")
    assert little_released(shared) == thin_queries(shared)


@pytest.mark.parametrize(("threshold", "sigma_threshold"), [(300.0, 200.0), (250.0, 1e-3), (600.0, 150.0)])
def test_a_threshold_that_votes_or_noise_can_reach_is_not_warned_of(threshold, sigma_threshold):
    """300 of 250 votes at sigma1 = 200 is how SVHN and Adult were published (Papernot et al. 2018)."""
    assert few_answers(make_study([2.0] * 250, threshold=threshold, sigma_threshold=sigma_threshold)) is None
    assert few_answers(make_study([2.0] * 250, mechanism="gnmax", sigma_threshold=None, threshold=None)) is None


def probability_stated(study):
    warning = little_released(study)
    assert warning.startswith(f"the threshold is {study.mechanism.threshold:g} votes, and 250 can be cast: ")
    return float(warning.split("a probability of ")[1].split(",")[0])


def test_a_threshold_out_of_reach_is_warned_of_with_the_probability_of_an_answer_to_unanimous_votes():
    study = make_study([2.0] * 250, threshold=750.0)
    assert probability_stated(study) == pytest.approx(ndtr((250 - 750) / 150), rel=0.05)
    one_draw = make_study([2.0] * 250, mechanism="thresholded_gnmax", sigma_threshold=None, threshold=420.0)
    reached = 1 - ndtr((420 - 250) / 40) * ndtr(420 / 40) ** 9
    assert reached * one_draw.query_limit < 1
    assert probability_stated(one_draw.voting(query_limit=100)) == pytest.approx(reached, rel=0.05)
    # Where one query in a thousand is answered, a thousand queries are worth asking.
    assert few_answers(study.voting(query_limit=2000, mechanism=replace(study.mechanism, threshold=720.0))) is None


def test_only_queries_that_the_budgets_afford_are_counted():
    """A thousand may be asked of 250 votes at a chance of 0.00135; a budget of 2 pays for fewer."""
    rich, poor = (
        make_study([epsilon] * 250, mechanism="thresholded_gnmax", sigma_threshold=None, threshold=370.0)
        for epsilon in (8.0, 2.0)
    )
    reached = 1 - ndtr((370 - 250) / 40) * ndtr(370 / 40) ** 9
    asked = int(poor.budgets.affordable(np.zeros(250, dtype=np.int64), limit=1000)[0])
    assert asked * reached < 1 < reached * 1000
    assert f"expected of {asked:,} queries" in little_released(poor)
    assert little_released(rich) is None
    # An abstention costs less than an answer, so that more queries are paid for than if all were answered.
    confident = make_study([2.0] * 250, threshold=900.0, queries=100_000)
    asked = floor(confident.budgets.cap[0] / 1e9 / confident.budgets.ask[0])
    assert int(little_released(confident).split("expected of ")[1].split()[0].replace(",", "")) == pytest.approx(
        asked, abs=1
    )


def test_a_threshold_that_unanimous_votes_reach_is_no_reason_for_a_warning_however_few_queries_there_are():
    mechanism = make_study([2.0] * 250).mechanism
    assert seldom_answered(mechanism, votes=250.0, classes=10, queries=1) is None
    assert "of 1 queries" in seldom_answered(mechanism, votes=100.0, classes=10, queries=1)


def test_the_noise_of_both_servers_lifts_votes_to_a_threshold_that_one_servers_would_not():
    study = make_study([2.0] * 250, threshold=450.0, confidentiality=two_server(seats=250))
    assert probability_stated(study) == pytest.approx(ndtr((250 - 450) / (2**0.5 * 40)), rel=0.05)
