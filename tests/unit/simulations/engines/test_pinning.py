import os
import sys
from pathlib import Path

import pytest

from simulations.engines import engine
from simulations.engines.engine import ONE_THREAD, count_cores, count_workers, worker_environment


def test_there_is_one_worker_per_core_but_no_more_than_parties(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "gpu_present", lambda: False)
    monkeypatch.setattr(engine, "count_cores", lambda: 8)
    assert count_workers(None, 250) == 8
    assert count_workers(None, 3) == 3
    assert count_workers(5, 250) == 5


def test_a_gpu_host_has_one_worker_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "gpu_present", lambda: True)
    assert count_workers(None, 250) == 1
    assert count_workers(4, 250) == 4


@pytest.mark.parametrize(
    ("quota", "expected"), [("100000 100000", 1), ("50000 100000", 1), ("350000 100000", 3), ("max 100000", 16)]
)
def test_cores_are_cut_to_the_quota_of_the_container(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, quota: str, expected: int
) -> None:
    file = tmp_path / "cpu.max"
    file.write_text(quota + "\n")
    monkeypatch.setattr(engine, "_QUOTA_FILE", file)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(16)))
    assert count_cores() == expected


def test_a_worker_gets_one_thread_and_this_import_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["", "/a", "relative", "/a"])
    environment = worker_environment()
    assert {name: environment[name] for name in ONE_THREAD} == ONE_THREAD
    here = os.getcwd()
    assert environment["PYTHONPATH"] == os.pathsep.join([here, "/a", os.path.join(here, "relative")])
