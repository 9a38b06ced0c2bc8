"""What a hospital's own model reaches alone, and a released student on the hospital's own records."""

import csv
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import conclave
from party.commands.group import run_command
from party.data.records import Records
from party.home import PartyHome
from party.teachers.own import kind_of
from party.voting.training import predicted_unseen
from protocols.crypto.identity import new_key, to_pem
from protocols.features.feature_map import FeatureMap
from protocols.features.linear import Scale
from protocols.features.texts import gram_vectors
from protocols.ledger.ledger import Ledger
from protocols.release.manifest import AUTHORITY_FILE, COORDINATOR_FILE, write_manifest
from protocols.study.file import write_study
from protocols.study.terms import Feature
from runtime.exits import Exit
from tests.harness.amounts import nano
from tests.harness.certifying import Certifying
from tests.harness.homes import FEATURES, make_member, study_file, write_records
from tests.harness.refusals import refuses
from tests.harness.studies import NOW, deployed_study


def student_of_first_feature(width):
    """An ONNX file that answers class 1 where the first feature is above 0."""
    nodes = [
        helper.make_node("Gather", ["inputs", "first"], ["value"], axis=1),
        helper.make_node("Greater", ["value", "zero"], ["above"]),
        helper.make_node("Cast", ["above"], ["label"], to=TensorProto.INT64),
    ]
    graph = helper.make_graph(
        nodes,
        "student",
        [helper.make_tensor_value_info("inputs", TensorProto.FLOAT, ["queries", width])],
        [helper.make_tensor_value_info("label", TensorProto.INT64, ["queries"])],
        [
            numpy_helper.from_array(np.array(0, np.int64), "first"),
            numpy_helper.from_array(np.array(0, np.float32), "zero"),
        ],
    )
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()


def release_of(folder, study, authority):
    """A signed release of a study, with that student."""
    folder.mkdir()
    key = new_key()
    (folder / COORDINATOR_FILE).write_bytes(to_pem(authority.certify(key, "centre", "coordinator")))
    (folder / AUTHORITY_FILE).write_bytes(to_pem(authority.authority))
    (folder / "study.toml").write_text(write_study(study))
    (folder / "student.onnx").write_bytes(student_of_first_feature(study.terms.input_shape[0]))
    # It learned from numbers of the first feature up to 1.
    (folder / "student.json").write_text(json.dumps({"ranges": {study.terms.features[0].column: [-9.0, 1.0]}}))
    write_manifest(folder, study=study.digest, created=NOW, key=key)
    return folder


@pytest.fixture(scope="module")
def authority():
    made = Certifying()
    made.make_authority()
    made.address, made.enrol_port = "127.0.0.1:1", 2
    return made


@pytest.fixture(scope="module")
def place(tmp_path_factory, authority):
    """A home, its study's file, and a signed release of that study."""
    folder = tmp_path_factory.mktemp("scoring")
    home = make_member(folder / "a", authority)
    made = deployed_study(1)
    study = replace(made, terms=replace(made.terms, features=FEATURES))
    return home, study_file(folder, study), release_of(folder / "release", study, authority)


def run(home, *arguments):
    return run_command([*map(str, arguments), "--home", str(home.path)])


def test_alone_is_scored_on_records_that_the_model_did_not_see_and_together_is_the_released_student(place, capsys):
    home, file, release = place
    assert run(home, "data", "score", file, "--release", release, "--json") == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["together"]["accuracy"] == 1.0, "the label is the sign of the first feature"
    assert 0.7 < figures["alone"]["accuracy"] < 1.0
    assert figures["alone"]["records"] == 60
    assert run(home, "data", "score", file) == 0
    said = capsys.readouterr().out
    assert said.startswith("alone     right in ")
    assert "always 'left' would be right in" in said or "always 'right' would be right in" in said
    assert "cross-validated in 5 parts, by patient" in " ".join(said.split())


