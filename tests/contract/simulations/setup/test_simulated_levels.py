"""The levels of confidentiality in the simulator: a live study over ballots and its replay are one."""

import numpy as np
import pytest

from protocols.errors import InvalidInput
from protocols.labelling.stored_votes import CastVotes
from protocols.levels.simulated import drawn_noise
from simulations.setup.experiment import experiment, experiment_budgets, make_study
from simulations.stages.label import check_live, label_seed, live_study
from tests.harness.studies import make_votes

VOTES, TRUTH = make_votes(20, 120, teachers=1)
LEVELS = {"clear": {"units": 64}, "two_server": {}, "secure_sum": {"view": "histogram", "quorum": 14, "colluders": 5}}


def study_of(level, **more):
    settings = experiment(parties=20, budgets="8.0:0.5,12.0:0.5", confidentiality=level, **(LEVELS[level] | more))
    return make_study(settings, experiment_budgets(settings), classes=10, queries=120)


def by_labels(labels, left, size):
    return np.roll(left, -int(labels[labels >= 0].sum()))[::-2][:size]


@pytest.mark.parametrize(("dropout", "choose"), [(0.0, None), (0.15, by_labels)])
@pytest.mark.parametrize("level", LEVELS)
def test_a_live_study_over_ballots_and_its_replay_release_and_charge_the_same(level, dropout, choose):
    study = study_of(level, questions="given" if choose is None else "uncertainty:30")
    stored = CastVotes(10, VOTES)
    replayed = label_seed(study, stored, seed=3, dropout=dropout, truth=TRUTH, choose=choose).labelling
    check_live(live_study(study, stored, seed=3, dropout=dropout, choose=choose), replayed)
    assert (replayed.labels >= 0).any()


@pytest.mark.parametrize(
    ("level", "mechanism"),
    [("clear", "confident_gnmax"), ("clear", "thresholded_gnmax"), ("two_server", "thresholded_gnmax")],
)
def test_noise_lifts_unanimous_votes_to_a_threshold_above_their_number(level, mechanism):
    """300 of 250 votes is how SVHN and Adult were published (Papernot et al. 2018)."""
    noise = {"sigma_threshold": 16.0} if mechanism == "confident_gnmax" else {}
    study = study_of(level, mechanism=mechanism, sigma=16.0, threshold=24.0, **noise)
    stored = CastVotes(10, np.zeros((20, 1, 120), dtype=np.int8))
    replayed = label_seed(study, stored, seed=3, dropout=0.0, truth=None).labelling
    check_live(live_study(study, stored, seed=3, dropout=0.0), replayed)
    assert 0 < (replayed.labels >= 0).sum() < 120


def test_noise_of_two_servers_is_twice_the_variance_of_one():
    study = study_of("two_server", mechanism="gnmax", sigma=100.0)
    drawn = drawn_noise(study, seed=0)(np.ones(20, dtype=bool)).draw(5000, 6400)
    # The sample variance of 5,000 draws is within 10 % (five standard errors) but for 1 in 1,700,000.
    assert drawn.var() == pytest.approx(2 * 6400**2, rel=0.1)


@pytest.mark.parametrize(
    ("level", "more", "message"),
    [
        ("two_server", {"view": "histogram"}, "allowed: 'label'"),
        ("secure_sum", {"view": "label"}, "allowed: 'histogram'"),
        ("secure_sum", {"stop": "drop-exhausted"}, "first-exhausted"),
        ("secure_sum", {"quorum": 8}, "allowed: at least"),
        ("secure_sum", {"colluders": 14}, "below the quorum"),
        ("two_server", {"colluders": 3}, "does not use it"),
        ("two_server", {"mechanism": "lnmax"}, "no integer noise"),
        ("two_server", {"mechanism": "confident_gnmax"}, "level 'two_server': thresholded_gnmax, or another"),
        ("two_server", {"mechanism": "interactive_gnmax"}, "level 'two_server': thresholded_gnmax, or another"),
        ("two_server", {"units": 100}, "power of two"),
        ("two_server", {"units": 2}, "allowed"),
        ("two_server", {"sigma": 1e7}, "allowed: below"),
        ("two_server", {"sigma": 1100.0}, "sigma = 70400 units; allowed: at most 65536"),
        ("secure_sum", {"accountant": "gaussian_dp", "sigma": 0.9}, "does not hold"),
        ("two_server", {"accountant": "gaussian_dp"}, "does not hold"),
    ],
)
def test_terms_that_a_level_cannot_carry_are_refused(level, more, message):
    with pytest.raises(InvalidInput, match=message):
        study_of(level, **more)
