"""Benchmarks at sizes of seconds: they run, and what they compare is the same."""

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.week import week

FOLDER = Path(__file__).parents[3] / "benchmarks"
# Benchmarks whose sizes are arguments.
TINY = {"replay": {"queries": 200, "settings": 3, "many": 50}, "smooth_sensitivity": {"queries": 5}}


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("[a-z]*.py")))
def test_a_benchmark_can_be_imported_and_runs_where_its_sizes_are_arguments(name, capsys, monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))  # as for a script, which some import each other as
    # Not installed with the tests; what it computes is in tests/vectors/canary_scores.json.
    monkeypatch.setitem(sys.modules, "jax_privacy", SimpleNamespace(auditing=None))
    module = importlib.import_module(f"benchmarks.{name}")
    if name in TINY:
        module.main(**TINY[name])
        assert any(letter.isdigit() for letter in capsys.readouterr().out)


def test_a_day_of_two_studies_leaves_no_file_or_thread_open_and_renews_every_certificate():
    *_, before, after = week(parties=3, studies=2, days=3, processes=2)
    for held in ("files", "threads", "node_files", "node_threads"):
        assert after[held] <= before[held]
    assert before["renewed"] == after["renewed"] == 3
    assert after["log_kb"] <= 2 * before["log_kb"]
