"""The release of a study in which records voted: the sums, what is made of them, and what a verifier finds."""

import json
import re
import shutil
from dataclasses import replace
from html import unescape

import numpy as np
import onnx
import pytest

from coordinator.commands.running import verify
from coordinator.labelling.study_creation import plan_records
from coordinator.labelling.training import released_pool_labels, train_student
from coordinator.queries.choice import QueryChoice
from coordinator.release.verify import verify_release
from party.audit import audit_seat, read_student, released_labels, released_study
from protocols.errors import DataCorrupt
from protocols.ledger.ledger import Ledger
from protocols.levels.secure_sum.aggregation import SummedAggregation
from protocols.levels.secure_sum.ballot import SummedBallot
from protocols.levels.two_server.aggregation import SharedAggregation
from protocols.levels.two_server.ballot import SharedBallot
from protocols.release.manifest import sha256_of
from protocols.release.sums import read_soft_labels, read_sums
from protocols.study.file import read_deployed
from protocols.study.queries_file import read_blocks
from runtime.exits import Exit
from tests.harness import deployed_records
from tests.harness.deployed_records import FEATURES, HOSPITALS, POOL, draft, record_study_of, sum_of
from tests.harness.levels import SEAT_KEYS, GuardianHere, secure_sum, two_server
from tests.harness.pages import ROOT, names_of, section
from tests.harness.released import Consortium, failed
from tests.harness.seeded import seeded_source
from tests.harness.studies import seat_keys


@pytest.fixture(scope="module")
def record_release(tmp_path_factory):
    """A consortium, what it labelled, and a release with a student, not to be written to."""
    folder = tmp_path_factory.mktemp("records")
    consortium = Consortium(folder)
    study, queries = record_study_of(epsilon=20.0)
    labelled = consortium.label(study, queries=queries)
    trained = train_student(labelled, POOL, kind="random_forest", seed=0, device="cpu")
    return consortium, labelled, consortium.release(labelled, folder / "release", trained=trained)


@pytest.fixture
def altered(record_release, tmp_path):
    """A function that changes a file of a copy, has the coordinator sign it, and returns the failed checks."""
    consortium, _, folder = record_release
    copy = shutil.copytree(folder, tmp_path / "copy")

    def change(name, old, new):
        text = (copy / name).read_text()
        assert old in text
        (copy / name).write_text(text.replace(old, new, 1))
        consortium.sign_again(copy)
        return failed(copy)

    return change


def test_the_sums_that_are_released_are_those_of_the_records_with_noise(record_release):
    _, labelled, folder = record_release
    study = read_deployed(folder / "study.toml")
    queries = read_blocks(folder / "queries.npz", study)
    cells = read_sums(folder, study)
    np.testing.assert_array_equal(cells, labelled.cells)
    exact = sum(sum_of(study, queries, seat) for seat in HOSPITALS)
    noise = (cells - exact) / study.units
    assert 0 < np.abs(noise).max() < 6 * study.mechanism.label_sigma
    np.testing.assert_array_equal(released_labels(folder, study), cells.argmax(axis=1))


def test_the_statement_and_the_study_file_name_no_teacher_and_no_mechanism_where_records_vote(record_release):
    _, labelled, folder = record_release
    stated = json.loads((folder / "privacy.json").read_text())
    assert "mechanism" not in stated
    assert not {"teachers_per_party", "participation"} & set(stated["study"])
    described = names_of(section(ROOT / "docs" / "how-to" / "read-a-privacy-statement.md", "Every key"))
    assert {f"noise.{key}" for key in stated["noise"]} == {name for name in described if name.startswith("noise.")}
    assert stated["noise"]["law"] == "discrete_gaussian"
    assert stated["noise"]["sigma"] == stated["noise"]["in_each_sum"] == labelled.study.mechanism.label_sigma
    for name in ("privacy.json", "privacy.html", "study.toml", "report.html", "model_card.md"):
        assert "gnmax" not in (folder / name).read_text()


