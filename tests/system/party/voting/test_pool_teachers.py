"""Teachers of a hospital that learn from the study's public pool, too, or from features of its records."""

from dataclasses import replace

import numpy as np
import pytest

from coordinator.queries.features import features_for
from party.budget.policy import Policy
from party.data.files import CsvFile
from party.data.records import DataSettings
from party.home import PartyHome
from party.lifetime import LifetimeCap
from party.settings import PartySettings, TeacherSettings
from party.teachers import teacher_kind
from party.teachers.teacher import on_features
from party.voting.trained import load_teachers
from party.voting.training import train
from protocols.errors import InvalidInput
from protocols.study.queries import pool_digest
from tests.harness.answering import SEAT
from tests.harness.homes import FEATURES, write_records
from tests.harness.refusals import refuses
from tests.harness.studies import deployed_study

POOL = np.random.default_rng(0).standard_normal((30, 4)).astype(np.float32)


@pytest.fixture
def place(tmp_path):
    """A home, a study whose pool is POOL, and settings of these teachers."""
    np.save(tmp_path / "pool.npy", POOL)
    made = deployed_study(1, teachers=2)
    terms = replace(made.terms, features=FEATURES, pool_size=len(POOL), pool_sha256=pool_digest(POOL))
    data = DataSettings(name="ward", loader="csv", source=CsvFile(write_records(tmp_path / "r.csv")), patient="patient")

    def settings(**teachers):
        return PartySettings(
            data=data,
            teachers=TeacherSettings(seed=1, **teachers),
            lifetime={"record": LifetimeCap(12.0, 1e-5)},
            settle=True,
            policy=tmp_path / "policy.sqlite",
        )

    return PartyHome(tmp_path / "home"), replace(made, terms=terms), settings


def trained(home, settings, study):
    with Policy(settings.policy) as policy:
        train(home, settings, study, SEAT, policy=policy, say=lambda text: None)
    return load_teachers(home.teachers(study.digest, SEAT), study=study.digest)


def test_they_are_trained_where_the_pool_was_given_and_refused_where_it_was_not(place, tmp_path):
    home, study, settings = place
    home.keep_study(study)
    with refuses(InvalidInput, "--pool", "FILE"):
        trained(home, settings(kind="label_spreading"), study)
    home.keep_study(study, pool=tmp_path / "pool.npy")
    teachers = trained(home, settings(kind="label_spreading"), study)
    assert (np.array([each.predict(POOL) for each in teachers]) == (POOL[:, 0] > 0)).mean() > 0.6


def test_teachers_on_features_are_those_of_the_mapped_records_and_keep_the_map_beside_them(place, tmp_path):
    home, study, settings = place
    home.keep_study(study)
    features = features_for(POOL, "pca:2", seed=0)
    file = tmp_path / "features.npz"
    file.write_bytes(features.to_bytes())
    given = settings(kind="logistic_regression", features=file, features_sha256=features.digest)
    teachers = trained(home, given, study)
    assert not np.array_equal(teachers[0].predict(POOL), teachers[1].predict(POOL * np.float32(-1)))
    for each in teachers:
        np.testing.assert_array_equal(each.predict(POOL), each.teacher.predict(features(POOL)))
    file.unlink()
    folder = home.teachers(study.digest, SEAT)
    assert len(load_teachers(folder, study=study.digest)) == 2
    (folder / "features.npz").write_bytes(features_for(POOL, "pca:3", seed=0).to_bytes())
    with refuses(InvalidInput, features.digest):
        load_teachers(folder, study=study.digest)


def test_features_that_a_teacher_cannot_learn_from_are_refused(place, tmp_path):
    home, study, settings = place
    home.keep_study(study)
    narrow = features_for(POOL[:, :3], "raw", seed=0)
    file = tmp_path / "features.npz"
    file.write_bytes(narrow.to_bytes())
    for kind, digest, words in (
        ("mlp", narrow.digest, r"records of shape \(3,\); allowed: \(4,\)"),
        ("mlp", "0" * 64, "allowed: 0000"),
    ):
        with pytest.raises(InvalidInput, match=words):
            trained(home, settings(kind=kind, features=file, features_sha256=digest), study)
    with refuses(InvalidInput, "images"):
        on_features(teacher_kind("small_cnn"), narrow)
