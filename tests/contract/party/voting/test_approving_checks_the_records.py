"""A hospital whose records cannot train teachers: it is refused before anything of its lifetime cap is reserved."""

import csv
from dataclasses import replace

import pytest

from party.budget.policy import Policy
from party.commands.group import run_command
from runtime.exits import Exit
from tests.harness.certifying import Certifying
from tests.harness.homes import FEATURES, make_member, study_file
from tests.harness.studies import deployed_study


@pytest.fixture
def approve(tmp_path, capsys):
    """Approves a study of three teachers over records of these labels; gives the exit code, what was said, and how
    many studies are approved then."""
    authority = Certifying()
    authority.make_authority()
    authority.address, authority.enrol_port = "127.0.0.1:1", 2
    home = make_member(tmp_path / "a", authority, settle="")
    made = deployed_study(1, mechanism="thresholded_gnmax", sigma_threshold=None)
    terms = replace(made.terms, features=FEATURES, class_names=("left", "right"))
    file = study_file(tmp_path, replace(made, terms=terms, votes=replace(made.votes, teachers=3), classes=2))

    def run(labels):
        with (tmp_path / "a" / "records.csv").open("w", newline="") as records:
            csv.writer(records).writerows(
                [["patient", "f0", "f1", "f2", "f3", "side"], *([f"p{i}", i, 0, 0, 0, side] for i, side in labels)]
            )
        capsys.readouterr()
        code = run_command(["approve", str(file), "--yes", "--home", str(home.path)])
        with Policy(home.settings().policy) as policy:
            return code, " ".join("".join(capsys.readouterr()).split()), len(policy.approvals())

    return run


def test_fewer_patients_than_teachers_and_records_of_one_class_reserve_nothing(approve):
    code, said, approved = approve([(0, "left"), (1, "right")])
    assert (code, approved) == (Exit.INVALID_INPUT, 0)
    assert "2 records (of different patients) for 3 teachers; allowed: at least one per teacher" in said
    code, said, approved = approve([(i, "left") for i in range(9)])
    assert (code, approved) == (Exit.INVALID_INPUT, 0)
    assert "all 9 records of seat 'hospital-0' are of class 'left'" in said
    code, said, approved = approve([(0, "left"), (1, "up"), (2, "right")])
    assert (code, approved) == (Exit.INVALID_INPUT, 0)


def test_few_records_of_each_teacher_are_said_before_it_is_approved(approve):
    code, said, approved = approve([(i, "left" if i else "right") for i in range(5)])
    assert (code, approved) == (0, 1)
    assert "Warning seat hospital-0: a teacher learns from 1 record, fewer than the 2 classes" in said
    assert said.index("learns from") < said.index("approved test")