def test_the_soft_labels_say_what_the_records_do_and_the_student_learns_them(record_release):
    _, labelled, folder = record_release
    study = labelled.study
    soft = read_soft_labels(folder, study)
    queries = read_blocks(folder / "queries.npz", study)
    np.testing.assert_array_equal(soft.members, queries.cells(queries.features(POOL)))
    np.testing.assert_allclose(soft.probabilities, released_pool_labels(labelled, POOL).probabilities, atol=1e-6)
    np.testing.assert_allclose(soft.probabilities.sum(axis=1), 1, atol=1e-5)
    truth = (POOL[:, 0] > 0).astype(int)  # as in every hospital's records
    assert (soft.probabilities.argmax(axis=1) == truth).mean() > 0.8
    figures = json.loads((folder / "student.json").read_text())
    assert figures["labels"] == len(POOL)
    assert figures["agreement"] > 0.9
    assert (folder / "student.onnx").is_file()


def test_it_verifies_and_names_what_it_recomputed(record_release):
    _, _, folder = record_release
    checks = {check.name: check for check in verify_release(folder, None)}
    assert [name for name, check in checks.items() if not check.passed] == ["authority", "soft labels", "student"]
    assert checks["queries"].message == "the queries are the study's"
    assert checks["soft labels"].passed is None
    assert "that was not checked" in checks["soft labels"].message
    assert "--pool" in checks["soft labels"].next_step
    assert "the charges of 1 batch to 3 seats add up" in checks["charges"].message


def test_what_was_not_checked_stands_in_the_summary(record_release, capsys):
    _, _, folder = record_release
    assert verify.main([str(folder)], standalone_mode=False) == Exit.PARTLY
    said = capsys.readouterr()
    assert "NOT CHECKED  soft labels" in said.err
    assert "soft labels, student" in said.out.splitlines()[-1]
    verify.main([str(folder), "--json"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out)["not_checked"] == ["authority", "soft labels", "student"]


def test_the_statement_says_what_the_epsilon_means_for_one_record_once_and_for_ever(record_release):
    _, labelled, folder = record_release
    made = json.loads((folder / "privacy.json").read_text())
    assert made["records"]["queries"] == 8
    assert made["records"]["population"] == labelled.study.votes.population
    for words in made["records"]["used_once"].values():
        assert words.startswith("Each record's data are used once, in one noisy sum, and this costs at most epsilon 20")
        assert "for ever" in words
    assert made["protected"]["unit_in_words"] == "one record of one hospital, which votes once in the whole study"
    for seat in made["seats"]:
        assert seat["guarantee"]["epsilon"] == pytest.approx(20.0, rel=1e-3)
    page, card = ((folder / name).read_text() for name in ("privacy.html", "model_card.md"))
    # A hospital may have been absent: the card does not say that all of them voted.
    assert "each used at most once (a seat without a vote is named in `privacy.html`)" in card
    assert "What an epsilon means for one record" in page
    assert "for ever" in page
    assert "asked once and together" in page
    assert "Public pool of 40 records" in card
    assert "The study declares that all hospitals together have at most 300 records" in page
    assert "the study declares at most 300 in all" in card


def test_a_hospitals_own_audit_agrees_with_the_release(record_release):
    consortium, labelled, folder = record_release
    study = labelled.study
    assert released_study(folder, authority=consortium.authority, coordinator="centre") == study.digest.hex()
    labels = released_labels(folder, study)
    for seat, ledger in consortium.ledgers[study.name].items():
        found = audit_seat(ledger, study, seat, authority=consortium.authority, labels=labels, attested=None)
        # The harness keeps the frames at the coordinator only.
        assert {each.code for each in found.findings} <= {"no_evidence"}
        assert found.batches == 1


@pytest.mark.parametrize(
    ("name", "pick", "check"),
    [
        ("sums.csv", lambda text: (text.splitlines()[3], "2,90000,1"), "soft labels"),
        ("soft_labels.csv", lambda text: ("0.", "0.0"), "study and labels"),
        ("soft_labels.csv", lambda text: (text.splitlines()[1], text.splitlines()[2].replace("1,", "0,", 1)), None),
        ("study.toml", lambda text: ("population = 300", "population = 301"), "study and labels"),
    ],
    ids=["another sum", "no number as written", "another record's soft label", "another study"],
)
def test_what_a_coordinator_altered_and_signed_is_found(record_release, altered, name, pick, check):
    old, new = pick((record_release[2] / name).read_text())
    found = altered(name, old, new)
    assert found
    if check is not None:
        assert check in found


def test_another_file_of_queries_is_found(record_release, tmp_path):
    consortium, _, folder = record_release
    copy = shutil.copytree(folder, tmp_path / "copy")
    _, other = record_study_of(epsilon=20.0)
    partitions = (other.blocks[1], other.blocks[0], *other.blocks[2:])
    (copy / "queries.npz").write_bytes(type(other)(other.features, partitions).to_bytes())
    consortium.sign_again(copy)
    assert "allowed: that of the study" in failed(copy)["queries"]


@pytest.mark.parametrize("name", ["sums.csv", "soft_labels.csv"])
@pytest.mark.parametrize(
    ("text", "words"), [("9\n" * 40_000, "80000 bytes; allowed: at most"), ("9\n" * 50, "has more than")]
)
def test_a_file_longer_than_the_study_says_is_not_read_whole(record_release, tmp_path, name, text, words):
    study = record_release[1].study
    (tmp_path / name).write_text(text)
    with pytest.raises(DataCorrupt, match=words):
        {"sums.csv": read_sums, "soft_labels.csv": read_soft_labels}[name](tmp_path, study)


def test_without_the_sums_nothing_may_be_made_of_them(record_release, tmp_path):
    consortium, _, folder = record_release
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / "sums.csv").unlink()
    consortium.sign_again(copy)
    assert "without the sums" in failed(copy)["study and labels"]


