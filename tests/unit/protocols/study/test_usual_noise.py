"""Noise and threshold that are not given: shares of the votes, and less where the budgets would outlast the pool."""

import numpy as np
import pytest

from protocols.errors import InvalidInput
from protocols.study.usual_noise import is_usual, least_factor_for
from simulations.setup.experiment import experiment, experiment_budgets, make_study


def study_of(*, classes=10, queries=10_000, **given):
    settings = experiment(**{"parties": 50, "budgets": "2", "weights": "uniform", **given})
    return make_study(settings, experiment_budgets(settings), classes=classes, queries=queries)


def affords(study, limit):
    return int(study.budgets.affordable(np.zeros(len(study.roster), dtype=np.int64), limit=limit).min())


@pytest.mark.parametrize(("classes", "sigma", "threshold"), [(2, 23.0, 35.0), (3, 15.0, 32.5), (10, 15.0, 32.5)])
def test_the_noise_is_a_share_of_the_votes_and_another_with_two_classes(classes, sigma, threshold):
    values = study_of(classes=classes).mechanism.values
    assert values == {"sigma": pytest.approx(sigma), "threshold": pytest.approx(threshold)}


@pytest.mark.parametrize("accountant", ["label_only", "exact_composition"])
def test_budgets_that_would_outlast_the_pool_get_the_least_noise_with_which_all_of_it_can_be_asked(accountant):
    wide = study_of(accountant=accountant)
    study = study_of(accountant=accountant, queries=20)
    factor = study.mechanism.values["sigma"] / wide.mechanism.values["sigma"]
    assert affords(wide, 1000) > 20
    assert 0.1 < factor < 1
    assert study.mechanism.values["threshold"] == pytest.approx(factor * wide.mechanism.values["threshold"])
    assert affords(study, 1000) >= 20
    if accountant == "label_only":
        less = {name: 0.95 * value for name, value in study.mechanism.values.items()}
        assert affords(study_of(queries=20, **less), 1000) < 20


def test_noise_that_was_given_stays_whatever_the_pool():
    assert not is_usual("thresholded_gnmax", {"sigma": 15.0})
    assert is_usual("interactive_gnmax", {"round_one": 3})
    assert study_of(queries=20, sigma=15.0).mechanism.values["sigma"] == 15.0


def test_a_factor_for_which_there_is_no_study_is_too_small():
    def affordable(factor):
        if factor < 0.5:
            raise InvalidInput("no study")
        return round(100 * factor**2)

    assert 0.5 <= least_factor_for(10, affordable) < 0.52
    assert least_factor_for(10, lambda factor: 10) == 1.0
    assert least_factor_for(10, lambda factor: 11) == 0.1
