"""The release of a study of several findings: labels by name, a student as one ONNX file, and what a verifier finds."""

import csv
import json
from dataclasses import replace

import numpy as np
import onnx
import pytest

from coordinator.labelling.training import train_student
from coordinator.release.export import model_for_judges
from coordinator.release.verify import verify_release
from party.audit import read_student
from protocols.errors import InvalidInput
from protocols.mechanisms import make_mechanism
from protocols.refusals.code import Code
from protocols.release.sums import read_votes
from protocols.study.file import read_deployed, write_study
from protocols.study.several_findings import Binary, Powerset, Tau
from protocols.sums.judging import apart
from tests.harness import deployed_records
from tests.harness.deployed_records import HOSPITALS, judged_by, record_study_of
from tests.harness.refusals import refused_for
from tests.harness.released import POOL, Consortium, failed
from tests.harness.studies import deployed_study

NAMES = ("effusion", "oedema, both", "nodule")
# What the harness's teachers say: a finding is there where its feature is above 0.
SAID = (POOL[:, : len(NAMES)] > 0).astype(np.int64)
WAYS = {
    "binary": (Binary(3), make_mechanism("gnmax", view="label", sigma=6.0)),
    "powerset": (Powerset.occurring(SAID), make_mechanism("gnmax", view="label", sigma=6.0)),
    "tau": (Tau(3), make_mechanism("tau", view="label", sigma=6.0, tau=1.8, threshold=30.0)),
}


def teachers_study(way):
    asks, mechanism = WAYS[way]
    base = deployed_study(pool=len(POOL), epsilon=14.0)
    limits = {"query_limit": len(POOL) * asks.rows, "batch_limit": 7 * asks.rows}
    votes = replace(base.votes, asks=asks, mechanism=mechanism, teachers=20, **limits)
    terms = replace(base.terms, label="", findings=NAMES)
    return replace(base, classes=asks.classes, votes=votes, accountant_name="gaussian", findings=NAMES, terms=terms)


@pytest.mark.parametrize("way", WAYS)
def test_labels_of_findings_are_released_by_name_learned_and_verified(tmp_path, way):
    consortium, study = Consortium(tmp_path), teachers_study(way)
    (tmp_path / "study.toml").write_text(write_study(study))
    assert read_deployed(tmp_path / "study.toml") == study
    labelled = consortium.label(study)
    trained = train_student(labelled, POOL, kind="logistic_regression", seed=0, device="cpu")
    folder = consortium.release(labelled, tmp_path / "release", trained=trained)
    assert failed(folder, pool=labelled.pool) == {}
    head, *rows = csv.reader((folder / "labels.csv").read_text().splitlines())
    assert head == ["query", *NAMES]
    assert np.mean(np.array(rows)[:, 1:].astype(int) == SAID) > 0.95
    np.testing.assert_array_equal(read_votes(folder, study).labels, labelled.labels)
    graph = onnx.load(folder / "student.onnx")
    assert json.loads({each.key: each.value for each in graph.metadata_props}["findings"]) == list(NAMES)
    student = read_student(folder, authority=consortium.authority, coordinator="centre")
    np.testing.assert_allclose(student.chances(POOL), trained.student.predict_proba(POOL), atol=1e-5)
    assert (student.predict(POOL) == SAID).mean() > 0.9
    card = (folder / "model_card.md").read_text()
    assert all(name in card and name in (folder / "report.html").read_text() for name in NAMES)