def test_of_a_hospital_that_stayed_away_it_is_not_said_that_its_data_were_used(tmp_path):
    consortium = Consortium(tmp_path)
    study, queries = record_study_of(quorum=2)
    labelled = consortium.label(study, queries=queries, absent=lambda requests: frozenset(HOSPITALS[:1]))
    folder = consortium.release(labelled, tmp_path / "release")
    assert not failed(folder)
    once = json.loads((folder / "privacy.json").read_text())["records"]["used_once"]
    assert "epsilon" not in once[HOSPITALS[0]]
    assert all("epsilon" in once[each] for each in HOSPITALS[1:])


def test_a_study_that_lost_its_quorum_is_released_without_sums(tmp_path):
    consortium = Consortium(tmp_path)
    study, queries = record_study_of(quorum=3)
    labelled = consortium.label(study, queries=queries, absent=lambda requests: frozenset(HOSPITALS[:1]))
    assert labelled.stop == "quorum_lost"
    folder = consortium.release(labelled, tmp_path / "release")
    assert not (folder / "sums.csv").exists()
    assert not failed(folder)
    assert "Nothing was released" in (folder / "privacy.html").read_text()
    assert (released_labels(folder, study) < 0).all()


def summed(study):
    """The parts of level secure_sum."""
    return SummedAggregation(), lambda name, ledger: SummedBallot(
        study, name, ledger=ledger, key=SEAT_KEYS[study.seats[name]], source=seeded_source(study.seats[name])
    )


def shared(study):
    """The parts of level two_server."""
    guardian = GuardianHere(study, Ledger(":memory:"), seeded_source(8))
    parts = SharedAggregation(guardian.dial, source=seeded_source(9))
    return parts, lambda name, ledger: SharedBallot(
        study, name, key=SEAT_KEYS[study.seats[name]], source=seeded_source(study.seats[name])
    )


