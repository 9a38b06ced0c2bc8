"""The demo, as a person runs it, on embedded data: a verified release, and a table of what it is worth."""

import json
import re

import pytest

from party.commands.group import run_command
from party.demo.demo_data import HOSPITALS
from party.demo.figures import in_words
from tests.harness.local_consortium import ConsortiumHere


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The figures of a demo whose servers are processes, and whose commands are called here; its folder."""
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("party.demo.demo.LocalConsortium", ConsortiumHere)
        from party.demo.demo import run_demo

        figures = run_demo(folder / "demo", data_dir=None, say=lambda line: None)
    return figures, folder / "demo"


@pytest.mark.slow
def test_the_demo_goes_from_nothing_to_a_verified_release_of_record_votes(demo):
    figures, folder = demo
    assert figures["hospitals"] == len(HOSPITALS)
    assert figures["votes_by"] == "record"
    assert figures["epsilon"] == 1.0
    assert figures["labels_released"] == figures["asked"] == figures["queries"]
    assert figures["student_accuracy"] > figures["commonest_class"]
    for page in figures["pages"]:
        assert (folder / "release" / page).is_file()
    statement = json.loads((folder / "release" / "privacy.json").read_text())
    assert statement["records"]["population"] == sum(figures["records"].values())
    for spent in figures["budgets"].values():
        (seat,) = spent["seats"]
        assert seat["epsilon_used"] == pytest.approx(1.0, rel=1e-3)
        assert seat["answers_left"] == 0


@pytest.mark.slow
def test_it_ends_with_each_hospital_alone_all_together_and_pooled_on_the_same_records_and_names_its_pages(demo):
    figures, _ = demo
    said = in_words(figures)
    table = said[said.index("Accuracy on the same") :].split("\n\n")[0].splitlines()
    assert table[0] == f"Accuracy on the same {figures['test_records']} test records"
    rows = [re.fullmatch(r"  (.+?)  +(\d\.\d{3})", line).groups() for line in table[1:]]
    assert [what for what, _ in rows] == [
        *(f"{name} alone" for name in HOSPITALS),
        "together, with privacy (epsilon 1)",
        "all records pooled, without privacy",
        "always the commonest class",
    ]
    assert rows[4][1] == f"{figures['student_accuracy']:.3f}"
    assert "Each record's data are used once" in said
    assert "privacy.html" in said


def test_teachers_are_shown_with_what_four_hospitals_cannot_achieve():
    figures = {
        "votes_by": "teacher", "data": "d", "hospitals": 4, "teachers_per_hospital": 12, "records": {"a": 1},
        "labels_released": 9, "asked": 30, "test_records": 5, "student_accuracy": None, "alone": {"a": 0.5},
        "pooled": 0.75, "commonest_class": 0.5, "epsilon": 8.0, "delta": 1e-5, "unit": "record",
        "epsilon_of_a_patient_at_all_hospitals": None, "confidentiality": "clear", "seconds": 1.0, "pages": [],
        "labels_if_a_whole_hospital_were_the_unit": 0,
    }  # fmt: skip
    said = in_words(figures)
    assert "9 labels released of 30 queries asked" in said
    assert "onnxruntime is not installed" in said
    assert "a guarantee for a whole hospital (0 labels at this budget)" in said


def test_a_folder_that_is_in_use_is_refused(tmp_path, capsys):
    (tmp_path / "something").touch()
    assert run_command(["demo", "--out", str(tmp_path)]) == 3
    assert "allowed: a new folder" in capsys.readouterr().err
