"""Scores of noisy sums: against a slow independent posterior, the likelihood, and what a pool of one class says."""

from dataclasses import replace

import numpy as np
import pytest

from protocols.errors import InvalidInput
from protocols.sums.blocks import TARGET_STEPS, simplex
from protocols.sums.fit import Neighbours, PublicMoment, _Problem, contrasts, fit, overall


def problem(seed: int, *, rows: int = 6, classes: int = 3, noise: float = 0.02, units: int = 400):
    rng = np.random.default_rng(seed)
    pool = rng.standard_normal((80, rows))
    pool[:, 0] = 1.0
    pool /= np.linalg.norm(pool, axis=1, keepdims=True)
    of = np.array([-1] + [0] * (rows // 2) + [1] * (rows - 1 - rows // 2))
    targets = simplex(classes) / TARGET_STEPS
    records = pool[rng.integers(0, len(pool), units)]
    labels = (records @ rng.standard_normal((rows, classes)) * 3).argmax(axis=1)
    mean = records.T @ targets[labels] / units + noise * rng.standard_normal((rows, classes - 1))
    return mean, pool, of, targets, noise**2, units


@pytest.mark.parametrize("seed", range(3))
def test_the_scores_are_the_posterior_mean_of_a_gaussian_model(seed) -> None:
    mean, pool, of, targets, noise, units = problem(seed)
    _, seen = contrasts(targets)
    moment = PublicMoment.of_pool(pool, of)
    entry = noise * (seen**2).sum(axis=0)[0]
    made = _Problem(mean @ seen, moment, entry, 1 / len(targets) / units)
    found = made.fitted(made.prior(0.5, None))
    # What the last step of expectation maximisation started from, by dense covariances of vec(B), one by one.
    _, variances, mismatch = _slow(made, 0.5)
    prior = np.diag(variances)
    second = moment.second
    covariance = second @ prior @ second + entry * np.eye(len(of)) + (made.sampling + mismatch) * second
    expected = prior @ second @ np.linalg.inv(covariance) @ made.z
    assert np.allclose(found.coefficients, expected, atol=1e-7)


def _slow(made: _Problem, exponent: float):
    """The likelihood of each step, then the prior variances and the mismatch of the last: matrix inverses alone."""
    prior, second = made.prior(exponent, None), made.moment.second
    contrasts_, rows = made.z.shape[1], len(prior.of)
    variance, mismatch, likelihoods = np.full(prior.of.max() + 1, 0.3), 0.0, []
    for _ in range(14):
        each, used = variance[prior.of] * prior.base, mismatch
        covariance = second @ np.diag(each) @ second + made.entry * np.eye(rows) + (made.sampling + used) * second
        inverse = np.linalg.inv(covariance)
        found = np.diag(each) @ second @ inverse @ made.z
        left = np.diag(each) - np.diag(each) @ second @ inverse @ second @ np.diag(each)
        likelihoods.append(
            -0.5 * np.trace(made.z.T @ inverse @ made.z) - contrasts_ / 2 * np.linalg.slogdet(covariance)[1]
        )
        for group in range(len(variance)):
            inside = prior.of == group
            spread = (found[inside] ** 2).sum(axis=1) / contrasts_ + np.diag(left)[inside]
            variance[group] = (spread / prior.base[inside]).mean()
        mismatch = np.trace(found.T @ second @ found) / contrasts_ / made.moment.records
    return likelihoods, each, used


@pytest.mark.parametrize("seed", range(5))
def test_every_step_makes_the_sum_likelier_where_the_pool_is_large(seed) -> None:
    mean, pool, of, targets, noise, units = problem(seed)
    moment = replace(PublicMoment.of_pool(pool, of), records=1e12)  # so that no step changes the noise
    _, seen = contrasts(targets)
    made = _Problem(mean @ seen, moment, noise, 1 / units)
    likelihoods, _, _ = _slow(made, 0.0)
    assert np.diff(likelihoods).min() > -1e-9
    assert made.fitted(made.prior(0.0, None)).log_likelihood == pytest.approx(likelihoods[-1], abs=1e-6)


def test_little_noise_finds_the_classes_and_none_says_nothing_of_them() -> None:
    mean, pool, of, targets, _, units = problem(7, noise=0.0, units=4000)
    rng = np.random.default_rng(7)
    rng.standard_normal((80, 6))
    rng.integers(0, 80, 4000)
    truth = (pool @ rng.standard_normal((6, 3)) * 3).argmax(axis=1)
    moment = PublicMoment.of_pool(pool, of)
    right = fit(mean, moment, targets=targets, noise=1e-8, units=units).scores(pool).argmax(axis=1) == truth
    assert right.mean() > 0.85
    drowned = fit(mean, moment, targets=targets, noise=1e6, units=units).probabilities(pool)
    assert np.abs(drowned - 1 / 3).max() < 0.05


def test_one_hot_targets_and_a_simplex_with_a_constant_give_the_same_scores() -> None:
    mean, pool, of, targets, noise, units = problem(3)
    code, seen = contrasts(targets)
    one_hot = np.eye(3)
    # The same contrasts, as sums of one-hot labels that all classes' totals are added to.
    again = mean @ seen @ code.T + np.linspace(0, 1, len(mean))[:, None]
    moment = PublicMoment.of_pool(pool, of)
    scale = float((seen**2).sum(axis=0)[0])
    plain = fit(mean, moment, targets=targets, noise=noise, units=units)
    other = fit(again, moment, targets=one_hot, noise=noise * scale, units=units)
    assert np.allclose(plain.coefficients, other.coefficients, atol=1e-4)  # a simplex in whole numbers


def test_the_mean_of_phi_is_told_by_a_constant_column_and_by_one_hot_sums_alone() -> None:
    phi = np.array([0.2, -0.4, 0.1])
    shares = np.array([0.5, 0.3, 0.2])
    wide = np.concatenate([simplex(3) / TARGET_STEPS * np.sqrt(15 / 16), np.full((3, 1), 0.25)], axis=1)
    for targets, times in ((np.eye(3), 3), (wide, 16)):
        found, noise = overall(np.outer(phi, shares @ targets), targets=targets, noise=1.0)
        assert np.allclose(found, phi, atol=1e-3)
        assert noise == pytest.approx(times, rel=1e-3)
    with pytest.raises(InvalidInput):
        overall(np.zeros((3, 2)), targets=simplex(3) / TARGET_STEPS, noise=1.0)


def test_neighbours_count_only_where_they_make_the_sum_likelier() -> None:
    mean, pool, of, targets, noise, units = problem(5)
    moment = PublicMoment.of_pool(pool, of)
    common = {"targets": targets, "noise": noise, "units": units}
    plain = fit(mean, moment, **common)
    rng = np.random.default_rng(0)
    # Whether records are alike in a way that phi does not show, and that the labels follow.
    alike = rng.standard_normal((80, 3)) ** 3
    spread = alike @ (alike.T @ pool) / 80
    near = Neighbours(pool, pool / 80, spread)
    told = pool.T @ (alike @ rng.standard_normal((3, 2))) / 80
    followed = fit(told, moment, **common, neighbours=near)
    assert followed.near is not None
    assert np.array_equal(followed.coefficients, fit(told, moment, **common).coefficients)
    assert followed.log_likelihood > fit(told, moment, **common).log_likelihood
    ignored = fit(mean, moment, **common, neighbours=replace(near, spread=0 * spread))
    assert ignored.near is None
    assert np.array_equal(ignored.coefficients, plain.coefficients)


def test_a_mean_that_is_not_finite_is_refused() -> None:
    mean, pool, of, targets, noise, units = problem(1)
    moment = PublicMoment.of_pool(pool, of)
    for wrong in ({"noise": -1.0}, {"units": 0}, {"noise": np.nan}):
        with pytest.raises(InvalidInput):
            fit(mean, moment, targets=targets, **{"noise": noise, "units": units, **wrong})
    with pytest.raises(InvalidInput):
        fit(mean * np.nan, moment, targets=targets, noise=noise, units=units)


def test_neighbours_of_a_solver_that_is_slightly_off_do_not_stop_the_fit() -> None:
    mean, pool, of, targets, _, _ = problem(1)
    narrow = pool * np.r_[np.ones(pool.shape[1] - 1), 1e-2]
    moment = PublicMoment.of_pool(narrow, of)
    near = Neighbours(narrow, narrow / len(narrow), -1e-3 * narrow)
    found = fit(mean, moment, targets=targets, noise=1e-16, units=10**9, neighbours=near)
    assert np.allclose(found.of_pool(narrow).sum(axis=1), 1)


@pytest.mark.parametrize(("classes", "noise"), [(2, 0.003), (2, 0.03), (5, 0.003), (5, 0.01)])
def test_probabilities_are_as_large_as_the_classes_are_right(classes, noise) -> None:
    targets, units, differences = simplex(classes) / TARGET_STEPS, 4000, []
    for seed in range(5):
        rng = np.random.default_rng([seed, classes])
        pool, records, others = (rng.standard_normal((size, 8)) for size in (1000, units, 2000))
        lengths = [np.linalg.norm(each, axis=1, keepdims=True) for each in (pool, records, others)]
        pool, records, others = (each / length for each, length in zip((pool, records, others), lengths, strict=True))
        true = 4 * rng.standard_normal((8, classes))
        labels = (records @ true + rng.gumbel(size=(units, classes))).argmax(axis=1)
        mean = records.T @ targets[labels] / units + noise * rng.standard_normal((8, classes - 1))
        moment = PublicMoment.of_pool(pool, np.zeros(8, np.int64))
        found = fit(mean, moment, targets=targets, noise=noise**2, units=units).probabilities(others)
        chances = np.exp(others @ true) / np.exp(others @ true).sum(axis=1, keepdims=True)
        right = chances[np.arange(len(others)), found.argmax(axis=1)]
        differences.append(found.max(axis=1).mean() - right.mean())
    assert abs(np.mean(differences)) < 0.06
