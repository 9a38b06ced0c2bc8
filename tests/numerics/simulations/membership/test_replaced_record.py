"""The game of one replaced record where records vote: what is found stays under the ceiling of its epsilon."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr

from benchmarks.record_votes_membership import Game, play
from protocols.errors import InvalidInput
from tests.harness.record_votes import GRADED, HOLDINGS, QUERIES, RNG, study_of
from tests.harness.refusals import refuses

POOL = RNG.normal(size=(40, 3)).astype(np.float32)
RUNS = 200


def game(level="clear", *, unit="record", epsilon=(1.0, 2.0, 1.0), queries=QUERIES, residuals=False):
    """The target: a record of party "a"; in its place one with the other label, which shares no cell with it, or where
    votes are graded the same record."""
    inputs, labels, _ = HOLDINGS[0]
    return Game(
        study_of(level, unit=unit, epsilon=epsilon, queries=queries, residuals=residuals),
        queries,
        POOL,
        HOLDINGS,
        seat=0,
        position=0,
        other_input=inputs[0] if queries.signed else -inputs[0],
        other_label=int(1 - labels[0]),
    )


def found(made, **changed):
    given = {"runs": RUNS, "student": "logistic_regression", "student_runs": 0, "seed": 0, "noise": True}
    return play(made, **(given | changed))


@pytest.mark.parametrize(
    ("level", "unit", "queries", "residuals"),
    [
        ("clear", "record", QUERIES, False),
        ("clear", "patient", QUERIES, False),
        ("secure_sum", "record", QUERIES, False),
        ("clear", "record", GRADED, False),
        ("clear", "record", GRADED, True),  # residuals of two classes have one direction, and move about as far
    ],
)
def test_the_best_attacker_stays_under_the_ceiling_and_finds_what_the_noise_leaves(level, unit, queries, residuals):
    """The exact area of two Gaussians at distance d is Phi(d/sqrt(2)); the 95 % interval of this seed holds it."""
    made = game(level, unit=unit, queries=queries, residuals=residuals)
    one = found(made).for_research()[0]
    assert not one.flagged
    assert one.area.high < one.ceiling.area
    study = made.study
    moved = np.sqrt(study.votes.delta_squared * made.squared_move) * study.weights[0]
    # At secure_sum all three parties' shares are in the sum; at clear the study's noise is all.
    shares = 3 / study.lattice.shares if study.lattice is not None else 1
    exact = ndtr(moved / (study.gaussian.sigma * np.sqrt(shares)) / np.sqrt(2))
    assert one.area.low < exact < one.area.high
    assert exact > 0.54


def test_sums_without_noise_are_flagged_and_a_student_of_noisy_ones_is_not():
    open_sums = found(game(), noise=False, runs=32).for_research()[0]
    assert open_sums.flagged
    assert open_sums.area.value == 1.0
    both = found(game(), runs=16, student_runs=16).for_research()
    assert [one.attacker for one in both] == ["the released sums", "the student, logistic_regression"]
    assert not any(one.flagged for one in both)


def test_a_record_that_is_replaced_by_itself_cannot_be_told():
    made = game()
    inputs, labels, _ = HOLDINGS[0]
    same = replace(made, other_input=inputs[0], other_label=int(labels[0]))
    assert same.squared_move == 0
    one = found(same, runs=16).for_research()[0]
    assert one.area.value == 0.5
    assert not one.flagged


def test_the_ceiling_is_that_of_the_targets_own_epsilon():
    poorer, richer = (found(game(epsilon=(e, 2.0, 1.0)), runs=16).for_research()[0].ceiling for e in (0.5, 2.0))
    assert poorer.epsilon == pytest.approx(0.5, rel=1e-6)
    assert poorer.area < richer.area


@pytest.mark.parametrize("change", [{"runs": 4}, {"student_runs": 3}, {"student_runs": RUNS + 1}])
def test_too_few_runs_are_refused(change):
    with refuses(InvalidInput, "at least 8"):
        found(game(), **change)
