"""A home that answers."""

from dataclasses import replace

import pytest

from party.budget.policy import Policy
from party.budget.watermarks import remember_approval
from party.data.files import CsvFile
from party.data.records import DataSettings
from party.home import PartyHome
from party.lifetime import LifetimeCap
from party.settings import PartySettings, TeacherSettings
from party.voting.training import train
from tests.harness.answering import SEAT
from tests.harness.homes import FEATURES, write_records
from tests.harness.studies import deployed_study
from tests.harness.teacher_children import gated_teachers


@pytest.fixture
def place(tmp_path):
    """A home with settings, and a study that is approved and trained."""
    study = deployed_study(1, teachers=2, deadline_s=60.0)
    study = replace(study, terms=replace(study.terms, features=FEATURES))
    home = PartyHome(tmp_path)
    settings = PartySettings(
        data=DataSettings(
            name="ward", loader="csv", source=CsvFile(write_records(tmp_path / "r.csv")), patient="patient"
        ),
        teachers=TeacherSettings(kind="tests.harness.own_models:Saved", seed=1),
        lifetime={"record": LifetimeCap(12.0, 1e-5)},
        settle=True,
        policy=tmp_path / "policy.sqlite",
    )
    home.keep_study(study)
    with Policy(settings.policy) as policy:
        train(home, settings, study, SEAT, policy=policy, say=lambda text: None)
    with Policy(settings.policy) as policy:
        policy.approve(study, party=SEAT, data_set="ward", caps=settings.lifetime, home=home, told_apart=False)
        remember_approval(home, study, SEAT, policy.log)
        yield home, settings, study, policy


@pytest.fixture
def gated(tmp_path):
    """Two teachers that vote as often as `let` lets them, and makes their processes."""
    with gated_teachers(tmp_path) as teachers:
        yield teachers
