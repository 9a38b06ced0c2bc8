"""The delta that a lifetime cap reserves for float noise, against everything that can be released, path by path.

A small world in which all is known: two data sets, up to three studies, each chosen by what was released before, each
releasing one of three outcomes by ideal noise or, at some total variation distance of it, by the noise that is drawn.
"""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from party.lifetime import CURRENCIES, LifetimeCap, _left, first_order, study_cost
from tests.harness.studies import make_study

OUTCOMES, STUDIES = 3, 3


def worlds(rng, room):
    """P[path] on both data sets, with the noise that is drawn and with ideal noise: shape [drawn or ideal, 2, paths].

    The distances of the studies on a path add up to at most `room`, and depend on what was released on it.
    """
    paths = [(np.ones((2, 2)), room)]
    for _ in range(STUDIES):
        longer = []
        for probability, left in paths:
            distance = left * rng.uniform() ** 2
            ideal = rng.dirichlet(np.ones(OUTCOMES), size=2)
            drawn = ideal + distance * moved(rng, ideal, distance)
            for outcome in range(OUTCOMES):
                step = np.stack([drawn[:, outcome], ideal[:, outcome]])
                longer.append((probability * step, left - distance))
        paths = longer
    return np.stack([probability for probability, _ in paths], axis=2)


def moved(rng, ideal, distance):
    """For each data set, a direction of total variation 1 along which `distance` leaves probabilities."""
    directions = np.zeros_like(ideal)
    for row in range(2):
        giver = int(ideal[row].argmax())
        assert ideal[row, giver] >= distance
        directions[row, giver] = -1.0
        directions[row, (giver + 1 + int(rng.integers(OUTCOMES - 1))) % OUTCOMES] = 1.0
    return directions


def hockey_stick(p, q, epsilon):
    """The least delta at which p is within (epsilon, delta) of q, and the reverse."""
    return max(float(np.maximum(one - math.exp(epsilon) * other, 0).sum()) for one, other in ((p, q), (q, p)))


@settings(deadline=None, max_examples=200)
@given(seed=st.integers(0, 2**32), room=st.floats(1e-6, 0.2), epsilon=st.floats(0.01, 4))
def test_a_reserved_share_of_delta_covers_the_noise_that_is_drawn_on_every_path(seed, room, epsilon):
    drawn, ideal = worlds(np.random.default_rng(seed), room)
    for here, there in zip(drawn, ideal, strict=True):
        assert np.abs(here - there).sum() / 2 <= room * (1 + 1e-9)
    needed = hockey_stick(*drawn, epsilon)
    assert needed <= hockey_stick(*ideal, epsilon) + (1 + math.exp(epsilon)) * room + 1e-12


def test_the_reserve_is_the_one_of_the_proof_and_stands_before_any_float_noise_is_drawn():
    cap = LifetimeCap(2.0, 1e-5)
    cost = study_cost(make_study([1.0] * 250), "p0", unit="record", spent=None, told_apart=False)
    order, room = first_order(cap, cost)
    assert order in CURRENCIES
    assert room >= max(0.01 * 1e-5 / (1 + math.exp(2.0)), cost.noise_distance)
    # delta for ideal noise, and (1 + e^epsilon) times the room, are the delta that is promised.
    assert math.isclose(_left(1e-5, 2.0, room) + (1 + math.exp(2.0)) * room, 1e-5, rel_tol=1e-12)
    assert cap.affords(room).max() < cap.affords(0.0).max()
