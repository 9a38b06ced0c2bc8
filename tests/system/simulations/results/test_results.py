"""What follows from private votes and records, and not from released labels, is marked wherever it stands."""

import csv
import dataclasses
import io
import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from party.asking.report import Improvement
from simulations.datasets.groups import Grouping
from simulations.findings import FindingFigures, FindingsFound
from simulations.groups import by_group
from simulations.pipeline import RunResult
from simulations.report.compare import compare_runs
from simulations.report.page import compared, doubts
from simulations.report.terminal import print_summary, print_verdict
from simulations.results.files import summary, write_results
from simulations.results.text import MARK, NOT_FOR_RELEASE, not_for_release
from tests.harness.stored_runs import stored_run, with_students


@pytest.fixture(scope="module")
def alike(tmp_path_factory) -> tuple[RunResult, RunResult]:
    """A run, and one that released the very same labels from other votes, teachers and records."""
    folders = (tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("other"))
    one = with_students(stored_run(folders[0], seeds=(0, 1)), [0.8, 0.85])
    one = dataclasses.replace(one, baselines=dataclasses.replace(one.baselines, alone=np.linspace(0.7, 0.9, 40)))
    other = stored_run(folders[1], seeds=(0, 1), sigma=3.0, threshold=10.0)
    grouping = Grouping("class", ("a", "b"), np.repeat([0, 1], 40))
    labels, students = grouping.member, [np.random.default_rng(seed).dirichlet([1, 1], 80) for seed in range(2)]
    pooled = [0.3 * np.eye(2)[labels] + 0.7 * each[::-1] for each in students]
    groups = [
        by_group([grouping], [s.astype(np.float32) for s in students], p.astype(np.float32), labels) for p in pooled
    ]
    told = FindingsFound(
        (FindingFigures("cough", 0.5, 0.7, 0.8, 0.4, 0.7, 0.7, 0.2, 0.1),),
        macro=(0.8, None), micro=(0.8, None), label_macro=(0.8, None), pooled=(0.9,),
    )  # fmt: skip
    one = dataclasses.replace(one, by_group=groups[0], told=told)
    votes = one.source.stored.votes
    assert votes is not None
    accuracy = other.teacher_accuracy * 0.9
    released_alike = dataclasses.replace(
        one,
        source=dataclasses.replace(one.source, stored=dataclasses.replace(one.source.stored, votes=votes[::-1])),
        teacher_accuracy=accuracy,
        plurality_accuracy=0.5,
        by_group=groups[1],
        told=dataclasses.replace(told, pooled=(0.7,)),
        baselines=dataclasses.replace(
            other.baselines,
            non_private=0.7,
            alone=np.linspace(0.5, 0.6, 40),
            uniform_label_accuracy=0.4,
            uniform_student=0.3,
        ),
    )
    return one, released_alike


def values(document: object, name: str = "") -> dict[str, object]:
    """The leaves of a JSON value by name, lists as a whole."""
    if not isinstance(document, dict):
        return {name: document}
    return {k: v for key, inner in document.items() for k, v in values(inner, f"{name}.{key}".lstrip(".")).items()}


def test_the_summary_lists_every_figure_that_other_votes_would_change_though_labels_are_the_same(alike):
    gained = [
        Improvement("mlp", records, 5, 80, right, right + 0.1, 0.1, 0.1, (0.3, 0.7), (0.4, 0.8), 10, 2, 1.0)
        for records, right in ((9, 0.5), (12, 0.6))
    ]
    asking = [
        dataclasses.replace(
            result, improved=(after, after), source=dataclasses.replace(result.source, agreement=after.accuracy_after)
        )
        for result, after in zip(alike, gained, strict=True)
    ]
    one, other = (values(summary(result)) for result in asking)
    assert set(one) == set(other)
    changed = {name for name in one if one[name] != other[name]}
    assert not [name for name in changed if not not_for_release(name)]
    assert not [entry for entry in NOT_FOR_RELEASE if not any(f"{name}.".startswith(f"{entry}.") for name in changed)]
    assert one["not_for_release"] == list(NOT_FOR_RELEASE)


def test_every_such_column_and_no_other_begins_with_the_mark(alike, tmp_path):
    tables, beside = [], {}
    for number, result in enumerate(alike):
        write_results(result, tmp_path / str(number))
        tables.append(list(csv.DictReader(io.StringIO((tmp_path / str(number) / "parties.csv").read_text()))))
        for name in ("by_group", "calibration"):
            rows = list(csv.DictReader(io.StringIO((tmp_path / str(number) / f"{name}.csv").read_text())))
            beside.setdefault(name, []).append(rows)
    for one, other in beside.values():
        differ = {name for name in one[0] if [row[name] for row in one] != [row[name] for row in other]}
        assert differ == {name for name in one[0] if name.startswith(MARK)}
    columns = set(tables[0][0])
    changed = {name for name in columns if [r[name] for r in tables[0]] != [r[name] for r in tables[1]]}
    assert changed == {name for name in columns if name.startswith(MARK)}
    assert {name.removeprefix(MARK) for name in changed} == {"teacher_accuracy", "alone_accuracy", "gain"}
    assert pq.read_table(tmp_path / "0" / "queries.parquet") == pq.read_table(tmp_path / "1" / "queries.parquet")
    names = {figure.name: figure.difference for figure in compare_runs(tmp_path / "0", tmp_path / "1").figures}
    assert {name for name, difference in names.items() if difference} == {n for n in names if n.startswith(MARK)}


def test_every_such_line_of_the_terminal_begins_with_the_mark(alike, tmp_path, capsys):
    printed = []
    for result in alike:
        figures = json.loads(json.dumps(summary(result)))
        print_summary(figures, tmp_path)
        print_verdict(compared(result, figures), doubts(figures), figures)
        printed.append(capsys.readouterr().out.splitlines())
    plain = [[line for line in lines if not line.startswith(MARK)] for lines in printed]
    assert plain[0] == plain[1]
    # A sentence that is folded has the mark on each of its lines.
    marked = [[line for line in lines if line.startswith(MARK)] for lines in printed]
    assert max(len(line) for lines in marked for line in lines) <= 80
    for words in (
        "a party alone, mean",
        "a party alone, best",
        "all data pooled ",
        "all data pooled, macro AUROC",
        "parties that gain",
        "pays most for privacy",
        "One alone gets",
    ):
        one, other = ([line for line in lines if line.startswith(MARK + words)] for lines in marked)
        assert len(one) == len(other) == 1
        assert one != other, words
