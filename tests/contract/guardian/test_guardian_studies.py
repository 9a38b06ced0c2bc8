"""What a guardian approves, what it is told before, and the ledger that each study has."""

import datetime
from dataclasses import replace
from functools import partial

import pytest

from guardian.home import (
    ApprovedStudies,
    GuardianHome,
    GuardianSettings,
    approve_study,
    check_study,
    create_guardian,
    describe,
    study_figures,
)
from protocols.crypto.randomness import system_source
from protocols.errors import InvalidInput, Refused, StorageFailed
from protocols.ledger.ledger import Ledger
from protocols.study.chosen import CHOSEN
from tests.harness.guardians import guarded_records, guarded_study
from tests.harness.refusals import refused_for, refuses
from tests.harness.studies import deployed_study

TODAY = datetime.date(2026, 1, 1)


@pytest.fixture
def home(tmp_path):
    made = GuardianHome(tmp_path / "guardian")
    create_guardian(made, GuardianSettings(name="notary", coordinator="centre", listen="127.0.0.1:0", metrics_port=0))
    return made


def study_for(home, parties=3, **more):
    return guarded_study(parties, sealing=home.sealing_key(), signing=home.signing_key(), **more)


def approve(home, study):
    return approve_study(home, study, today=TODAY, source=system_source)


def test_an_approved_study_has_its_terms_and_a_ledger_with_the_caps_of_its_seats(home):
    study = study_for(home)
    assert approve(home, study)
    with Ledger(home.studies / study.name / "ledger.sqlite") as ledger:
        caps = {name: balance.cap for name, balance in ledger.balances().items()}
    assert caps == {seat.party: cap for seat, cap in zip(study.roster, study.budgets.cap.tolist(), strict=True)}
    assert [path.name for path in home.studies.iterdir()] == [study.name]


def test_approving_again_changes_nothing_and_other_terms_need_another_name(home):
    study = study_for(home)
    assert approve(home, study)
    before = (home.studies / study.name / "ledger.sqlite").read_bytes()
    assert not approve(home, study)
    with pytest.raises(InvalidInput, match="other terms"):
        approve(home, study_for(home, 4))
    assert (home.studies / study.name / "ledger.sqlite").read_bytes() == before
    assert approve(home, replace(study_for(home, 4), name="another"))


def test_a_study_of_another_guardian_coordinator_level_or_time_is_refused_and_leaves_nothing(home):
    study = study_for(home)
    other = GuardianHome(home.folder.parent / "other")
    create_guardian(other, GuardianSettings(name="notary", coordinator="centre", listen="127.0.0.1:0", metrics_port=0))
    for wrong, said in (
        (study_for(home, guardian="another"), "wrong_guardian: guardian is 'another'"),
        (guarded_study(sealing=other.sealing_key(), signing=home.signing_key()), "wrong_guardian: sealing_key"),
        (guarded_study(sealing=home.sealing_key(), signing=other.signing_key()), "wrong_guardian: signing_key"),
        (replace(study, terms=replace(study.terms, coordinator="elsewhere")), "other_coordinator"),
        (replace(study, terms=replace(study.terms, ends="2025-12-31")), "study_ended"),
        (deployed_study(3), "level is 'clear'"),
        (replace(study, name="../up"), "is not allowed"),
    ):
        with pytest.raises((Refused, InvalidInput), match=said):
            approve(home, wrong)
    assert not home.studies.exists()


def test_a_guardian_that_is_a_party_of_the_study_is_refused(tmp_path):
    home = GuardianHome(tmp_path / "guardian")
    settings = GuardianSettings(name="hospital-1", coordinator="centre", listen="127.0.0.1:0", metrics_port=0)
    create_guardian(home, settings)
    with pytest.raises(InvalidInput, match="another organisation"):
        study_for(home, guardian="hospital-1")


