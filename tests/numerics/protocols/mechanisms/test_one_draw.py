"""What one draw is charged, against its exact divergence: real-valued and integer noise, every kind of move.

A unit of total weight s moves its votes, soft votes and abstentions in any way; 2 to 5 classes, thresholds from far
below to far above the counts, both directions (docs/explanation/one-draw.md).
"""

from functools import cache

import numpy as np
import pytest
from scipy.special import logsumexp

from protocols.bounds.label_only import label_rdp
from protocols.mechanisms import Lattice, Sensitivity
from protocols.mechanisms.decision import Decision
from protocols.mechanisms.thresholded_gnmax import ThresholdedGNMax
from protocols.mechanisms.winner_law import mixed

ORDERS = np.array([1.05, 2.0, 8.0, 32.0])
KINDS = ("one vote", "abstains", "returns", "soft votes")


def moves(rng, kind, classes, size):
    """What a unit of weight 1 adds before and after: [size, classes] each."""
    before, after = (np.eye(classes)[rng.integers(classes, size=size)] for _ in range(2))
    if kind == "abstains":
        after = np.zeros_like(after)
    if kind == "returns":
        before = np.zeros_like(before)
    if kind == "soft votes":
        before, after = (rng.dirichlet(np.full(classes + 1, 0.5), size=size)[:, :-1] for _ in range(2))
    return before, after


def divergences(p, q):
    """Both directions, [settings, orders]; rows of log-probabilities."""
    pairs = ((p, q), (q, p))
    return [np.stack([logsumexp(a * x + (1 - a) * y, axis=-1) / (a - 1) for a in ORDERS], axis=-1) for x, y in pairs]


# Total weights in sigmas, and in lattice units at 64 units: few, as a bound is a search.
SHIFTS = np.array([0.02, 0.1, 0.4, 1.0, 2.4])
UNITS = (1, 9, 40, 96)


@cache
def charge_of(mechanism: ThresholdedGNMax, votes: float, rate: float, classes: int):
    """What one unit is charged for one query."""
    return charge(mechanism, Sensitivity(np.array([votes]), np.array([rate]), delta_squared=2), classes)[0]


def charge(mechanism, sensitivity, classes):
    cost = mechanism.label_only_rdp(sensitivity, ORDERS, classes=classes)
    assert (cost.answer == 0).all()
    return cost.ask


