"""A study that a hospital asks in: created without a pool, opened to be relayed, and never labelled by the operator."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from coordinator import relaying
from coordinator.pool import write_pool
from coordinator.relaying import Relay, RelayedStudy
from coordinator.store import Store
from coordinator.study_creation import create_study
from protocols.errors import InvalidInput
from protocols.messages import Outcome, encode
from protocols.study_file import read_study, write_study
from tests.consortium import NOW
from tests.operators import SETTINGS, make_home
from tests.party.askers import asked_study

STUDY = asked_study()


@pytest.fixture
def home(tmp_path):
    return make_home(tmp_path)


def create(home, folder, *, pool=None, study=STUDY):
    (folder / "study.toml").write_text(write_study(study))
    with Store(home) as store:
        return create_study(store, SETTINGS, file=folder / "study.toml", pool_file=pool, today=NOW.date())


def test_it_is_created_without_a_pool_and_refused_with_one(home, tmp_path):
    write_pool(tmp_path / "pool.npy", np.zeros((20, 4), np.float32))
    with pytest.raises(InvalidInput, match="'asker' asks about records of its own; allowed: no pool"):
        create(home, tmp_path, pool=tmp_path / "pool.npy")
    assert create(home, tmp_path) == STUDY
    assert read_study(home.study("heart") / "study.toml") == STUDY
    assert not (home.study("heart") / "pool.npy").exists()


def test_public_queries_still_need_a_pool(home, tmp_path):
    level = replace(STUDY.confidentiality, querier=None, input_bound=None)
    with pytest.raises(InvalidInput, match="a pool is missing; allowed: --pool FILE"):
        create(home, tmp_path, study=replace(STUDY, confidentiality=level))


def test_a_job_of_it_ends_at_once_and_says_who_asks(home, tmp_path):
    create(home, tmp_path)
    with Store(home) as store:
        job = store.ask_job("heart", student=None)
        opened = []
        study = RelayedStudy(store, "heart", lambda *what, **how: opened.append((what, how)))
        study.run(job, patience_s=1.0)
        ended = store.job("heart")
        assert ended.state == "failed"
        assert "'asker' asks in this study, with conclave-party ask" in ended.message
        study.close()
    ((what, how),) = opened
    assert what[0] == STUDY
    assert set(how) == {"outcome_for"}


def test_the_outcome_that_passed_is_told_again_to_that_seat_alone(home, tmp_path):
    create(home, tmp_path)
    outcome = Outcome(STUDY.digest, bytes(32), np.array([True, False]), bytes(64))
    with Store(home) as store:
        opened = []
        study = RelayedStudy(store, "heart", lambda *what, **how: opened.append((what, how)))
        ledger, tell = opened[0][0][1], opened[0][1]["outcome_for"]
        ledger.note(bytes(32), "relayed_outcome hospital-1", encode(outcome))
        assert encode(tell("hospital-1", bytes(32))) == encode(outcome)
        assert tell("hospital-0", bytes(32)) is None
        assert tell("hospital-1", bytes(range(32))) is None
        study.close()


def test_each_request_waits_for_its_turn(monkeypatch):
    monkeypatch.setattr(relaying, "PER_SECOND", 0.5)
    waits = []

    async def note(wait_s):
        waits.append(wait_s)

    async def hurried():
        monkeypatch.setattr(relaying.asyncio, "sleep", note)
        relay = Relay(None, {}, authority=None, aside=None, on_event=lambda *event: None)
        for _ in range(4):
            await relay._pace()

    asyncio.run(hurried())
    assert np.rint(np.array(waits) / 2).tolist() == [0, 1, 2, 3]
