"""What a unit says of the first sum's scores: no longer than its weight, whatever they are; what a fit makes of it."""

import numpy as np
import pytest
from scipy.special import softmax

from protocols.errors import ConclaveError
from protocols.sums.blocks import NORM_STEPS, TARGET_STEPS
from protocols.sums.contributions import graded_sum, squared_norms
from protocols.sums.fit import PublicMoment, Residuals, fit
from protocols.sums.residuals import FirstScores, residual_sum

RNG = np.random.default_rng(25)
CLASSES, ROWS, WEIGHT = 4, 5, 10_000


def phi_of(records, rows=ROWS, rng=RNG):
    """Rows of norm NORM_STEPS at most."""
    rows = rng.normal(size=(records, rows))
    return np.trunc(rows / np.linalg.norm(rows, axis=1, keepdims=True) * NORM_STEPS * 0.9999).astype(np.int64)


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e3, 1e9])
def test_a_residual_is_the_label_less_its_probability_cut_to_length_exactly(scale):
    phi, labels = phi_of(500), RNG.integers(-1, CLASSES + 1, 500)
    first = FirstScores.of(RNG.normal(size=(ROWS, CLASSES)) * scale)
    psi = first.psi(phi, labels)
    assert (np.square(psi).sum(axis=1) <= TARGET_STEPS**2).all()
    known = (labels >= 0) & (labels < CLASSES)
    assert not psi[~known].any()
    rest = np.eye(CLASSES)[labels[known]] - softmax(phi[known] / NORM_STEPS @ first.of_one * CLASSES, axis=1)
    rest /= np.maximum(np.linalg.norm(rest, axis=1, keepdims=True), 0.5)
    np.testing.assert_allclose(psi[known] / TARGET_STEPS, rest, atol=0.02)  # logits are whole steps of 1/256


def test_two_sums_move_by_no_more_than_they_cost_however_the_second_is_chosen_from_the_first():
    """By brute force: units of one to six records, their neighbours, and scores that follow from the noisy first sum or
    are as bad as can be. Attained: two records that lie opposite each other."""
    worst = 0.0
    for trial in range(400):
        rng = np.random.default_rng(trial)
        units = []
        for _ in range(2):
            records = int(rng.integers(1, 7))
            units.append((phi_of(records, rng=rng), rng.integers(0, CLASSES, records)))
        if trial % 4 == 0:
            units[1] = (-units[0][0], units[0][1])
        codes = np.eye(CLASSES, dtype=np.int64) * TARGET_STEPS
        votes = [graded_sum(phi, codes[y], np.zeros(len(y), np.int64), weight=WEIGHT) for phi, y in units]
        seen = (votes[0] + rng.normal(scale=WEIGHT, size=votes[0].shape)) / WEIGHT
        first = FirstScores.of(seen * rng.choice([-100.0, 0.0, 1.0, 100.0]))
        said = [np.column_stack([y, phi]) for phi, y in units]
        again = [residual_sum(first, each, np.zeros(len(each), np.int64), weight_units=WEIGHT) for each in said]
        assert max(squared_norms(np.array([each.ravel() for each in again]))) <= WEIGHT**2
        moved = [int(squared_norms((one - other).reshape(1, -1))[0]) for one, other in (votes, again)]
        assert max(moved) <= 4 * WEIGHT**2
        worst = max(worst, sum(moved) / WEIGHT**2)
    assert 7.9 < worst <= 8


def test_units_of_several_hospitals_are_divided_and_untrusted_scores_are_checked():
    phi, labels = phi_of(40), RNG.integers(0, CLASSES, 40)
    said, first = np.column_stack([labels, phi]), FirstScores.of(RNG.normal(size=(ROWS, CLASSES)))
    halves = residual_sum(first, said, None, weight_units=WEIGHT, known_at=np.full(40, 2))
    np.testing.assert_array_equal(halves, residual_sum(first, said, None, weight_units=WEIGHT // 2))
    good = first.to_bytes()
    for content, rows, classes in ((good[:-30], ROWS, CLASSES), (good, ROWS + 1, CLASSES), (good, ROWS, 2)):
        with pytest.raises(ConclaveError):
            FirstScores.from_bytes(content, rows=rows, classes=classes)
    huge = FirstScores.of(np.full((ROWS, CLASSES), 1e30))
    assert np.abs(huge.weights).max() == 2**24
    with pytest.raises(ConclaveError):
        FirstScores(huge.weights + 1)


def test_a_second_sum_makes_up_for_a_small_pool():
    """A softmax of 20 features and three classes, 6,000 units, hardly any noise, pools of 60: the error of the
    probabilities of new records, with the second sum and without, over eight populations."""
    rows, targets, errors = 20, np.eye(3), []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        truth = rng.normal(size=(rows, 3)) * 6
        phi, pool, new = (phi_of(records, rows, rng) for records in (6000, 60, 500))
        chances = softmax(phi / NORM_STEPS @ truth, axis=1)
        y = (rng.random((6000, 1)) > chances.cumsum(axis=1)).sum(axis=1)
        moment = PublicMoment.of_pool(pool / NORM_STEPS, np.zeros(rows, np.int64))
        given = {"targets": targets, "noise": 1e-8, "units": 6000}
        mean = phi.T @ targets[y] / NORM_STEPS / 6000
        one = fit(mean, moment, **given)
        first = FirstScores.of(one.coefficients)
        second = phi.T @ first.psi(phi, y) / NORM_STEPS / TARGET_STEPS / 6000
        says = np.stack([first.psi(pool, np.full(60, each)) for each in range(3)], axis=1) / TARGET_STEPS
        two = fit(mean, moment, **given, residuals=Residuals(second, 1e-8, 6000, says))
        right = softmax(new / NORM_STEPS @ truth, axis=1)
        errors.append([np.abs(each.probabilities(new / NORM_STEPS) - right).mean() for each in (one, two)])
    one, two = np.mean(errors, axis=0)
    assert two < 0.92 * one
