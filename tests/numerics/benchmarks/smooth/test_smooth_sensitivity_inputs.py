"""Settings, votes and betas out of range are refused by smooth sensitivity, and all that it gives is private."""

import numpy as np
import pytest

from benchmarks.smooth import (
    VoteSetting,
    distance_bounds,
    gnmax_rdp,
    smooth_sensitivity,
)
from protocols.errors import InvalidInput
from protocols.research.private import Private

GOOD = {"sigma": 40, "order": 14.0, "classes": 3, "weights": np.ones(250), "sensitivity": 1}
COUNTS = np.array([[200.0, 30.0, 20.0]])


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"sigma": 0.0}, "sigma is 0.0"),
        ({"order": 1.0}, "orders are"),
        ({"classes": 1}, "classes = 1"),
        ({"weights": np.zeros(3)}, "weights are"),
        ({"weights": np.ones(0)}, "weights are"),
        ({"sensitivity": -1.0}, "sensitivity is -1.0"),
        ({"sensitivity": np.inf}, "sensitivity is inf"),
    ],
)
def test_settings_out_of_range_are_refused(change, named):
    with pytest.raises(InvalidInput, match=named):
        VoteSetting(**{**GOOD, **change})


@pytest.mark.parametrize(
    ("counts", "answered", "named"),
    [
        (COUNTS[:, :2], np.ones(1), "counts of 2 classes"),
        (COUNTS, np.ones(2), "answered has 2 entries"),
        (COUNTS, np.array([-1.0]), "answered has an entry"),
        (COUNTS, np.array([np.nan]), "answered has an entry"),
        (COUNTS * np.nan, np.ones(1), "counts have an entry"),
        (COUNTS - 25, np.ones(1), "counts have an entry"),
        (COUNTS * 2, np.ones(1), "more votes than all weights together, 250"),
        (COUNTS / 3, np.ones(1), "not whole votes of weight 1"),
    ],
)
def test_votes_that_do_not_fit_the_setting_are_refused(counts, answered, named):
    with pytest.raises(InvalidInput, match=named):
        distance_bounds(counts, VoteSetting(**GOOD), answered=answered)


@pytest.mark.parametrize("beta", [0.0, -1.0, np.nan, np.inf])
def test_a_beta_out_of_range_is_refused(beta):
    bounds = distance_bounds(COUNTS, VoteSetting(**GOOD), answered=np.ones(1))
    with pytest.raises(InvalidInput, match="beta is"):
        smooth_sensitivity(bounds, beta=beta)


def test_figures_that_depend_on_votes_are_private_and_no_answers_cost_nothing():
    setting = VoteSetting(**GOOD)
    bounds = distance_bounds(COUNTS, setting, answered=np.zeros(1))
    cost = gnmax_rdp(COUNTS, setting, answered=np.zeros(1))
    assert isinstance(bounds, Private)
    assert isinstance(cost, Private)
    assert isinstance(smooth_sensitivity(bounds, beta=0.1), Private)
    assert cost.for_research() == 0
    assert (bounds.for_research() == 0).all()