def test_records_are_said_to_have_shaped_the_labels_only_where_this_home_answered_the_study(place, capsys):
    home, file, release = place
    assert run(home, "data", "score", file, "--release", release) == 0
    assert "--test" not in capsys.readouterr().out
    study = home.find_study(str(file))
    seat = study.roster[0].party
    path = home.ledger(study.digest, seat)
    path.parent.mkdir(parents=True, exist_ok=True)
    with Ledger(path) as ledger:
        ledger.open_accounts(nano({seat: 10}))
        ledger.reserve(0, b"d" * 32, {seat: 1}, b"", queries=[0], limit=10)
    assert run(home, "data", "score", file, "--release", release) == 0
    assert "--test" in capsys.readouterr().out
    path.unlink()


def test_records_of_nobody_who_is_named_are_parted_by_record(tmp_path, authority, capsys):
    home, made = make_member(tmp_path / "a", authority), deployed_study(1)
    text = home.settings_file.read_text()
    home.settings_file.write_text(text.replace('patient = "patient"', 'patient = ""'))
    study = replace(made, terms=replace(made.terms, features=FEATURES))
    assert run(home, "data", "score", study_file(tmp_path, study)) == 0
    assert "cross-validated in 5 parts, by record)" in " ".join(capsys.readouterr().out.split())


def test_alone_learns_what_teachers_learn(tmp_path, authority, capsys):
    home, made = make_member(tmp_path / "a", authority), deployed_study(1)
    file = study_file(tmp_path, replace(made, terms=replace(made.terms, features=FEATURES)))
    nothing = FeatureMap((4,), (Scale.of(np.zeros(4), np.zeros(4)),))
    (home.path / "features.npz").write_bytes(nothing.to_bytes())
    text = home.settings_file.read_text()
    named = f'[teachers]\nfeatures = "features.npz"\nfeatures_sha256 = "{nothing.digest}"'
    home.settings_file.write_text(text.replace("[teachers]", named))
    capsys.readouterr()
    assert run(home, "data", "score", file, "--json") == 0
    assert json.loads(capsys.readouterr().out)["alone"]["accuracy"] < 0.7
    home.settings_file.write_text(re.sub(r'(\[teachers\]\n(?:#.*\n)*kind = )"\w+"', r'\1"label_spreading"', text))
    assert run(home, "data", "score", file) == Exit.INVALID_INPUT
    assert "learns from the public pool" in " ".join(capsys.readouterr().err.split())


def test_records_that_were_kept_back_score_both(place, tmp_path, capsys):
    home, file, release = place
    kept = write_records(tmp_path / "kept.csv", rows=40, seed=9)
    assert run(home, "data", "score", file, "--release", release, "--test", kept) == 0
    said = capsys.readouterr().out
    assert "together  right in 100.0 %" in said
    assert "judged    not measured" in said
    assert "kept.csv" in said


def test_a_released_student_predicts_own_records_and_is_scored_where_labels_are(place, tmp_path, capsys):
    home, _, release = place
    table = write_records(tmp_path / "ward.csv", rows=20, seed=5)
    assert run(home, "predict", release, "--records", table, "--out", tmp_path / "p.csv") == 0
    assert "20 of 20 records: right in 100.0 %" in capsys.readouterr().out
    with table.open() as file, (tmp_path / "p.csv").open() as predicted:
        sides = [row["side"] for row in csv.DictReader(file)]
        assert [row["predicted"] for row in csv.DictReader(predicted)] == sides
    lines = [line.rsplit(",", 1)[0] for line in table.read_text().splitlines()]
    (tmp_path / "new.csv").write_text("\n".join(lines) + "\n")
    assert run(home, "predict", release, "--records", tmp_path / "new.csv", "--out", tmp_path / "q.csv") == 0
    assert "no labels, so nothing is scored" in capsys.readouterr().out
    assert (tmp_path / "q.csv").read_text() == (tmp_path / "p.csv").read_text()


