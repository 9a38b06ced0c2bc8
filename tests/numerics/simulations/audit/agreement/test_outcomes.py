"""Tests of outcomes: exact p-values, no more false alarms than stated, and every planted fault of a batch found."""

import numpy as np
import pytest
import scipy

from simulations.audit.laws import (
    Answers,
    answers_evidence,
    binomial_evidence,
    periodic_fault,
    repeated_at_a_distance,
    two_sided,
)

LAWS = np.array([[0.5, 0.3, 0.2], [0.9, 0.07, 0.03], [0.2, 0.2, 0.6], [0.985, 0.01, 0.005]])
KINDS = np.array([0, 1, 2, 3, 2, 0, 3, 1])


def drawn(rng, batches):
    """Answers of the stated law."""
    uniform = rng.random((batches, len(KINDS), 1))
    return np.minimum((uniform > LAWS[KINDS].cumsum(axis=1)).sum(axis=2), 2)


def families(outcomes):
    return {each.family: each.p for each in answers_evidence(Answers(outcomes, LAWS[KINDS], KINDS))}


@pytest.mark.parametrize(("hits", "trials", "chance"), [(0, 30, 0.2), (3, 30, 0.2), (30, 30, 0.9), (25, 30, 0.4)])
def test_a_p_value_is_twice_the_smaller_tail_added_up_term_by_term(hits, trials, chance):
    law = [float(scipy.special.comb(trials, k, exact=True)) * chance**k * (1 - chance) ** (trials - k)
           for k in range(trials + 1)]  # fmt: skip
    expected = min(1.0, 2 * min(sum(law[: hits + 1]), sum(law[hits:])))
    got = two_sided(np.array([hits]), np.array([trials]), np.array([chance]))
    assert got[0] == pytest.approx(expected, rel=1e-9)


def test_an_impossible_outcome_that_came_is_certain_evidence_and_one_that_did_not_is_none():
    assert two_sided(np.array([1]), np.array([10]), np.array([0.0]))[0] == 0
    assert two_sided(np.array([0]), np.array([10]), np.array([0.0]))[0] == 1
    assert two_sided(np.array([10]), np.array([10]), np.array([1.0]))[0] == 1


def test_the_worst_cell_of_many_is_named_and_its_p_value_is_multiplied_by_their_number():
    trials = np.full((40, 50), 1000)
    hits = np.full((40, 50), 100)
    hits[7, 9] = 180
    found = binomial_evidence("cells", hits, trials, np.full((40, 50), 0.1), words=("row {}", "column {}"))
    assert found.cell == "row 7, column 9"
    exact = two_sided(np.array([180]), np.array([1000]), np.array([0.1]))[0]
    assert found.p == pytest.approx(2000 * exact)


def test_the_stated_law_gives_each_family_small_p_values_no_more_often_than_they_say():
    """200 runs of 300 batches. P[p <= 0.05] <= 0.05 for a family; 24 or more of 200 have probability 8e-5."""
    rng = np.random.default_rng(5)
    runs = [families(drawn(rng, 300)) for _ in range(200)]
    for family in runs[0]:
        p = np.array([run[family] for run in runs])
        assert (p <= 0.05).sum() <= 23, family
        assert (p > 0).all()


def _same_as_before(outcomes, rng):
    outcomes[1::2] = outcomes[::2]


def _same_neighbours(outcomes, rng):
    outcomes[:, 4] = outcomes[:, 2]


def _third_from_two(outcomes, rng):
    """Pairs of queries stay independent; three do not: whether both of two are class 0 decides the third."""
    odd = (outcomes[:, 3] > 0) ^ (outcomes[:, 5] == 0)
    outcomes[:, 4] = np.where(odd, 2, outcomes[:, 4])


def _batch_wide(outcomes, rng):
    """One batch in ten has only likeliest outcomes."""
    outcomes[rng.random(len(outcomes)) < 0.1] = LAWS[KINDS].argmax(axis=1)


def _first_query(outcomes, rng):
    outcomes[:, 0] = 0


def _first_batches(outcomes, rng):
    outcomes[:40] = LAWS[KINDS].argmax(axis=1)


def _repeated_once(outcomes, rng):
    outcomes[1900] = outcomes[313]


def _far_repetition(outcomes, rng):
    outcomes[2000:] = outcomes[:2000]


def _no_upsets(outcomes, rng):
    outcomes[:, (KINDS == 1) | (KINDS == 3)] = 0


@pytest.mark.parametrize(
    ("fault", "family"),
    [
        (_same_as_before, "pairs of batches, 1 apart"),
        (_same_neighbours, "pairs in a batch"),
        (_third_from_two, "three in a row"),
        (_batch_wide, "batch totals"),
        (_first_query, "by place in the batch"),
        (_first_batches, "by part of the run"),
        (_far_repetition, "repetition at any distance"),
        (_no_upsets, "upsets"),
        (_no_upsets, "single outcomes"),
    ],
)
def test_each_family_finds_the_fault_that_it_is_for(fault, family):
    rng = np.random.default_rng(3)
    outcomes = drawn(rng, 4000)
    assert families(outcomes)[family] > 1e-3
    fault(outcomes, rng)
    assert families(outcomes)[family] < 1e-9


def test_one_batch_that_has_the_noise_of_another_is_found_where_chance_would_not_repeat_it():
    kinds = np.tile([0, 1], 30)
    laws = LAWS[[0, 2]][kinds]
    uniform = np.random.default_rng(0).random((2000, len(kinds), 1))
    outcomes = np.minimum((uniform > laws.cumsum(axis=1)).sum(axis=2), 2)
    p = {each.family: each.p for each in answers_evidence(Answers(outcomes, laws, kinds))}
    assert p["identical batches"] == 1
    _repeated_once(outcomes, None)
    p = {each.family: each.p for each in answers_evidence(Answers(outcomes, laws, kinds))}
    assert p["identical batches"] < 1e-12


def test_a_weak_fault_of_one_query_in_37_is_found_by_its_period():
    scores = np.random.default_rng(1).choice([-1.0, 1.0], 200_000)
    assert periodic_fault(scores, period=8).p > 1e-3
    scores[::37] = np.where(np.random.default_rng(2).random(len(scores[::37])) < 0.7, 1.0, -1.0)
    assert periodic_fault(scores, period=8).p < 1e-6
    assert repeated_at_a_distance(scores).p > 1e-6