@pytest.mark.parametrize(
    ("level", "parts"),
    [
        (replace(secure_sum(colluders=1, units=1024), seat_keys=seat_keys(SEAT_KEYS[:3])), summed),
        (two_server(units=1024, seats=3), shared),
    ],
    ids=["secure_sum", "two_server"],
)
@pytest.mark.parametrize("kind", ["columns", "graded"])
def test_sums_of_which_nobody_saw_a_part_are_released_and_verify(tmp_path, level, parts, kind):
    study, queries = record_study_of(kind, level=level, quorum=3)
    consortium = Consortium(tmp_path)
    aggregation, ballots = parts(study)
    labelled = consortium.label(study, queries=queries, aggregation=aggregation, ballots=ballots)
    exact = sum(sum_of(study, queries, seat) for seat in HOSPITALS)
    assert np.abs(labelled.cells - exact).max() / study.units < 10 * study.mechanism.label_sigma
    folder = consortium.release(labelled, tmp_path / "release")
    assert not failed(folder)
    page = (folder / "privacy.html").read_text()
    assert "Each record" in page
    assert study.confidentiality.name in (folder / "privacy.json").read_text()


def test_with_the_pool_a_verifier_makes_all_soft_labels_again(record_release, tmp_path):
    _, _, folder = record_release
    np.save(tmp_path / "pool.npy", POOL)
    checks = {check.name: check for check in verify_release(folder, None, pool=tmp_path / "pool.npy")}
    assert checks["soft labels"].passed
    np.save(tmp_path / "other.npy", POOL + 1)
    checks = {check.name: check for check in verify_release(folder, None, pool=tmp_path / "other.npy")}
    assert "the pool's hash is" in checks["pool"].message


def test_labels_that_spread_over_the_pool_are_verified_with_it(tmp_path):
    planned = plan_records(draft(epsilon=20.0), POOL, choice=QueryChoice(kind="clusters:6", nearest=2), rule="uniform")
    consortium = Consortium(tmp_path)
    labelled = consortium.label(planned.study, queries=planned.queries)
    folder = consortium.release(labelled, tmp_path / "release")
    assert not failed(folder)
    (alone,) = [each for each in verify_release(folder, None) if each.name == "soft labels"]
    assert alone.passed is None
    assert "not made again" in alone.message
    (whole,) = [each for each in verify_release(folder, None, pool=labelled.pool) if each.name == alone.name]
    assert whole.passed
    assert "follow from the sums" in whole.message


def test_graded_sums_give_the_labels_that_records_have_and_verify_with_the_pool(tmp_path):
    study, queries = record_study_of("graded", epsilon=20.0)
    assert queries.signed
    assert study.votes.delta_squared == 4
    consortium = Consortium(tmp_path)
    labelled = consortium.label(study, queries=queries)
    trained = train_student(labelled, POOL, kind="scores", seed=0, device="cpu")
    folder = consortium.release(labelled, tmp_path / "release", trained=trained)
    np.testing.assert_array_equal(read_sums(folder, study), labelled.cells)
    soft = read_soft_labels(folder, study)
    assert soft.members.shape == (len(POOL), 0)
    assert (soft.probabilities.argmax(axis=1) == (POOL[:, 0] > 0)).mean() > 0.8
    made = json.loads((folder / "privacy.json").read_text())
    assert made["records"]["graded"] is True
    student = read_student(folder, authority=consortium.authority, coordinator="centre")
    assert (student.predict(POOL) == (POOL[:, 0] > 0)).mean() > 0.8
    alone, whole = (
        {check.name: check.passed for check in verify_release(folder, None, pool=pool)}
        for pool in (None, labelled.pool)
    )
    assert [alone["soft labels"], alone["student"]] == [None, None]
    assert [whole["soft labels"], whole["student"]] == [True, True]

    def failed_of(copy):
        consortium.sign_again(copy)
        return {each.name for each in verify_release(copy, None, pool=labelled.pool) if each.passed is False}

    file = shutil.copytree(folder, tmp_path / "moved") / "student.onnx"
    model = onnx.load(file)
    (held,) = (each for each in model.graph.initializer if each.name == "coefficients")
    held.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(held) + 1e-3, "coefficients"))
    file.write_bytes(model.SerializeToString())
    figures = json.loads((file.parent / "student.json").read_text())
    figures["files"]["student.onnx"] = sha256_of(file)
    (file.parent / "student.json").write_text(json.dumps(figures, indent=2) + "\n")
    assert "student" in failed_of(file.parent)
    text = (folder / "soft_labels.csv").read_text()
    first = text.splitlines()[1].split(",")
    other = f"{first[0]},{first[1]},{first[3]},{first[2]}"
    (folder / "soft_labels.csv").write_text(text.replace(",".join(first), other, 1))
    assert "soft labels" in failed_of(folder)