# Error of the laws' logarithms, which weighs the more the nearer the order is to one.
SLACK = 1e-11 * ORDERS / (ORDERS - 1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("classes", [2, 3, 4, 5])
def test_no_move_costs_more_than_is_charged_with_real_valued_noise(classes, kind):
    """150 settings of each kind: 2,400 in all, at four orders in both directions."""
    rng = np.random.default_rng(classes)
    size, alone = 150, np.ones(classes, dtype=np.int64)
    chosen = rng.integers(len(SHIFTS), size=size)
    shift = SHIFTS[chosen]
    counts = rng.uniform(-3, 3, (size, classes))
    # The threshold is 0; counts of any height are thresholds of any depth.
    counts += rng.uniform(-3, 3, size)[:, None]
    before, after = moves(rng, kind, classes, size)
    decision = Decision(sigma=1.0, threshold=0.0)
    p, q = (decision.log_law(counts + shift[:, None] * move, alone) for move in (before, after))
    one_draw = ThresholdedGNMax(sigma=1.0, threshold=0.0)
    bound = np.stack([charge_of(one_draw, each, 1.0, 3) for each in SHIFTS.tolist()])[chosen]
    for found in divergences(p, q):
        assert (found <= bound * (1 + 1e-9) + SLACK).all()


def test_two_classes_cost_as_much_as_three_so_the_bound_of_two_would_not_do():
    """On a grid around the worst counts: 99.9 % of what is charged, above the bound of a label of two classes."""
    x, y = np.meshgrid(np.arange(-0.5, 2, 0.05), np.arange(-0.5, 2, 0.05))
    counts = np.stack([x.ravel(), y.ravel()], axis=-1)
    decision, alone = Decision(sigma=1.0, threshold=0.0), np.ones(2, dtype=np.int64)
    p, q = (decision.log_law(counts + move, alone) for move in (np.zeros(2), np.array([-0.2, 0.2])))
    bound = charge(ThresholdedGNMax(sigma=1.0, threshold=0.0), Sensitivity.always(np.array([0.2]), delta_squared=2), 2)
    # At order 32 the worst counts lie elsewhere.
    found = divergences(p, q)[0].max(axis=0)[:-1]
    assert (found > 0.999 * bound[0, :-1]).all()
    assert (found > 1.001 * label_rdp(0.2, ORDERS[:-1], classes=2)).all()


SIGMA, REACH = 64, 14 * 64
_Z = np.arange(-60 * SIGMA, 60 * SIGMA + 1)
_PMF = -(_Z**2) / (2.0 * SIGMA * SIGMA)
_PMF -= logsumexp(_PMF)
_CDF = np.logaddexp.accumulate(_PMF)


def lattice_law(counts, threshold):
    """log-probabilities under N_Z(0, 64^2): each class wins with a count of at least the threshold, ties to the lower
    class; last, none reaches it. All integers.
    """
    law = []
    for i, mean in enumerate(counts):
        n = np.arange(max(mean - REACH, threshold), max(mean, threshold) + REACH)
        others = sum(_CDF[n - (j < i) - other + 60 * SIGMA] for j, other in enumerate(counts) if j != i)
        law.append(logsumexp(_PMF[n - mean + 60 * SIGMA] + others))
    return np.array([*law, sum(_CDF[threshold - 1 - count + 60 * SIGMA] for count in counts)])


def lattice_settings(rng, kind, classes):
    """Integer counts without the unit, what it adds before and after, its weight in units, a threshold."""
    k = int(rng.choice(UNITS))
    before, after = (rng.multinomial(k, np.append(p, max(0.0, 1 - p.sum()))) if kind == "soft votes" else
                     np.append(np.rint(k * p), 0)
                     for p in (side[0] for side in moves(rng, kind, classes, 1)))  # fmt: skip
    counts = rng.integers(-160, 161, classes)
    return counts, before[:-1].astype(int), after[:-1].astype(int), k, int(rng.integers(-200, 200))


def test_the_law_on_the_lattice_adds_up_to_one():
    for seed in range(5):
        rng = np.random.default_rng(seed)
        counts, threshold = rng.integers(-160, 161, 4), int(rng.integers(-200, 200))
        assert logsumexp(lattice_law(counts, threshold)) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("classes", [2, 3, 4, 5])
def test_no_move_costs_more_than_is_charged_with_integer_noise(classes, kind):
    """30 settings of each kind by enumeration at the least noise, 64 units: 480 in all."""
    rng = np.random.default_rng(classes)
    mechanism = ThresholdedGNMax(sigma=64.0, threshold=0.0, lattice=Lattice(units=1, shares=1, classes=classes))
    for _ in range(30):
        counts, before, after, k, threshold = lattice_settings(rng, kind, classes)
        p, q = (lattice_law(counts + votes, threshold) for votes in (before, after))
        bound = charge_of(mechanism, float(k), 1.0, classes)
        for found in divergences(p, q):
            assert (found <= bound + SLACK).all()


@pytest.mark.parametrize("classes", [2, 4])
def test_every_outcome_on_the_lattice_is_log_concave_along_every_integer_step(classes):
    """The fact behind several votes of one unit: F(u + e) F(u - e) <= F(u)^2, for all outcomes that are a class."""
    rng = np.random.default_rng(classes)
    for _ in range(30):
        counts, step = rng.integers(-150, 151, classes), rng.integers(-70, 71, classes)
        threshold = int(rng.integers(-150, 151))
        there, here, back = (lattice_law(counts + sign * step, threshold) for sign in (1, 0, -1))
        assert (there + back <= 2 * here + 1e-10).all()


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_a_secret_coin_costs_no_more_than_is_charged_with_either_noise(classes):
    rng = np.random.default_rng(classes)
    mechanism = ThresholdedGNMax(sigma=64.0, threshold=0.0)
    on_lattice = mechanism.on_lattice(Lattice(units=1, shares=1, classes=classes))
    for _ in range(8):
        counts, before, after, k, threshold = lattice_settings(rng, "one vote", classes)
        rate = float(rng.choice([0.1, 0.5, 0.9]))
        integer = lambda votes, at=threshold: lattice_law(votes, at)  # noqa: E731
        decision = Decision(sigma=64.0, threshold=float(threshold))
        real = lambda votes, how=decision: how.log_law(votes.astype(float), np.ones(len(votes), dtype=np.int64))  # noqa: E731
        for law, made in ((real, mechanism), (integer, on_lattice)):
            without = law(counts)
            p, q = (mixed(without, law(counts + votes), rate=rate) for votes in (before, after))
            bound = charge_of(made, float(k), rate, classes)
            for found in divergences(p, q):
                assert (found <= bound * (1 + 1e-9) + SLACK).all()
            assert (bound <= charge_of(made, float(k), 1.0, classes) * (1 + 1e-9)).all()