def test_what_approving_means_is_said_in_words(home):
    study = study_for(home)
    said = "\n".join(describe(study, check_study(home, study, today=TODAY)))
    assert study.digest.hex() in said
    # One noisy histogram decides labels and refusals: there is no other noise.
    assert f"your own noise (sigma {study.mechanism.sigma:g} votes on each class)" in said
    assert "on the threshold" not in said
    assert CHOSEN not in said
    for seat in study.roster:
        assert f"  {seat.party}: epsilon 12 at delta 1e-05, weight 1 per vote; enough for " in said
    assert "If you and the coordinator combine what you hold" in said
    study = study_for(home, questions="uncertainty")  # labels choose what is asked
    assert CHOSEN in "\n".join(describe(study, check_study(home, study, today=TODAY)))


def test_where_records_vote_the_guardian_is_told_that_it_opens_one_sum_once(home):
    study = guarded_records(sealing=home.sealing_key(), signing=home.signing_key())
    said = "\n".join(describe(study, check_study(home, study, today=TODAY)))
    sigma = f"sigma {study.mechanism.sigma:g} votes on each sum"
    assert f"your own noise ({sigma}), open the noisy sum of all hospitals with the other server, once" in said
    assert "You will see which seats answered, and the noisy sum of all their records' votes" in said
    for seat in study.roster:
        weight = f"weight {seat.weight:g} per vote, all of"
        assert f"  {seat.party}: epsilon {seat.epsilon:g} at delta 1e-05, {weight}" in said


def test_studies_are_found_by_digest_also_those_that_are_approved_later(home):
    studies = ApprovedStudies(home, source=system_source)
    first, later = study_for(home), replace(study_for(home, 4), name="later")
    approve(home, first)
    found = studies.find(first.digest)
    assert found.study == first
    assert studies.find(first.digest) is found
    with refused_for("unknown_study"):
        studies.find(later.digest)
    approve(home, later)
    assert studies.find(later.digest).study == later
    studies.close()


def test_a_study_whose_file_was_changed_is_no_longer_found(home):
    study = study_for(home)
    approve(home, study)
    file = home.studies / study.name / "study.toml"
    file.write_text(file.read_text().replace("query_limit = 60", "query_limit = 61"))
    studies = ApprovedStudies(home, source=system_source)
    with refused_for("unknown_study"):
        studies.find(study.digest)
    changed = studies.listed()[0]
    with refuses(InvalidInput, "ledger", "study"):
        studies.find(changed.digest)
    studies.close()


def test_figures_are_those_of_the_ledger(home):
    study = study_for(home)
    approve(home, study)
    with Ledger(home.studies / study.name / "ledger.sqlite") as ledger:
        amounts = {seat.party: 10 for seat in study.roster}
        ledger.reserve(0, b"first", amounts, b"", queries=[0, 1, 2], limit=2000)
        ledger.settle(0, b"first", amounts, payload=b"\x01\x00\x01")
        ledger.reserve(1, b"second", amounts, b"", queries=[3, 4], limit=2000)
    figures = study_figures(home, study)
    assert (figures["batches"], figures["unsettled"], figures["asked"], figures["answered"]) == (2, 1, 5, 2)
    assert [seat["seat"] for seat in figures["seats"]] == [seat.party for seat in study.roster]
    assert all(0 < seat["epsilon_used"] < seat["epsilon_guaranteed"] for seat in figures["seats"])


def test_a_ledger_that_is_lost_or_empty_is_never_begun_anew(home):
    """A coordinator could show an empty head, and have what it still holds opened once more."""
    study = study_for(home)
    approve(home, study)
    for lose in (lambda path: path.write_bytes(b""), lambda path: path.unlink()):
        lose(home.studies / study.name / "ledger.sqlite")
        find = ApprovedStudies(home, source=system_source).find
        for use, what in ((find, study.digest), (partial(approve, home), study), (partial(study_figures, home), study)):
            with refuses(StorageFailed, "ledger.sqlite"):
                use(what)
