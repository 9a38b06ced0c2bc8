"""Soft labels of sums in which not every hospital voted."""

from dataclasses import replace

import numpy as np
import pytest

from coordinator.labelling.soft_labels import soft_labels_of_study, turnout, who_voted
from coordinator.labelling.training import released_pool_labels
from coordinator.release.verify import verify_release
from protocols.study.released_noise import noise_in
from tests.harness.deployed_records import HOSPITALS, POOL, record_study_of
from tests.harness.levels import SEAT_KEYS, secure_sum, two_server
from tests.harness.released import Consortium
from tests.harness.studies import seat_keys

ALL, WITHOUT_ONE = np.array([True, True, True]), np.array([False, True, True])


def test_the_noise_is_that_of_those_that_voted():
    level = replace(secure_sum(colluders=1, units=1024), seat_keys=seat_keys(SEAT_KEYS[:3]))
    masked, _ = record_study_of(level=level, quorum=3)
    sigma = masked.mechanism.label_sigma
    assert noise_in(masked) == noise_in(masked, voted=3) == pytest.approx(sigma * (3 / 2) ** 0.5)
    assert noise_in(masked, voted=2) == pytest.approx(sigma)
    shared, _ = record_study_of(level=two_server(units=1024, seats=3))
    assert noise_in(shared, voted=2) == noise_in(shared, voted=3)


def test_weights_and_records_are_of_those_that_voted_and_their_number_is_less_certain():
    study, _ = record_study_of()
    roster = tuple(replace(seat, weight=w) for seat, w in zip(study.roster, (2.0, 0.5, 0.5), strict=True))
    study = replace(study, roster=roster)
    everybody = turnout(study, ALL, population=300)
    assert (everybody.entry, everybody.records, everybody.records_spread) == (0.5, 300, 0)
    some = turnout(study, WITHOUT_ONE, population=300)
    assert (some.entry, some.records) == (0.25, pytest.approx(200))
    assert some.records_spread == pytest.approx(100)


def test_who_voted_are_the_seats_that_were_charged():
    study, _ = record_study_of()
    charged = dict.fromkeys(HOSPITALS, 5) | {HOSPITALS[0]: 0}
    np.testing.assert_array_equal(who_voted(study, charged), WITHOUT_ONE)
    np.testing.assert_array_equal(who_voted(study, {}), ALL)


def test_what_is_released_knows_who_voted_and_a_verifier_makes_the_same_of_it(tmp_path):
    consortium = Consortium(tmp_path)
    study, queries = record_study_of(epsilon=20.0)
    labelled = consortium.label(study, queries=queries, absent=lambda requests: frozenset(HOSPITALS[:1]))
    assert labelled.cells is not None
    charged = dict.fromkeys(HOSPITALS, 5) | {HOSPITALS[0]: 0}
    made = released_pool_labels(labelled, POOL)
    two, three = (
        soft_labels_of_study(study, labelled.cells, queries, POOL, charged=paid).probabilities for paid in (charged, {})
    )
    np.testing.assert_array_equal(made.probabilities, two)
    assert np.abs(two - three).max() > 1e-3
    folder = consortium.release(labelled, tmp_path / "release")
    np.save(tmp_path / "pool.npy", POOL)
    assert all(check.passed is not False for check in verify_release(folder, None, pool=tmp_path / "pool.npy"))