def test_a_pool_unlike_the_records_is_named_and_another_claim_of_it_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(deployed_records, "POOL", (POOL + 2 * np.eye(len(FEATURES))[1]).astype(np.float32))
    study, queries = record_study_of("graded", epsilon=50.0)
    consortium = Consortium(tmp_path)
    labelled = consortium.label(study, queries=queries)
    folder = consortium.release(labelled, tmp_path / "release")
    said = json.loads((folder / "privacy.json").read_text())["records"]["pool_unlike"]
    assert f"in theirs {FEATURES[1].column} is lower (by " in said
    assert all(said in unescape((folder / name).read_text()) for name in ("report.html", "model_card.md"))
    checked = {each.name: each.passed for each in verify_release(folder, None, pool=labelled.pool)}
    assert checked["statement"]
    stated = (folder / "privacy.json").read_text()
    p_value = re.search(r'"p_value": ([^,]*),', stated)[1]
    (folder / "privacy.json").write_text(stated.replace(p_value, "0.5", 1))
    consortium.sign_again(folder)
    (wrong,) = [each for each in verify_release(folder, None, pool=labelled.pool) if each.name == "statement"]
    assert "of the pool the sums say" in wrong.message


@pytest.fixture(scope="module")
def guarded_release(tmp_path_factory):
    """A consortium with a guardian, and its release."""
    folder = tmp_path_factory.mktemp("guarded")
    consortium = Consortium(folder)
    study, queries = record_study_of(epsilon=20.0, level=two_server(units=1024, seats=3))
    with Ledger(":memory:") as guardians:
        labelled = consortium.label(
            study,
            queries=queries,
            aggregation=SharedAggregation(
                GuardianHere(study, guardians, seeded_source(1)).dial, source=seeded_source(2)
            ),
            ballots=lambda name, ledger: SharedBallot(
                study, name, key=SEAT_KEYS[study.seats[name]], source=seeded_source(3, study.seats[name])
            ),
        )
    return consortium, consortium.release(labelled, folder / "release")


def test_a_guardian_signs_the_sums_that_are_released_and_no_others(guarded_release, tmp_path):
    consortium, folder = guarded_release
    checks = {check.name: check for check in verify_release(folder, None)}
    assert checks["guardian's signatures"].passed
    assert checks["guardian's signatures"].message == "'guardian' computed the same sums of 1 batch, and signed them"
    changes = {
        "another sum": ("sums.csv", lambda text: text.replace("\n0,", "\n0,1", 1)),
        "another signature": ("guardian.sig", lambda text: text[:2] + ("1" if text[2] == "0" else "0") + text[3:]),
        "no signature": ("guardian.sig", lambda text: ""),
    }
    for name, (file, change) in changes.items():
        copy = shutil.copytree(folder, tmp_path / name)
        (copy / file).write_text(change((copy / file).read_text()))
        consortium.sign_again(copy)
        assert "guardian's signatures" in failed(copy)
