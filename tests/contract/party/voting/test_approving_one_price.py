"""A hospital approves a study in which every query costs the same: what it is told, and what it is not asked."""

import re
from dataclasses import replace

import pytest

from party.commands.group import run_command
from party.settings import read_settings
from protocols.claims.coverage import COUNTED_LIFETIME
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
        made = deployed_study(study.pop("hospitals", 1), **study)
        file = study_file(tmp_path, replace(made, terms=replace(made.terms, features=FEATURES)))
        capsys.readouterr()
        code = run_command(["approve", str(file), "--yes", "--home", str(home.path)])
        return code, " ".join("".join(capsys.readouterr()).split()), read_settings(home.settings_file)

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


def test_one_composed_exactly_is_said_to_take_more_of_the_lifetime_cap_than_its_own_epsilon(approve):
    code, said, _ = approve("", **ONE_DRAW, account="exact_composition", epsilon=2.0)
    assert code == 0
    assert COUNTED_LIFETIME in said
    own = re.search(r"hospital-0: epsilon ([\d.]+)", said)
    reserved = re.search(r"with this study, which is epsilon ([\d.]+)", said)
    assert float(reserved[1]) > float(own[1])


@pytest.mark.parametrize(("account", "epsilon"), [("exact_composition", 12.0), ("label_only", 12.5)])
def test_a_refusal_says_why_a_study_of_no_more_epsilon_than_the_cap_does_not_fit(approve, account, epsilon):
    code, said, _ = approve("", **ONE_DRAW, account=account, epsilon=epsilon, pool=200)
    assert code == Exit.BUDGET
    assert "[lifetime_cap]: the study may cost more than the whole lifetime cap, epsilon 12 at delta" in said
    assert (COUNTED_LIFETIME in said) is (account == "exact_composition")


def test_a_patient_of_several_hospitals_is_told_what_covers_them(approve):
    code, said, _ = approve("", hospitals=3, **ONE_DRAW)
    assert code == 0
    for count in (2, 3):
        assert re.search(rf"a patient with data at any {count} hospitals: epsilon ([0-9.]+|none)\. \w+", said)
    assert "no single hospital's epsilon covers that patient" in said
