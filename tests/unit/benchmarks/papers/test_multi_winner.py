"""Private multi-winner voting: what its settings afford in three ways."""

from benchmarks.papers import find_papers
from benchmarks.papers.paper import Task
from simulations.progress import Reporter
from simulations.stages.inputs import Host


def test_twenty_labels_cost_twenty_questions_one_set_or_one_clipped_vector(tmp_path):
    host = Host(data_dir=None, cache_dir=tmp_path, engine="in_process", workers=1)
    ((table,),) = (paper.tables for paper in find_papers("multi_winner"))
    cells = table.parts[0].compute(Task((0,), host, Reporter(quiet=True)))
    queries = {cell.row.rsplit(", ", 1)[1]: cell.ours for cell in cells if cell.unit == "count"}
    # One query of binary is 20 of a class; a vote clipped to 1.8 moves 3.24 times as far as one on sets, squared.
    assert 19 <= queries["powerset"] / queries["binary"] <= 21
    assert 3 <= queries["powerset"] / queries["tau 1.8"] <= 3.3
