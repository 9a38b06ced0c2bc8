"""CaPC: how many queries its epsilon affords."""

import pytest

from benchmarks.papers import capc, find_papers
from benchmarks.papers.paper import Task, printed_figures
from simulations.progress import Reporter
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
