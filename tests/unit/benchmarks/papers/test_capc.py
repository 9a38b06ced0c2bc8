"""CaPC: how many queries its epsilon affords, and which run measures the gain."""

import pytest

from benchmarks.papers import capc, find_papers
from benchmarks.papers.paper import Task, printed_figures
from simulations import pipeline
from simulations.progress import Reporter
from simulations.results import files
from simulations.stages import inputs
from simulations.stages.inputs import Host


@pytest.fixture
def task(tmp_path):
    host = Host(data_dir=None, cache_dir=tmp_path, engine="in_process", workers=1)
    return Task((0, 1, 2), host, Reporter(quiet=True))


def part(name):
    (paper,) = find_papers("capc")
    (found,) = (part for table in paper.tables for part in table.parts if part.name == name)
    return found


def test_capc_affords_as_many_queries_as_its_epsilon_pays_for(task):
    cells = part("SVHN").compute(task)
    assert [cell.figure for cell in cells] == ["epsilon of one query", "queries at epsilon 2"]
    one, afforded = (cell.ours for cell in cells)
    row = printed_figures("capc")["rows"][1]
    mechanism = capc.ConfidentGNMax(sigma=row["sigma2"], sigma_threshold=row["sigma1"], threshold=row["T"])
    spent = [
        capc.worst_case(mechanism, classes=10, queries=queries, delta=1e-5) for queries in (1, afforded, afforded + 1)
    ]
    assert spent[0] == one < spent[1] <= 2 < spent[2]


def test_the_gain_is_that_of_a_run_with_the_papers_parties_and_epsilon(task, monkeypatch):
    asked = []
    monkeypatch.setattr(inputs, "read_inputs", lambda settings, **host: asked.append(settings))
    monkeypatch.setattr(pipeline, "study_of", lambda inputs: (None, None))
    monkeypatch.setattr(pipeline, "run", lambda inputs, **others: None)
    found = {"answered": 270.0, "answered_ci95": 4.0, "label_accuracy": 0.9, "label_accuracy_ci95": None,
             "asker": {"before": 0.75, "after": 0.8, "gain": 0.05, "gain_ci95": 0.01}}  # fmt: skip
    monkeypatch.setattr(files, "summary", lambda result: found)
    cells = {cell.figure: cell for cell in part("CIFAR10, 50 parties, classes skewed").compute(task)}
    (settings,) = asked
    assert (settings.parties, settings.confidentiality, settings.budgets) == (50, "hidden_queries", "20")
    assert (settings.partition, settings.seeds) == ("dirichlet:5", task.seeds)
    assert (cells["gain"].ours, cells["gain"].half) == pytest.approx((5.0, 1.0))
    assert (cells["gain"].unit, cells["after"].unit) == ("points", "percent")
    assert (cells["labels"].ours, cells["labels"].half, cells["before"].half) == (270, 4, None)
    assert {(cell.printed, cell.other) for cell in cells.values()} == {(None, "mnist")}
