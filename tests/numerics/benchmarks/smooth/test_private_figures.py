"""All that smooth sensitivity gives is private."""

import numpy as np

from benchmarks.smooth import VoteSetting, distance_bounds, gnmax_rdp, smooth_sensitivity
from protocols.research.private import Private

GOOD = {"sigma": 40, "order": 14.0, "classes": 3, "weights": np.ones(250), "sensitivity": 1}
COUNTS = np.array([[200.0, 30.0, 20.0]])


def test_figures_that_depend_on_votes_are_private_and_no_answers_cost_nothing():
    setting = VoteSetting(**GOOD)
    bounds = distance_bounds(COUNTS, setting, answered=np.zeros(1))
    cost = gnmax_rdp(COUNTS, setting, answered=np.zeros(1))
    assert isinstance(bounds, Private)
    assert isinstance(cost, Private)
    assert isinstance(smooth_sensitivity(bounds, beta=0.1), Private)
    assert cost.for_research() == 0
    assert (bounds.for_research() == 0).all()
