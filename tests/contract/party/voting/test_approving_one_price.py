"""A hospital approves a study in which every query costs the same: what it is told, and what it is not asked."""

from dataclasses import replace

import pytest

from party.commands.group import run_command
from party.settings import read_settings
from runtime.exits import Exit
from tests.harness.certifying import Certifying
from tests.harness.homes import FEATURES, make_member, study_file
from tests.harness.studies import deployed_study

ONE_DRAW = {"mechanism": "thresholded_gnmax", "sigma_threshold": None}
ONE_PRICE = "Every query costs the same, answered or not."
TRUSTED = "signed word is trusted on which queries were answered"


@pytest.fixture
def approve(tmp_path, capsys):
    """Approves a study in a home whose settings were made with `settle`; gives the exit code, what was said, and the
    home's settings."""

    def run(settle, **study):
        authority = Certifying()
        authority.make_authority()
        authority.address, authority.enrol_port = "127.0.0.1:1", 2
        home = make_member(tmp_path / "a", authority, settle=settle)
        made = deployed_study(1, **study)
        file = study_file(tmp_path, replace(made, terms=replace(made.terms, features=FEATURES)))
        capsys.readouterr()
        code = run_command(["approve", str(file), "--yes", "--home", str(home.path)])
        return code, "".join(capsys.readouterr()), read_settings(home.settings_file)

    return run


@pytest.mark.parametrize("settle", ["", "--settle"])
def test_it_is_told_that_every_query_costs_the_same_and_not_asked_whom_it_believes(approve, settle):
    code, said, settings = approve(settle, **ONE_DRAW)
    assert code == 0
    assert settings.settle is (True if settle else None)
    assert ONE_PRICE in said
    assert "enough for" in said
    assert "if every query is answered" not in said
    assert TRUSTED not in said


def test_a_study_with_something_to_settle_is_refused_until_the_hospital_decided(approve):
    code, said, _ = approve("")
    assert code == Exit.INVALID_INPUT
    assert "node.settle is missing; allowed: true or false" in said


def test_one_that_lets_outcomes_lower_charges_is_told_whom_it_trusts(approve):
    code, said, _ = approve("--settle")
    assert code == 0
    assert "A query that is not answered costs less." in said
    assert TRUSTED in said
    assert ONE_PRICE not in said
