"""A hospital approves a study with a guardian: a person types the fingerprint that the guardian read out."""

import io
import sys
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from party.budget.policy import Policy
from party.commands.group import run_command
from party.settings import read_settings
from protocols.crypto.identity import phrase
from runtime.exits import Exit
from tests.harness.certifying import Certifying
from tests.harness.guardians import guarded_study
from tests.harness.homes import FEATURES, make_member, study_file

OWN = guarded_study(1)
# What a coordinator would put into the file that a hospital gets.
REPLACED = guarded_study(1, sealing=X25519PrivateKey.generate())
FINGERPRINT = OWN.confidentiality.fingerprint


@pytest.fixture
def approve(tmp_path, capsys, monkeypatch):
    """Approves a study; gives the exit code, what was said, and whether anything was approved."""

    def run(*options, study=OWN, typed=""):
        authority = Certifying()
        authority.make_authority()
        authority.address, authority.enrol_port = "127.0.0.1:1", 2
        home = make_member(tmp_path / "a", authority, settle="--settle")
        file = study_file(tmp_path, replace(study, terms=replace(study.terms, features=FEATURES)))
        capsys.readouterr()
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        code = run_command(["approve", str(file), *options, "--home", str(home.path)])
        settings = read_settings(home.settings_file)
        with Policy(settings.policy) as policy:
            return code, " ".join("".join(capsys.readouterr()).split()), bool(policy.own_approvals(home))

    return run


def test_a_person_is_asked_to_type_it_and_it_is_not_shown_for_copying(approve):
    code, said, approved = approve(typed=f"{FINGERPRINT}\ny\n")
    assert (code, approved) == (0, True)
    assert "read out the fingerprint of its keys by telephone" in said
    assert FINGERPRINT not in said
    assert phrase(FINGERPRINT) not in said
    assert OWN.confidentiality.sealing_key not in said


@pytest.mark.parametrize(
    "written",
    [FINGERPRINT.lower(), FINGERPRINT.replace(":", ""), phrase(FINGERPRINT).replace("-", " ").title()],
    ids=["small letters", "no colons", "words"],
)
def test_it_may_be_an_option_in_any_writing(approve, written):
    code, _, approved = approve("--yes", "--guardian-fingerprint", written)
    assert (code, approved) == (0, True)


@pytest.mark.parametrize("how", [["--yes"], ["--json"], ["--yes", "--json"]])
def test_where_nobody_is_asked_the_option_is_needed(approve, how):
    code, said, approved = approve(*how)
    assert (code, approved) == (Exit.INVALID_INPUT, False)
    assert "--guardian-fingerprint is missing; allowed: the fingerprint that 'notary' reads out" in said


def test_keys_that_somebody_put_in_the_place_of_the_guardians_are_found(approve):
    """The file is as sound as the guardian's own, and only the fingerprint tells."""
    code, said, approved = approve("--yes", "--guardian-fingerprint", FINGERPRINT, study=REPLACED)
    assert code == Exit.REFUSED
    assert not approved
    assert "wrong_guardian" in said
    code, _, approved = approve(study=REPLACED, typed=f"{FINGERPRINT}\ny\n")
    assert code == Exit.REFUSED
    assert not approved


@pytest.mark.parametrize("typed", ["", "0A:1B", FINGERPRINT[:-1] + "G"], ids=["nothing", "too short", "no digit"])
def test_what_is_no_fingerprint_approves_nothing(approve, typed):
    code, said, approved = approve("--yes", "--guardian-fingerprint", typed)
    assert (code, approved) == (Exit.INVALID_INPUT, False)
    assert "allowed: 64 hexadecimal digits" in said