@pytest.mark.parametrize(
    ("kind", "student"), [("graded", "scores"), ("graded", "logistic_regression+equal"), ("columns", "mlp")]
)
def test_sums_of_findings_give_labels_and_students_that_a_verifier_makes_again(tmp_path, kind, student):
    study, queries = record_study_of(kind, epsilon=50.0, findings=NAMES)
    assert study.classes == len(NAMES) * (1 if kind == "graded" else 2)
    consortium = Consortium(tmp_path)
    labelled = consortium.label(study, queries=queries)
    trained = train_student(labelled, deployed_records.POOL, kind=student, seed=0, device="cpu")
    folder = consortium.release(labelled, tmp_path / "release", trained=trained)
    checks = {check.name: check.passed for check in verify_release(folder, None, pool=labelled.pool)}
    assert [name for name, passed in checks.items() if passed is not True] == ["authority"]
    head, *rows = csv.reader((folder / "soft_labels.csv").read_text().splitlines())
    assert head == ["record", "queries", *NAMES]
    truth = deployed_records.POOL[:, : len(NAMES)] > 0.5
    given = np.array(rows)[:, 2:].astype(float)
    for at in range(len(NAMES)):
        assert given[truth[:, at], at].mean() > given[~truth[:, at], at].mean() + 0.1
    found = read_student(folder, authority=consortium.authority, coordinator="centre")
    pool = deployed_records.POOL
    seen = pool if trained.features is None else trained.features(pool)
    np.testing.assert_allclose(found.chances(pool), trained.student.predict_proba(seen), atol=1e-4)
    figures = json.loads((folder / "student.json").read_text())
    (folder / "student.json").write_text(json.dumps(figures | {"thresholds": [0.5] * len(NAMES)}, indent=2) + "\n")
    consortium.sign_again(folder)
    assert "student" in failed(folder, pool=labelled.pool)


@pytest.mark.parametrize("kind", ["graded", "columns"])
def test_judges_say_of_each_finding_how_good_the_student_is_and_a_release_names_it(tmp_path, kind):
    study, queries = record_study_of(kind, epsilon=50.0, share=0.4, findings=NAMES)
    consortium, made = Consortium(tmp_path), {}

    def judge(labelled):
        pool = deployed_records.POOL
        made["trained"] = train_student(labelled, pool, kind="logistic_regression", seed=0, device="cpu")
        made["model"] = model_for_judges(made["trained"], pool)
        return made["model"]

    labelled = consortium.label(study, queries=queries, judge=judge)
    with refused_for(Code.NOT_GOOD_ENOUGH, NAMES[1]):
        consortium.release(labelled, tmp_path / "no", required=[f"auroc of {NAMES[1]}>=0.9999"], **made)
    folder = consortium.release(labelled, tmp_path / "release", required=[f"auroc of {NAMES[0]}>=0.4"], **made)
    checks = verify_release(folder, None, pool=labelled.pool)
    assert [check.name for check in checks if not check.passed] == ["authority"]
    said = json.loads((folder / "evaluation.json").read_text())
    exact = apart(np.sum([judged_by(study, made["model"], seat) for seat in HOSPITALS], axis=0) / study.units, 3)
    for name, table in zip(NAMES, exact, strict=True):
        _, low, high = said["figures"][name]["accuracy"]
        assert low <= np.trace(table[:2]) / table[:2].sum() <= high
        assert high - low < 0.5
        # A fifth of the records does not know the last finding: some of about 70 judges, drawn anew in each run.
        held = table[:2].sum() / exact[0][:2].sum()
        assert 0.5 < held < 0.99 if name == NAMES[-1] else held == pytest.approx(1.0, abs=0.1)
    student = read_student(folder, authority=consortium.authority, coordinator="centre")
    assert set(student.judged.of_findings) == set(NAMES)
    given, calibrated = student.scores(POOL), student.chances(POOL)
    for at, name in enumerate(NAMES):
        bins = np.searchsorted(study.votes.evaluation.edges, given[:, at], side="right")
        np.testing.assert_array_equal(calibrated[:, at], np.array(said["calibrated"][name])[bins])
    assert f"{NAMES[0]}: accuracy" in (folder / "model_card.md").read_text()


def test_findings_and_a_label_do_not_go_together():
    study = teachers_study("binary")
    with pytest.raises(InvalidInput, match="label"):
        replace(study.terms, label="side")
