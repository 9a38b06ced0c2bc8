"""Choosing a kind of student: what each fold may see, which kind wins, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy import ndarray

from coordinator.students import STUDENTS, choice
from coordinator.students.choice import FOLDS, choose_student
from coordinator.students.student import one_hot
from protocols.errors import InvalidInput
from protocols.plugins import _registered
from tests.harness.distributions import install, refreshed
from tests.harness.refusals import refuses

ROWS = np.arange(80, dtype=np.float32).reshape(40, 2)
LABELS = np.arange(30) % 3
TARGETS = one_hot(LABELS, 3)


class Fake:
    """A kind that is right on one share of the rows, by their number, and keeps what it was given."""

    needs_images = False
    exporter = ""

    def __init__(self, right: float) -> None:
        self.right = right
        self.given: list[tuple[ndarray, ndarray, ndarray]] = []

    def fit(self, inputs: ndarray, targets: ndarray, *, unlabelled: ndarray, classes: int, seed: int) -> Fake:
        assert (classes, seed) == (3, 7)
        self.given.append((inputs, targets, unlabelled))
        return self

    def predict(self, inputs: ndarray) -> ndarray:
        rows = inputs[:, 0].astype(int) // 2
        return np.where(rows < 30 * self.right, rows, rows + 1) % 3


@pytest.fixture
def kinds(monkeypatch: pytest.MonkeyPatch) -> dict[str, Fake]:
    made = {"logistic_regression": Fake(0.5), "mlp": Fake(0.8), "random_forest": Fake(0.8)}
    monkeypatch.setattr(choice, "_FOR_ROWS", {"logistic_regression": "numpy", "mlp": "numpy", "random_forest": "numpy"})
    monkeypatch.setattr(choice, "student_kind", lambda name, *, device: made[name])
    return made


def choose(targets: ndarray = TARGETS) -> choice.Choice:
    return choose_student(ROWS[: len(targets)], targets, unlabelled=ROWS[30:], seed=7, device="cpu")


def test_the_kind_that_predicts_most_held_out_labels_is_chosen_and_of_equal_ones_the_first(
    kinds: dict[str, Fake],
) -> None:
    chosen = choose()
    assert chosen.kind == "mlp"
    assert [score.agreement for score in chosen.scores] == pytest.approx([0.5, 0.8, 0.8])
    assert choose() == chosen


def test_each_label_is_held_out_once_and_its_input_is_then_unlabelled(kinds: dict[str, Fake]) -> None:
    choose()
    given = kinds["random_forest"].given
    held = [np.setdiff1d(np.arange(30), inputs[:, 0] // 2) for inputs, _, _ in given]
    assert len(given) == FOLDS
    assert sorted(np.concatenate(held)) == list(range(30))
    for (inputs, targets, unlabelled), out in zip(given, held, strict=True):
        np.testing.assert_array_equal(targets.argmax(1), inputs[:, 0] // 2 % 3)
        assert set(unlabelled[:, 0] // 2) == {*out, *range(30, 40)}
        assert np.ptp(np.bincount(LABELS[out], minlength=3)) <= 1


def test_a_label_counts_by_its_weight(kinds: dict[str, Fake]) -> None:
    weights = np.where(np.arange(30) < 15, 3, 1).astype(np.float32)
    [score, *_] = choose(TARGETS * weights[:, None]).scores
    assert score.agreement == pytest.approx(0.75, abs=0.1)


def test_a_kind_that_is_not_installed_is_listed_without_a_score(
    kinds: dict[str, Fake], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "_FOR_ROWS", {"logistic_regression": "numpy", "mlp": "no_such_package"})
    chosen = choose()
    assert chosen.kind == "logistic_regression"
    assert chosen.scores[1] == choice.KindScore("mlp", None, None)
    monkeypatch.setattr(choice, "_FOR_ROWS", {"mlp": "no_such_package"})
    with refuses(InvalidInput, "mlp"):
        choose()


@pytest.mark.parametrize(("exporter", "chosen"), [("plugin:write", "plugged"), ("", "mlp")])
def test_a_kind_of_another_distribution_is_considered_where_a_release_can_contain_it(
    kinds: dict[str, Fake], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exporter: str, chosen: str
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    install(tmp_path, name="plugged", group="conclave.students", entries={"plugged": "plugged:kind"})
    monkeypatch.setattr(choice, "STUDENTS", refreshed(STUDENTS))
    kinds["plugged"] = Fake(1.0)
    kinds["plugged"].exporter = exporter
    assert choose().kind == chosen
    _registered.cache_clear()
