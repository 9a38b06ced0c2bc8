"""Teachers' processes of a trained home, and teachers that vote as often as a test lets them."""

import os
import time
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from party.budget.policy import Policy
from party.data.files import CsvFile
from party.data.records import DataSettings
from party.home import PartyHome
from party.settings import PartySettings, TeacherSettings
from party.voting.teacher_process import TeacherProcess
from party.voting.training import train
from protocols.study.queries import QueryBatch
from tests.harness.homes import FEATURES, write_records
from tests.harness.studies import deployed_study

MODELS = "tests.harness.own_models"
# What the hospital's own log was told of failures.
REASONS = []


def study_of(teachers=2):
    study = deployed_study(1, teachers=teachers)
    return replace(study, terms=replace(study.terms, features=FEATURES))


def trained(tmp_path, kind, *, study=None, seed=1, files=()):
    study = study or study_of()
    home = PartyHome(tmp_path / "home")
    records = write_records(tmp_path / "records.csv")
    settings = PartySettings(
        data=DataSettings(name="ward", loader="csv", source=CsvFile(records), patient="patient"),
        teachers=TeacherSettings(kind=kind, seed=seed, files=files),
        lifetime={},
        settle=True,
        policy=tmp_path / "policy.sqlite",
    )
    said = []
    with Policy(settings.policy) as policy:
        train(home, settings, study, "hospital-0", policy=policy, say=said.append)
    return home.teachers(study.digest, "hospital-0"), study, said


def process(folder, study, *, deadline_s=60.0, idle_s=60.0, stalled_s=60.0, clock=time.monotonic):
    events = []
    made = TeacherProcess(
        folder,
        study=study.digest,
        deadline_s=deadline_s,
        idle_s=idle_s,
        stalled_s=stalled_s,
        clock=clock,
        on_event=lambda event, fields: (events.append(event), REASONS.append(str(fields.get("reason", "")))),
    )
    return made, events


def batch(size=5, number=0):
    inputs = np.random.default_rng(number).standard_normal((size, 4)).astype(np.float32)
    return QueryBatch(number, np.arange(size), inputs)


@contextmanager
def gated_teachers(tmp_path):
    """Two teachers that vote as often as `let` lets them, and makes their processes."""
    folder, study, _ = trained(tmp_path, f"{MODELS}:Gated")
    os.mkfifo(folder / "gate")
    gate = os.open(folder / "gate", os.O_RDWR)
    made = []

    def make(**how):
        made.append(process(folder, study, **how))
        return made[-1]

    yield SimpleNamespace(study=study, folder=folder, make=make, let=lambda votes: os.write(gate, bytes(votes)))
    for child, _ in made:
        child.close()
    os.close(gate)
