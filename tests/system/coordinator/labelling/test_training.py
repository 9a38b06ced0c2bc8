from pathlib import Path

import numpy as np

from coordinator.labelling.training import first_student, keep_student, kept_student, train_student
from coordinator.store.store import LabelledStudy
from protocols.errors import DataCorrupt, DataUnavailable, InvalidInput
from protocols.votes import ABSTAIN, NOT_ASKED
from tests.harness.refusals import refuses
from tests.harness.studies import deployed_study, pool_of

STUDY = deployed_study(2)
POOL = pool_of(60, 4)
TRUTH = (POOL[:, 0] > 0).astype(np.int64)


def labelled(labels, reinforced=None):
    return LabelledStudy(
        study=STUDY,
        ledger=Path("ledger.sqlite"),
        pool=Path("pool.npy"),
        labels=labels,
        reinforced=np.full(60, ABSTAIN) if reinforced is None else reinforced,
        batches=((60, 30),),
        stop="pool_exhausted",
        left_out={},
        differences={},
    )


HALF = np.where(np.arange(60) < 30, TRUTH, np.where(np.arange(60) < 45, ABSTAIN, NOT_ASKED))


def test_a_student_learns_what_was_released_and_sees_the_rest_unlabelled():
    trained = train_student(labelled(HALF), POOL, kind="random_forest", seed=1, device="cpu")
    assert (trained.labels, trained.reinforced, trained.unlabelled) == (30, 0, 30)
    assert trained.agreement == 1.0
    assert (trained.student.predict(POOL) == TRUTH).mean() > 0.7


def test_a_kind_is_chosen_by_the_released_labels_and_kept_by_its_name(tmp_path, monkeypatch):
    kinds = {"random_forest": "sklearn", "logistic_regression": "sklearn"}
    monkeypatch.setattr("coordinator.students.choice._FOR_ROWS", kinds)
    monkeypatch.setattr("coordinator.students.scikit.STUDENT_TREES", 5)
    trained = train_student(labelled(HALF), POOL, kind="auto", seed=1, device="cpu")
    assert trained.kind in kinds
    assert [score.kind for score in trained.choice.scores] == list(kinds)
    keep_student(tmp_path, labelled(HALF), trained)
    assert kept_student(tmp_path, labelled(HALF), POOL).kind == trained.kind


def test_reinforced_labels_count_where_the_parties_gave_none():
    reinforced = np.full(60, ABSTAIN)
    reinforced[25:40] = 1 - TRUTH[25:40]
    trained = train_student(labelled(HALF, reinforced), POOL, kind="random_forest", seed=1, device="cpu")
    assert (trained.labels, trained.reinforced, trained.unlabelled) == (30, 10, 20)
    assert (trained.student.predict(POOL[:25]) == TRUTH[:25]).mean() > 0.9


def test_a_study_without_labels_trains_no_student():
    with refuses(InvalidInput, "label"):
        train_student(labelled(np.full(60, ABSTAIN)), POOL, kind="random_forest", seed=1, device="cpu")


def test_a_kept_student_is_the_same_again(tmp_path):
    with refuses(DataUnavailable, "--student"):
        kept_student(tmp_path, labelled(HALF), POOL)
    trained = train_student(labelled(HALF), POOL, kind="random_forest", seed=1, device="cpu")
    keep_student(tmp_path, labelled(HALF), trained)
    again = kept_student(tmp_path, labelled(HALF), POOL)
    assert (again.student.predict_proba(POOL) == trained.student.predict_proba(POOL)).all()
    other = HALF.copy()
    other[0] = 1 - other[0]
    with refuses(InvalidInput, "labels"):
        kept_student(tmp_path, labelled(other), POOL)
    (tmp_path / "student.json").write_text("{}")
    with refuses(DataCorrupt, "run train again"):
        kept_student(tmp_path, labelled(HALF), POOL)


def test_between_rounds_the_same_labels_train_once(monkeypatch):
    train = first_student(STUDY, POOL, kind="random_forest")
    first = train(HALF)
    assert first.shape == (60, 2)
    np.testing.assert_allclose(first.sum(axis=1), 1.0)
    monkeypatch.setattr("coordinator.labelling.training.student_kind", None)
    assert train(HALF.copy()) is first


def test_between_rounds_without_a_label_all_predictions_are_alike():
    predicted = first_student(STUDY, POOL, kind="random_forest")(np.full(60, ABSTAIN))
    assert (predicted == 0.5).all()