def test_a_physician_without_a_node_predicts_from_the_release_and_the_authority_alone(place, tmp_path, capsys):
    home, _, release = place
    table = write_records(tmp_path / "ward.csv", rows=20, seed=5)
    away = PartyHome(tmp_path / "nowhere")
    (tmp_path / "authority.pem").write_bytes(home.invitation().authority)
    given = ["predict", release, "--records", table, "--authority", tmp_path / "authority.pem"]
    assert run(away, *given, "--id", "side", "--out", tmp_path / "p.csv") == 0
    column = FEATURES[0].column
    numbers = [row[column] for row in csv.DictReader(table.read_text().splitlines())]
    with (tmp_path / "p.csv").open() as predicted:
        rows = list(csv.DictReader(predicted))
    assert all(row["side"] == row["predicted"] for row in rows)
    assert [row["outside"] for row in rows] == [column if float(each) > 1.0 else "" for each in numbers]
    assert 0 < sum(bool(row["outside"]) for row in rows) < len(rows) == 20
    assert run(away, *given, "--id", "nothing", "--out", tmp_path / "q.csv") == 3
    assert "a column of" in capsys.readouterr().err
    other = Certifying()
    other.make_authority()
    (tmp_path / "authority.pem").write_bytes(to_pem(other.authority))
    assert run(away, *given, "--out", tmp_path / "q.csv") == 8


def test_a_release_over_text_reads_notes_as_its_study_says(place, authority, tmp_path):
    home, made = place[0], deployed_study(1)
    note = Feature(column="note", kind="text", vectors="grams:16")
    study = replace(made, terms=replace(made.terms, features=(note,), input_shape=(16,)))
    release = release_of(tmp_path / "release", study, authority)
    notes = ["c/o chest pain", 'denies SOB, "fine"', "fell\ntoday", "no rash", "fever"]
    (tmp_path / "ward.jsonl").write_text("".join(json.dumps({"note": text}) + "\n" for text in notes))
    assert run(home, "predict", release, "--records", tmp_path / "ward.jsonl", "--out", tmp_path / "p.csv") == 0
    above = gram_vectors(notes, 16)[:, 0] > 0
    assert len(set(above.tolist())) == 2
    with (tmp_path / "p.csv").open() as predicted:
        assert [row["predicted"] == "right" for row in csv.DictReader(predicted)] == above.tolist()


def test_the_same_in_python(place, tmp_path):
    home, _, release = place
    table = write_records(tmp_path / "ward.csv", rows=20, seed=5)
    with table.open() as file:
        rows = list(csv.DictReader(file))
    given = {"authority": home.authority, "coordinator": "centre"}
    assert conclave.predict(release, table, **given) == [row["side"] for row in rows]
    inputs = np.array([[float(row[f"f{at}"]) for at in range(4)] for row in rows], np.float32)
    assert conclave.predict(release, inputs, **given) == [row["side"] for row in rows]
    with refuses(conclave.ConclaveError, "other"):
        conclave.predict(release, table, authority=home.authority, coordinator="other")


@pytest.mark.parametrize("name", ["student.onnx", "study.toml", "manifest.json"])
def test_an_altered_release_predicts_nothing(place, tmp_path, name, capsys):
    home, _, release = place
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in release.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    (copy / name).write_bytes((copy / name).read_bytes() + b"\n")
    table = write_records(tmp_path / "ward.csv")
    code = run(home, "predict", copy, "--records", table, "--out", tmp_path / "p.csv")
    assert code == Exit.VERIFICATION
    assert not (tmp_path / "p.csv").exists()


def test_a_patient_is_never_on_both_sides_of_a_cross_validation():
    """Each patient has an exact copy of each record: a nearest neighbour that saw one would be right on the other."""
    rng = np.random.default_rng(1)
    inputs = np.repeat(rng.standard_normal((100, 3)).astype(np.float32), 2, axis=0)
    labels = np.repeat(rng.integers(0, 2, 100), 2)
    patients = [f"p{row // 2}" for row in range(200)]
    kind = kind_of("sklearn.neighbors:KNeighborsClassifier")
    apart = predicted_unseen(Records(inputs, labels, patients), kind, seed=3, classes=2) == labels
    together = predicted_unseen(Records(inputs, labels), kind, seed=3, classes=2) == labels
    assert apart.mean() < 0.65
    assert together.mean() > apart.mean() + 0.05
