"""Linear models with privacy: what a record moves, what noise an epsilon has, and what decides the rows."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from interpret.privacy import DPExplainableBoostingClassifier
from scipy.stats import norm

from benchmarks import dp_ebm, linear
from simulations.datasets import load
from simulations.datasets.dataset import DatasetRequest

DELTA = 1e-5
FITS = [linear.dp_sgd, linear.idp_sgd, linear.adassp]


class Noise:
    """In the place of a generator: draws that are zero, and the scale of each is kept by who asks."""

    def __init__(self, draws=None):
        self.draws, self.asked = draws or (lambda shape: np.zeros(shape)), []

    def standard_normal(self, size=None):
        self.asked.append(size)
        return self.draws(() if size is None else size)

    def permutation(self, values):
        return np.asarray(values)


def some_rows(records=40, features=6, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(records, features))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True), rng.integers(0, classes, records)


def a_task(name, epsilon=1.0, **sizes):
    data = load(name, DatasetRequest(seed=0, **sizes))
    shards = np.array_split(np.arange(len(data.private_labels)), 4)
    return SimpleNamespace(
        dataset=data, inputs=SimpleNamespace(dataset=data), epsilon=epsilon, budget=epsilon, seed=0,
        settings=SimpleNamespace(delta=DELTA), holdings=shards,
    )  # fmt: skip


def delta_of(move, epsilon):
    """Balle and Wang 2018, Theorem 8: of one Gaussian sum that moves by so many standard deviations."""
    return norm.cdf(move / 2 - epsilon / move) - np.exp(epsilon) * norm.cdf(-move / 2 - epsilon / move)


def test_replacing_any_record_moves_the_sum_of_cut_gradients_by_no_more_than_twice_its_cut():
    rows, labels = some_rows()
    rng, largest, moved = np.random.default_rng(1), 0.1, []
    for weights in (np.zeros((6, 3)), 50 * rng.normal(size=(6, 3))):
        first = linear.clipped_sum(rows, labels, weights, largest)
        for other in [*some_rows(30, seed=2)[0], -rows[0], rows[0]]:
            for label in range(3):
                rows_, labels_ = rows.copy(), labels.copy()
                rows_[0], labels_[0] = other, label
                moved.append(np.linalg.norm(linear.clipped_sum(rows_, labels_, weights, largest) - first))
    assert 1.9 * largest < max(moved) <= 2 * largest + 1e-12


def test_a_cut_gradient_is_the_gradient_of_the_cross_entropy_made_shorter():
    rows, labels = some_rows(1)
    weights = np.random.default_rng(1).normal(size=(6, 3))
    whole = linear.clipped_sum(rows, labels, weights, np.inf)

    def loss(at):
        scores = rows[0] @ at
        return np.log(np.exp(scores).sum()) - scores[labels[0]]

    for place in np.ndindex(whole.shape):
        step = np.zeros(whole.shape)
        step[place] = 1e-6
        assert whole[place] == pytest.approx((loss(weights + step) - loss(weights - step)) / 2e-6, abs=1e-6)
    half = np.linalg.norm(whole) / 2
    assert linear.clipped_sum(rows, labels, weights, half) == pytest.approx(whole / 2)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_the_noise_of_all_steps_is_one_gaussian_sum_at_the_epsilon(monkeypatch, epsilon):
    """The noise of a step is seen where no record says anything: every residual is cut to nothing."""
    rows, labels = some_rows()
    seen = []

    def kept(noisy_sum, shape, *, steps, learning_rate):
        seen.append((noisy_sum(np.zeros(shape)), steps))
        return lambda of: np.zeros(len(of), np.int64)

    monkeypatch.setattr(linear, "descend", kept)
    monkeypatch.setattr(linear, "clipped_sum", lambda *given: 0.0)
    noise = Noise(np.ones)
    linear.dp_sgd(rows, labels, rows, 3, epsilon, DELTA, noise)
    ((drawn, steps),) = seen
    move = 2 * linear._LARGEST * np.sqrt(steps) / (drawn[0, 0] * linear._LARGEST * len(rows))
    assert 0.98 * DELTA < delta_of(move, epsilon) <= DELTA
    theirs = privacy_loss_distribution.from_gaussian_mechanism(1 / move, value_discretization_interval=1e-4)
    assert theirs.get_epsilon_for_delta(DELTA) == pytest.approx(epsilon, rel=5e-3)


def test_a_record_with_a_larger_budget_moves_every_step_further_in_just_that_measure(monkeypatch):
    rows, labels = some_rows(100)
    seen = {}

    def kept(rows, labels, weights, largest):
        seen["largest"] = largest
        return np.zeros(weights.shape)

    monkeypatch.setattr(linear, "clipped_sum", kept)
    noise = Noise(np.ones)
    linear.idp_sgd(rows, labels, rows, 3, 0.5, DELTA, noise)
    found, counts = np.unique(seen["largest"], return_counts=True)
    assert counts.tolist() == [34, 43, 23]
    scale = linear._LARGEST * linear.multiplier_of(1.5, DELTA) * np.sqrt(linear._STEPS)
    for largest, epsilon in zip(found, (0.5, 1.0, 1.5), strict=True):
        move = 2 * largest * np.sqrt(linear._STEPS) / scale
        assert 0.98 * DELTA < delta_of(move, epsilon) <= DELTA


def test_least_squares_pay_for_three_gaussian_sums_together():
    rows, labels = some_rows(60)
    each = linear.multiplier_of(1.0, DELTA) * np.sqrt(3) / 2
    moved = {"least": [], "moment": [], "sums": []}
    codes = (np.eye(3) - 1 / 3) / np.sqrt(2 / 3)
    for other in [*some_rows(20, seed=5)[0], -rows[0]]:
        for label in range(3):
            rows_, labels_ = rows.copy(), labels.copy()
            rows_[0], labels_[0] = other, label
            pairs = [(rows, labels), (rows_, labels_)]
            moments = [of.T @ of for of, _ in pairs]
            sums = [of.T @ codes[said] for of, said in pairs]
            moved["least"].append(np.linalg.eigvalsh(moments[1])[0] - np.linalg.eigvalsh(moments[0])[0])
            moved["moment"].append(np.linalg.norm(moments[1] - moments[0]) / np.sqrt(2))
            moved["sums"].append(np.linalg.norm(sums[1] - sums[0]) / 2)
    assert all(np.abs(of).max() <= 1 + 1e-12 for of in moved.values())
    assert max(moved["sums"]) > 0.8
    assert 0.98 * DELTA < delta_of(np.sqrt(3) / each, 1.0) <= DELTA
    noise = Noise()
    linear.adassp(rows, labels, rows, 3, 1.0, DELTA, noise)
    assert noise.asked == [None, (6, 6), (6, 3)]


def test_parties_round_by_round_add_the_noise_of_one_curator(monkeypatch):
    task = a_task("breast_cancer")
    seen = {}

    def kept(noisy_sum, shape, *, steps, learning_rate):
        seen.update(noise=np.array([noisy_sum(np.zeros(shape)) for _ in range(200)]), steps=steps, shape=shape)
        return lambda of: np.zeros(len(of), np.int64)

    monkeypatch.setattr(linear, "descend", kept)
    monkeypatch.setattr(linear, "clipped_sum", lambda *given: 0.0)
    found = linear.dp_sgd_rounds(task)
    records = sum(map(len, task.holdings))
    expected = linear.multiplier_of(1.0, DELTA) * np.sqrt(seen["steps"]) / records
    # 200 draws of at least 60 numbers: six standard errors.
    assert seen["noise"].std() == pytest.approx(expected, rel=6 / np.sqrt(2 * seen["noise"].size))
    assert found.details == {"rounds": 30, "numbers_sent": 30.0 * seen["shape"][0] * seen["shape"][1]}


def test_rows_have_length_one_and_neither_private_nor_test_records_decide_them():
    for name, sizes in (("breast_cancer", {}), ("digits", {})):
        task = a_task(name, **sizes)
        rows = linear.public_rows(task)(task.dataset.test_inputs)
        assert np.linalg.norm(rows, axis=1) == pytest.approx(np.ones(len(rows)))
        other = replace(
            task.dataset, private_inputs=task.dataset.private_inputs * 9, test_inputs=task.dataset.test_inputs * 0
        )
        changed = SimpleNamespace(**{**vars(task), "dataset": other})
        assert (linear.public_rows(changed)(task.dataset.test_inputs) == rows).all()


@pytest.mark.parametrize("fit", FITS)
def test_a_class_that_is_named_does_not_depend_on_the_other_test_records_or_their_labels(fit):
    task = a_task("breast_cancer")
    whole = linear.scored(fit)(task)
    data = task.dataset
    part = replace(data, test_inputs=data.test_inputs[:10], test_labels=data.test_labels[:10])
    first = linear.scored(fit)(SimpleNamespace(**{**vars(task), "dataset": part}))
    assert (first.right == whole.right[:10]).all()


def test_boosted_trees_pay_for_all_their_sums_together():
    rows, labels = some_rows(300, classes=2)
    move = 2 / linear.multiplier_of(1.0, DELTA)
    model = DPExplainableBoostingClassifier(
        feature_types=["continuous"] * 6, privacy_bounds=np.stack([rows.min(axis=0), rows.max(axis=0)], axis=1),
        epsilon=dp_ebm.own_epsilon(move / 2, DELTA), delta=DELTA, random_state=0, n_jobs=1, max_rounds=5,
    )  # fmt: skip
    with pytest.warns(UserWarning, match="(?i)privacy"):
        model.fit(rows, labels)
    assert 0.98 * DELTA < delta_of(2 * dp_ebm.moved(model), 1.0) <= DELTA * (1 + 1e-6)
