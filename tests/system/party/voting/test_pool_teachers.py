"""Teachers of a hospital that learn from the study's public pool, too."""

from dataclasses import replace

import numpy as np
import pytest

from party.data.csv_files import CsvFile
from party.data.settings import DataSettings
from party.home import PartyHome
from party.lifetime import LifetimeCap
from party.settings import PartySettings, TeacherSettings
from party.voting.trained import load_teachers
from party.voting.training import train
from protocols.errors import InvalidInput
from protocols.study.queries import pool_digest
from tests.harness.answering import SEAT
from tests.harness.homes import FEATURES, write_records
from tests.harness.studies import deployed_study


def test_they_are_trained_where_the_pool_was_given_and_refused_where_it_was_not(tmp_path):
    pool = np.random.default_rng(0).standard_normal((30, 4)).astype(np.float32)
    np.save(tmp_path / "pool.npy", pool)
    made = deployed_study(1, teachers=2)
    terms = replace(made.terms, features=FEATURES, pool_size=len(pool), pool_sha256=pool_digest(pool))
    study, home = replace(made, terms=terms), PartyHome(tmp_path / "home")
    settings = PartySettings(
        data=DataSettings(
            name="ward", loader="csv", source=CsvFile(write_records(tmp_path / "r.csv")), patient="patient"
        ),
        teachers=TeacherSettings(kind="label_spreading", seed=1),
        lifetime={"record": LifetimeCap(12.0, 1e-5)},
        settle=True,
        policy=tmp_path / "policy.sqlite",
    )
    home.keep_study(study)
    with pytest.raises(InvalidInput, match=r"which learns from the public pool .* with --pool FILE"):
        train(home, settings, study, SEAT, say=lambda text: None)
    home.keep_study(study, pool=tmp_path / "pool.npy")
    train(home, settings, study, SEAT, say=lambda text: None)
    teachers = load_teachers(home.teachers(study.digest, SEAT), study=study.digest)
    right = (np.array([each.predict(pool) for each in teachers]) == (pool[:, 0] > 0)).mean()
    assert right > 0.6
