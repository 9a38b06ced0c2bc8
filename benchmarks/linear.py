"""Linear models with privacy at their best: gradient descent by a curator or a sum a round, and least squares.

Every method here is a `Fit`: it learns from private rows, private labels and the pool's rows, and returns what names
the class of other rows; `scored` makes a method of a comparison of it. No fit sees a test record. The constants of
gradient descent were chosen on breast_cancer, digits, glyphs, mnist and eicu_demo, by accuracies at epsilon .1 to 8.

Neighbours replace one record, which moves a sum by at most twice the largest length of what a record adds. Several
Gaussian sums are one whose squared moves over noise add up, also where later sums depend on earlier ones (Dong et al.
2022, Corollary 2). Noise is real-valued and its generator is seeded: good for a comparison, not for a release.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import log, sqrt
from typing import Final, Protocol

import dp_accounting
import numpy as np
from dp_accounting.pld import privacy_loss_distribution
from jaxtyping import Float64, Int64
from numpy import ndarray
from scipy.special import softmax

from protocols.errors import InvalidInput
from simulations.baselines.method import Score, Task
from simulations.baselines.methods import graded_scores

Rows = Float64[ndarray, "records features"]
Labels = Int64[ndarray, " records"]
Weights = Float64[ndarray, "features classes"]
Predict = Callable[[Rows], Labels]


class Fit(Protocol):
    """A method that learns from rows of the private records and of the pool, whose labels it has not."""

    def __call__(
        self,
        private_x: Rows,
        private_y: Labels,
        pool_x: Rows,
        classes: int,
        epsilon: float,
        delta: float,
        rng: np.random.Generator,
    ) -> Predict: ...


def scored(fit: Fit, *, as_they_are: bool = False) -> Callable[[Task], Score]:
    """The method of a comparison that this fit is; its rows are those of `public_rows`, or the inputs as they are."""

    def method(task: Task) -> Score:
        data = task.dataset
        seen = flat if as_they_are else public_rows(task)
        predict = fit(
            seen(data.private_inputs), data.private_labels, seen(data.public_inputs), data.classes,
            task.budget, task.settings.delta, np.random.default_rng([task.seed, *b"linear"]),
        )  # fmt: skip
        return Score(predict(seen(data.test_inputs)) == data.test_labels)

    return method


def flat(inputs: ndarray) -> Rows:
    """The inputs as rows."""
    return inputs.reshape(len(inputs), -1).astype(np.float64)


_RELATIVE_TOLERANCE: Final = 1e-3
_MOST_NOISE: Final = 2.0**20


def epsilon_of(noise_multiplier: float, *, rate: float, steps: int, delta: float) -> float:
    """Epsilon at this delta of `steps` sums, each of a Poisson sample at this rate, with Gaussian noise on each.

    noise_multiplier: the noise's standard deviation over the largest length of what one unit adds to a sum.
    Neighbours replace one unit by any other. The adversary sees every noisy sum, and not who was sampled. An upper
    bound: Koskela et al. 2020 and Doroshenko et al. 2022 (connecting the dots), as dp-accounting computes them, of
    the pair that Zhu et al. 2022, Theorem 11, names for sampling and replacement.
    """
    # One step's loss is about 2 rate / noise_multiplier: a finer grid than a hundredth of it changes nothing.
    interval = min(1e-3, max(1e-5, 2 * rate / noise_multiplier / 100))
    one = privacy_loss_distribution.from_gaussian_mechanism(
        noise_multiplier,
        sampling_prob=rate,
        value_discretization_interval=interval,
        neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE,
    )
    return float(one.self_compose(steps).get_epsilon_for_delta(delta))


@lru_cache(maxsize=256)
def noise_multiplier_for(epsilon: float, *, rate: float, steps: int, delta: float) -> float:
    """The least noise multiplier whose epsilon is at most `epsilon`, up to a relative 0.001 above.

    See epsilon_of. Raises InvalidInput where no noise multiplier up to a million does.
    """
    low = high = 1.0
    while epsilon_of(high, rate=rate, steps=steps, delta=delta) > epsilon:
        low, high = high, 2 * high
        if high > _MOST_NOISE:
            raise InvalidInput(f"epsilon is {epsilon} at delta {delta}; allowed: what some noise affords")
    while low > 1 / _MOST_NOISE and epsilon_of(low, rate=rate, steps=steps, delta=delta) <= epsilon:
        low, high = low / 2, low
    while high > low * (1 + _RELATIVE_TOLERANCE):
        middle = (low * high) ** 0.5
        if epsilon_of(middle, rate=rate, steps=steps, delta=delta) <= epsilon:
            high = middle
        else:
            low = middle
    return high


def multiplier_of(epsilon: float, delta: float) -> float:
    """The noise on one sum over the largest length of what a record adds; half the largest move is that length."""
    return noise_multiplier_for(epsilon, rate=1.0, steps=1, delta=delta)


# The share of a row's squared length that is the same in all.
_CONSTANT: Final = 0.05
# Of images: how many principal components, and the power of their variance by which they are divided.
_COMPONENTS: Final = ((64, 0.0), (60, 0.25), (30, 0.0))
# Of the pool, at most, for what is expected of components.
_SOME: Final = 1000
_SMALL: Final = 1e-9


def public_rows(task: Task) -> Callable[[ndarray], Rows]:
    """Rows of length 1 that linear models see, made of the public pool: a constant, and of tables the columns and their
    signs (above or below the pool's median), half and half.

    Of images those principal components of which most is expected of so many records at this epsilon (`expected`).
    """
    data = task.dataset
    pool = flat(data.public_inputs)
    if task.inputs.dataset.kind != "image":
        median = np.median(pool, axis=0)
        columns, signs = centred(pool), centred(np.sign(pool - median))

        def of_table(inputs: ndarray) -> Rows:
            found = flat(inputs)
            return _joined(sqrt(0.5) * columns(found), sqrt(0.5) * signs(np.sign(found - median)))

        return of_table
    maps = [components(pool, most=most, power=power) for most, power in _COMPONENTS]
    if task.epsilon is None:
        return maps[0]
    noise, kernel = multiplier_of(task.budget, task.settings.delta), prior(pool)
    return max(maps, key=lambda each: expected(each(pool), kernel, len(data.private_labels), data.classes, noise=noise))


def components(pool: Rows, *, most: int, power: float) -> Callable[[ndarray], Rows]:
    """Rows of a constant and the first principal components of the pool, divided by this power of their variance."""
    centre = pool.mean(axis=0)
    variances, axes = np.linalg.eigh((pool - centre).T @ (pool - centre) / len(pool))
    first = np.argsort(-variances)[:most]
    scaled = axes[:, first] * np.maximum(variances[first] / variances.max(), _SMALL) ** -power
    rows = centred(pool @ scaled)
    return lambda inputs: _joined(rows(flat(inputs) @ scaled))


def centred(pool: Rows) -> Callable[[Rows], Rows]:
    """Rows less the pool's mean, each of length 1."""
    centre = pool.mean(axis=0)

    def rows(found: Rows) -> Rows:
        moved = found - centre
        return np.asarray(moved / np.maximum(np.linalg.norm(moved, axis=1, keepdims=True), _SMALL))

    return rows


def _joined(*blocks: Rows) -> Rows:
    """The blocks, whose squared lengths sum to 1, and a constant."""
    constant = np.full((len(blocks[0]), 1), sqrt(_CONSTANT))
    return np.hstack([*(sqrt(1 - _CONSTANT) * block for block in blocks), constant])


def prior(pool: Rows) -> Float64[ndarray, "some some"]:
    """The kernel of the Gaussian process that scores are expected to be, over the first rows of the pool.

    It is the sum of a linear and a radial kernel of their columns, and of a constant.
    """
    some = pool[:_SOME] - pool[:_SOME].mean(axis=0)
    linear = some @ some.T
    lengths = np.diagonal(linear)
    squares = np.maximum(lengths[:, None] + lengths - 2 * linear, 0)
    radial = np.exp(-squares / np.median(squares[~np.eye(len(some), dtype=bool)]))
    return np.asarray(0.93 * (linear / lengths.mean() + radial) / 2 + 0.07)


def expected(rows: Rows, kernel: Float64[ndarray, "some some"], records: int, classes: int, *, noise: float) -> float:
    """The share of the scores' variance over the pool that least squares of one noisy sum would explain.

    rows: what models see of the pool; kernel: see `prior`; noise: on each entry of the sum over records of a row times
    a class's code of length 1. The sampling of records and of the pool is noise, too.
    """
    seen = rows[:_SOME]
    spread = 1 - 1 / classes
    scale = 0.5 * spread / (classes - 1)
    moment = rows.T @ rows / len(rows)
    with_sum = kernel @ seen / len(seen)
    of_sum = (
        scale * seen.T @ with_sum / len(seen)
        + (noise / records) ** 2 * np.eye(rows.shape[1])
        + (0.6 / records + 0.4 / len(rows)) * spread / (classes - 1) * moment
    )
    return scale * float(np.trace(with_sum @ np.linalg.solve(of_sum, with_sum.T)) / np.trace(kernel))


# A record's gradient is cut to this length.
_LARGEST: Final = 0.1
_MOMENTUM: Final = 0.9
_STEPS: Final = 100
# A round costs the parties a sum of all weights.
_ROUNDS: Final = 30
# Of the learning rate: see `rate`.
_REACH: Final = 0.09
_FASTEST: Final = 10.0


def clipped_sum(rows: Rows, labels: Labels, weights: Weights, largest: float | Float64[ndarray, " records"]) -> Weights:
    """The sum of the records' gradients of the cross-entropy, each cut to `largest` (Abadi et al. 2016, Algorithm 1).

    A record's gradient is its row times its residuals, so that its length is that of the row times theirs.
    """
    residuals = softmax(rows @ weights, axis=1)
    residuals[np.arange(len(labels)), labels] -= 1
    lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(residuals, axis=1)
    kept = np.minimum(1, largest / np.maximum(lengths, _SMALL))
    return np.asarray(rows.T @ (residuals * kept[:, None]))


def rate(records: int, steps: int, multiplier: float) -> float:
    """The learning rate of mean gradients over their largest length.

    In proportion to the records and to 2 / multiplier, by how many deviations of the noise a replaced record moves the
    whole: then the noise of all steps moves the score of a row of length 1 as far at every budget and size.
    """
    return min(_FASTEST, _REACH * records * (2 / multiplier) / steps)


def descend(
    noisy_sum: Callable[[Weights], Weights], shape: tuple[int, int], *, steps: int, learning_rate: float
) -> Predict:
    """Gradient descent with momentum from zero; the model is the mean over the second half of the steps (De et al.
    2022), which is less noisy.
    """
    weights, speed, total = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for step in range(steps):
        speed = _MOMENTUM * speed + noisy_sum(weights)
        weights = weights - learning_rate * speed
        if step >= steps // 2:
            total += weights
    return lambda rows: np.asarray((rows @ total).argmax(axis=1))


def dp_sgd(
    private_x: Rows, private_y: Labels, pool_x: Rows, classes: int, epsilon: float, delta: float,
    rng: np.random.Generator,
) -> Predict:  # fmt: skip
    """DP-SGD of a softmax regression with all records in each step (Abadi et al. 2016, Algorithm 1)."""
    return _by_budgets(private_x, private_y, classes, np.full(len(private_y), epsilon), delta, rng)


# Of records with unequal budgets: what share has how many times the smallest (Boenisch et al. 2023).
_SHARES: Final = ((0.34, 1.0), (0.43, 2.0), (0.23, 3.0))


def idp_sgd(
    private_x: Rows, private_y: Labels, pool_x: Rows, classes: int, epsilon: float, delta: float,
    rng: np.random.Generator,
) -> Predict:  # fmt: skip
    """IDP-SGD by scaling (Boenisch et al. 2023, the method Scale): gradients are cut where each budget affords.

    34 % of the records have this epsilon, 43 % twice and 23 % three times as much.
    """
    ends = np.round(np.cumsum([share for share, _ in _SHARES]) * len(private_y)).astype(int)
    times = np.repeat([times for _, times in _SHARES], np.diff(ends, prepend=0))
    return _by_budgets(private_x, private_y, classes, epsilon * rng.permutation(times), delta, rng)


def graded_unequal(task: Task) -> Score:
    """Graded votes, in which 34 % of the parties have this epsilon, 43 % twice and 23 % three times as much."""
    return graded_scores(task, budgets=",".join(f"{times * task.budget!r}:{share}" for share, times in _SHARES))


def _by_budgets(
    rows: Rows, labels: Labels, classes: int, epsilons: Float64[ndarray, " records"], delta: float,
    rng: np.random.Generator,
) -> Predict:  # fmt: skip
    """Gradient descent in which every record pays its own budget; the largest pays for gradients of _LARGEST."""
    found, which = np.unique(epsilons, return_inverse=True)
    multipliers = np.array([multiplier_of(float(each), delta) for each in found])[which]
    largest = _LARGEST * multipliers.min() / multipliers
    noise = _LARGEST * multipliers.min() * sqrt(_STEPS)

    def noisy_sum(weights: Weights) -> Weights:
        drawn = noise * rng.standard_normal(weights.shape)
        return (clipped_sum(rows, labels, weights, largest) + drawn) / largest.sum()

    speed = rate(len(labels), _STEPS, float(multipliers.min() * _LARGEST / largest.mean()))
    return descend(noisy_sum, (rows.shape[1], classes), steps=_STEPS, learning_rate=speed)


def dp_sgd_rounds(task: Task) -> Score:
    """The same without a curator: each party sends the sum of its cut gradients and its share of the noise, in each of
    30 rounds, of which only the total is seen.
    """
    data, seen = task.dataset, public_rows(task)
    rng = np.random.default_rng([task.seed, *b"dp_sgd_rounds"])
    parties = [(seen(data.private_inputs[held]), data.private_labels[held]) for held in task.holdings]
    records = sum(len(labels) for _, labels in parties)
    multiplier = multiplier_of(task.budget, task.settings.delta)
    share = _LARGEST * multiplier * sqrt(_ROUNDS / len(parties))

    def noisy_sum(weights: Weights) -> Weights:
        sent = (
            clipped_sum(rows, labels, weights, _LARGEST) + share * rng.standard_normal(weights.shape)
            for rows, labels in parties
        )
        return np.sum(list(sent), axis=0) / (_LARGEST * records)

    shape = (parties[0][0].shape[1], data.classes)
    predict = descend(noisy_sum, shape, steps=_ROUNDS, learning_rate=rate(records, _ROUNDS, multiplier))
    sums = float(_ROUNDS * shape[0] * shape[1])
    return Score(predict(seen(data.test_inputs)) == data.test_labels, details={"rounds": _ROUNDS, "numbers_sent": sums})


# That the private second moment, with noise and this addition, is positive fails at most so often.
_FAILS: Final = 0.05


def adassp(
    private_x: Rows, private_y: Labels, pool_x: Rows, classes: int, epsilon: float, delta: float,
    rng: np.random.Generator,
) -> Predict:  # fmt: skip
    """Least squares by adaptive perturbation of sufficient statistics (Wang 2018, Algorithm 2), to one code a class.

    A third of the budget each for the smallest eigenvalue of the second moment, which a record moves by 1, for the
    second moment (by the root of 2) and for the rows' sums by class (by 2): rows and codes have length 1.
    """
    each = multiplier_of(epsilon, delta) * sqrt(3) / 2  # the noise on a move of 1
    features = private_x.shape[1]
    moment = private_x.T @ private_x
    tail = sqrt(log(6 / delta))
    least = max(0.0, float(np.linalg.eigvalsh(moment)[0]) + each * float(rng.standard_normal()) - each * tail)
    drawn = np.triu(sqrt(2) * each * rng.standard_normal(moment.shape))
    noisy = moment + drawn + np.triu(drawn, 1).T
    added = max(0.0, sqrt(2) * each * sqrt(features * log(2 * features**2 / _FAILS)) - least)
    codes = (np.eye(classes) - 1 / classes) / sqrt(1 - 1 / classes)
    sums = private_x.T @ codes[private_y] + 2 * each * rng.standard_normal((features, classes))
    weights = np.linalg.solve(noisy + added * np.eye(features), sums)
    return lambda rows: np.asarray((rows @ weights).argmax(axis=1))


dp_sgd_score: Final = scored(dp_sgd)
idp_sgd_score: Final = scored(idp_sgd)
adassp_score: Final = scored(adassp)
