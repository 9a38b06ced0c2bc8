"""Bayesian DP of PATE: ours alone, on digits with few teachers."""

from benchmarks.papers import bayesian_dp, find_papers
from benchmarks.papers.paper import Task
from simulations.progress import Reporter
from simulations.stages.inputs import Host


def test_a_typical_record_costs_less_than_every_record_is_promised(tmp_path, monkeypatch):
    monkeypatch.setattr(bayesian_dp, "_DATASET", "digits")
    for name, value in (("_PARTIES", 10), ("_QUERIES", 10), ("_ANALYSED", 1), ("_RETRAININGS", 2)):
        monkeypatch.setattr(bayesian_dp, name, value)
    task = Task((0,), Host(data_dir=None, cache_dir=tmp_path, engine="in_process", workers=1), Reporter(quiet=True))
    (paper,) = find_papers("bayesian_dp")
    (part,) = (part for table in paper.tables for part in table.parts)
    cells = {cell.figure: cell for cell in part.compute(task)}
    assert 0 <= cells["epsilon, typical record"].ours
    assert cells["epsilon, typical record, proved"].ours <= cells["epsilon, every record"].ours + 1e-9
    assert cells["epsilon, every record"].ours <= 2
    assert all(cell.printed is None for cell in cells.values())
