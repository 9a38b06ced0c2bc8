"""Individualized PATE on an invented pool: every table's cells, and ensembles that are cast once."""

import numpy as np
import pytest

from benchmarks.papers import find_papers, individualized, stand_ins
from benchmarks.papers.paper import Task
from benchmarks.papers.stand_ins import KernelRidge, Pool
from simulations.progress import Reporter
from simulations.stages.inputs import Host


@pytest.fixture
def task(tmp_path):
    return Task((0, 1), Host(data_dir=None, cache_dir=tmp_path, engine="in_process", workers=1), Reporter(quiet=True))


def invented(name, classes):
    """Well separated classes, of which a hundredth of the labels is wrong; six private records for each teacher."""
    rng = np.random.default_rng(0)
    labels = rng.integers(classes, size=6 * stand_ins.TEACHERS + 300)
    rows = (np.eye(classes)[labels] * 4 + rng.normal(size=(len(labels), classes))).astype(np.float32)
    private, public, test = np.split(np.arange(len(labels)), [6 * stand_ins.TEACHERS, len(labels) - 50])
    return Pool(
        name, classes, rows[private], labels[private], rows[public], rows[public], labels[public], rows[test],
        labels[test],
    )  # fmt: skip


@pytest.fixture
def pools(monkeypatch):
    monkeypatch.setattr(stand_ins, "mnist", lambda host: invented("mnist", 3))
    monkeypatch.setattr(stand_ins, "adult", lambda host, **sizes: invented("adult", 2))
    # Forests take seconds, students minutes: what stands for them is tested elsewhere.
    monkeypatch.setitem(individualized.WEIGHT, "Adult", KernelRidge(1.0))
    monkeypatch.setitem(individualized.UPSAMPLE, "Adult", KernelRidge(1.0))


def part(table, name):
    (paper,) = find_papers("individualized")
    (parts,) = (one.parts for one in paper.tables if one.name == table)
    (found,) = (one for one in parts if one.name == name)
    return found


def test_table_1_has_labels_and_accuracies_of_three_columns_and_the_published_weights(task, pools):
    assert hash(task.host)  # pools are kept by it
    cells = {cell.figure: cell for cell in part("table-1", "MNIST 54-37-9 %").compute(task)}
    assert [cells[f"labels, {column}"].printed for column in ("PATE", "Upsample", "Weight")] == [361, 949, 1894]
    assert cells["right, Weight"].printed == pytest.approx(97.33)
    # 250 queries are fewer than any budget affords where all teachers agree.
    assert 100 < cells["labels, PATE"].ours < 250
    assert cells["labels, Weight as published"].printed is None
    assert cells["labels, Weight as published"].ours >= cells["labels, PATE"].ours
    assert cells["right, PATE"].ours > 95
    assert all(cell.seeds == 2 for cell in cells.values())


def test_what_groups_spend_grows_with_labels_and_the_figure_says_where_budgets_end(task, pools, monkeypatch):
    monkeypatch.setattr(individualized, "_STEPS", (20, 60))
    cells = {(cell.row, cell.figure): cell.ours for cell in part("figure-2", "MNIST").compute(task)}
    for curve in ("PATE", "budget log 2", "budget log 8"):
        assert 0 < cells["20 labels", f"epsilon, {curve}"] < cells["60 labels", f"epsilon, {curve}"]
    # Three votes of each record of the larger budget for one of the others.
    assert cells["60 labels", "epsilon, budget log 2"] < cells["60 labels", "epsilon, budget log 8"]
    alone = [cells["Upsample", f"labels, budget {name} alone"] for name in ("log 2", "log 8")]
    assert cells["Upsample", "labels"] == pytest.approx(min(alone))
    labels = part("labels-over-budgets", "50 %, budget 2").compute(task)
    assert [cell.figure for cell in labels] == ["labels, Upsample", "labels, Weight"]
    assert all(cell.printed is None and cell.ours > 50 for cell in labels)


def test_a_record_is_learned_by_as_many_teachers_as_it_has_copies():
    copies = np.tile([1, 1, 3], 300)
    shards = stand_ins.upsampled(copies)
    assert len(shards) == round(stand_ins.TEACHERS * copies.mean())
    assert np.array_equal(np.bincount(np.concatenate(shards)), copies)
    assert {len(shard) for shard in shards} <= {3, 4}
