"""Private-kNN beside record votes, on a few invented images."""

import numpy as np
import pytest

from benchmarks.papers import find_papers, private_knn
from benchmarks.papers.paper import Task, printed_figures
from benchmarks.papers.private_knn import _Split
from coordinator.queries.choice import cluster_queries
from coordinator.queries.features import features_for
from protocols.study.findings import OneLabel
from protocols.sums.contributions import said
from simulations.progress import Reporter
from simulations.stages.inputs import Host
from simulations.stages.record_cells import RecordCells


def invented(parties):
    """Rows of three classes far apart, 40 records for each party."""
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=40 * parties + 120)
    rows = (6 * np.eye(3)[labels] + rng.normal(size=(len(labels), 3))).astype(np.float32)
    private, pool, test = np.split(np.arange(len(labels)), [40 * parties, 40 * parties + 90])
    queries = cluster_queries(rows[pool], features_for(rows[pool], "raw", seed=0), queries=6, seed=0)
    cells = said(queries, rows[private], labels[private], classes=3)
    return _Split(
        RecordCells(OneLabel(3), len(private), queries, tuple(np.array_split(cells, parties)), (None,) * parties),
        rows[pool], labels[pool], rows[test], labels[test],
    )  # fmt: skip


def test_a_student_of_record_votes_is_beside_the_printed_one(tmp_path, monkeypatch):
    monkeypatch.setattr(private_knn, "_PARTIES", 4)
    monkeypatch.setattr(private_knn, "_split", lambda host: invented(4))
    # A student of images takes seconds.
    monkeypatch.setattr(private_knn, "_STUDENT", "logistic_regression")
    (paper,) = find_papers("private_knn")
    task = Task((0, 1), Host(data_dir=None, cache_dir=tmp_path, engine="in_process", workers=1), Reporter(quiet=True))
    (table,) = paper.tables
    student, pool, missing, alone, _ = [cell for part in table.parts for cell in part.compute(task)]
    assert (student.row, student.printed) == ("MNIST, epsilon 0.47", pytest.approx(98.8))
    assert student.ours > 90
    assert not student.reproduces  # another mechanism
    assert pool.ours > 90
    assert student.seeds == pool.seeds == 2
    assert (missing.printed, missing.ours) == (pytest.approx(91.6), None)
    assert (alone.row, alone.printed) == ("MNIST, epsilon 0.1", None)
    assert printed_figures("private_knn")["rows"][0]["answered"] == 735
    # Its students are trained once.
    monkeypatch.setattr("coordinator.students.student_kind", lambda kind, *, device: None)
    assert table.parts[0].compute(task)[0] == student
