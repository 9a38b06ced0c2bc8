"""Four hospitals with two findings of each patient, as processes: from mapping their columns to predicting both."""

import csv
import json
from dataclasses import replace

import numpy as np
import onnx
import pytest

from party.demo.demo_data import DemoData, demo_data, demo_study, record_draft
from protocols.mechanisms import ThresholdedGNMax
from protocols.study.queries import pool_digest
from protocols.study.several_findings import Binary
from protocols.sums.judging import Evaluation
from tests.harness.local_consortium import ConsortiumHere

# Heart disease, and angina at exercise: which one hospital does not record, and the others not of everybody.
NAMES, POOL, SILENT = ("num", "exang"), 80, "switzerland"


def data_of() -> DemoData:
    whole = demo_data(None)
    at, told = whole.header.index("exang"), {"no disease": "no", "disease": "yes"}
    widths = np.cumsum([0, *(each.width for each in whole.features)])
    place = [each.column for each in whole.features].index("exang")
    known = whole.test_inputs[:, widths[place] : widths[place + 1]]
    angina = np.where(known.any(axis=1), known.argmax(axis=1), -1)
    kept = np.delete(np.arange(widths[-1]), np.arange(widths[place], widths[place + 1]))
    rows = {
        name: [[*row[:at], *row[at + 1 : -1], told[row[-1]], row[at]] for row in each]
        for name, each in whole.rows.items()
    }
    return replace(
        whole, class_names=("no", "yes"), features=tuple(each for each in whole.features if each.column != "exang"),
        header=[*(name for name in whole.header if name != "exang"), "exang"], rows=rows, pool=whole.pool[:POOL, kept],
        test_inputs=whole.test_inputs[:, kept], test_labels=np.stack([whole.test_labels, angina], axis=1),
    )  # fmt: skip


class WithFindings(ConsortiumHere):
    """Each hospital says what its words mean, and one that it has no such column."""

    def _files(self):
        super()._files()
        path = self.folder / f"{SILENT}.csv"
        rows = [row[:-1] for row in csv.reader(path.read_text().splitlines())]
        with path.open("w", newline="") as file:
            csv.writer(file).writerows(rows)

    def _approve(self, name):
        words = ["--value", "exang:0=no", "--value", "exang:1=yes"]
        more = ["--column", "exang="] if name == SILENT else words
        self.party(name, "data", "map", str(self.folder / "study.toml"), *more, "--yes")
        super()._approve(name)


def drafted(draft, data, *, epsilon=8.0, **own):
    terms = replace(
        draft.terms, class_names=data.class_names, label="", findings=NAMES, features=data.features,
        input_shape=data.pool.shape[1:], pool_size=len(data.pool), pool_sha256=pool_digest(data.pool),
    )  # fmt: skip
    roster = tuple(replace(seat, epsilon=epsilon) for seat in draft.roster)
    return replace(draft, findings=NAMES, terms=terms, roster=roster, **own)


def of_teachers(data):
    draft = demo_study(replace(data, features=demo_data(None).features, pool=demo_data(None).pool))
    # Little noise, and a threshold that three hospitals reach: some patients are named with each finding in every run.
    noise = ThresholdedGNMax(sigma=4.0, threshold=22.0)
    votes = replace(draft.votes, asks=Binary(2), query_limit=2 * POOL, batch_limit=20, mechanism=noise)
    return drafted(draft, data, epsilon=14.0, votes=votes, quorum=3)


def of_records(data):
    draft = record_draft(replace(data, features=demo_data(None).features, pool=demo_data(None).pool))
    judges = Evaluation(share=0.3, key="0" * 64, bins=6, rows=8, threshold=0.5)  # which `study queries` completes
    return drafted(draft, data, classes=4, votes=replace(draft.votes, evaluation=judges))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("study_of", "student"), [(of_teachers, "logistic_regression"), (of_records, "scores")],
    ids=["teachers", "records at two servers"],
)  # fmt: skip
def test_four_hospitals_label_two_findings_and_each_is_predicted_by_name(tmp_path, study_of, student, forked):
    data = data_of()
    consortium = WithFindings(tmp_path, data, study_of(data), say=lambda line: None)
    if student == "scores":
        consortium.add_guardian()
    try:
        consortium.set_up()
        checked = json.loads(consortium.party("cleveland", "data", "check", "demo", "--json"))
        assert {sum(checked["findings"][name]) for name in NAMES} == {checked["records"]}
        for name in data.hospitals:
            consortium.start(name)
        consortium.coordinator("label", "demo")
        consortium.kill("centre")
        consortium.coordinator("label", "demo", "--wait")
        consortium.kill("centre")
        consortium.coordinator("train", "demo", "--student", student)
        if student == "scores":
            consortium.coordinator("evaluate", "demo", "--wait")
        release = consortium.verified_release()
        graph = onnx.load(release / "student.onnx")
        assert json.loads({each.key: each.value for each in graph.metadata_props}["findings"]) == list(NAMES)
        if student == "scores":
            # Without noise, by the tests; of angina fewer judges know anything.
            told = json.loads((release / "evaluation.json").read_text())["figures"]
            (_, low, high), known = told["num"]["accuracy"], told["exang"]["judges"][0] / told["num"]["judges"][0]
            assert high - low < 0.6
            assert known < 0.95
        np.savez(tmp_path / "tests.npz", inputs=data.test_inputs, labels=data.test_labels)
        shown = json.loads(consortium.party(
            "cleveland", "predict", str(release), "--records", str(tmp_path / "tests.npz"), "--out",
            str(tmp_path / "predicted.csv"), "--json",
        ))  # fmt: skip
        head, *rows = csv.reader((tmp_path / "predicted.csv").read_text().splitlines())
        assert head == ["row", "num", "num probability", "exang", "exang probability", "outside"]
        assert len(rows) == len(data.test_inputs)
        areas = {each["name"]: each["auroc"] for each in shown["score"]["findings"]}
        assert areas["num"] > 0.7
        assert areas["exang"] > 0.55
        alone = json.loads(consortium.party("va", "data", "score", "demo", "--release", str(release), "--json"))
        assert set(alone["alone"]) == set(NAMES)
    finally:
        consortium.stop()
