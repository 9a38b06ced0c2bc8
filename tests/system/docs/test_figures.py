"""The figures that pages state of their own commands are those that the commands write.

Figures of a plan are exact. Those of a run follow from trained teachers, whose last digits may differ on another
machine or with another scikit-learn: they may be off by a twentieth.
"""

import csv
import json
import re
from pathlib import Path
from typing import Any  # values of a JSON file

import numpy as np
import pytest

from protocols.study.right_labels import answered_by_noise, most_right, needed_agreement
from simulations.commands.group import run_command
from simulations.planning.advice import expected_agreement
from simulations.planning.records import MISFIT, ForeseenAccuracies
from simulations.setup.experiment import experiment, experiment_budgets, make_study
from tests.harness.pages import ROOT, RunPage

TUTORIAL = ROOT / "docs" / "tutorials" / "researcher.md"
BUDGETS = ROOT / "docs" / "how-to" / "set-budgets.md"
FORTY = ["--dataset", "digits", "--parties", "40", "--budgets", "4:0.5,8:0.5", "--quiet"]


def nearly(value: float) -> Any:  # what pytest.approx returns has no public type
    return pytest.approx(value, rel=0.05)


def planned(capsys: pytest.CaptureFixture[str], *flags: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert run_command(["plan", *FORTY, *flags, "--json"]) == 0
    groups: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["groups"]
    return groups


def flat(text: str) -> str:
    """The words of a page, wherever its lines end."""
    return " ".join(text.split())


def summary(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return found


def test_the_tutorials_plans_are_those_of_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    text = TUTORIAL.read_text(encoding="utf-8")
    said = re.findall(r"^ +([48]) +20 +1 +([48]) +(\d+) +(\d+)$", text, re.MULTILINE)
    groups = planned(capsys, "--weights", "uniform")
    assert [tuple(map(int, row)) for row in said] == [
        (g["budget"], pytest.approx(g["epsilon_guaranteed"]), g["answers_all"], g["answers_half"]) for g in groups
    ]
    assert f"after at most {groups[0]['answers_all']} answers" in flat(text)
    exhaustive = {g["answers_all"] for g in planned(capsys)}
    assert len(exhaustive) == 1
    assert f"afford the same number of queries: {exhaustive.pop()}." in flat(text)


def test_how_right_labels_can_be_is_what_the_bound_says() -> None:
    text = (ROOT / "docs" / "explanation" / "right-labels.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+(?:gnmax|lnmax)|gnmax|lnmax)` \| (.*) \| (\d+) % \|$", text, re.MULTILINE)
    assert [name for name, _, _ in rows] == ["thresholded_gnmax", "confident_gnmax", "gnmax", "lnmax"]
    for name, shares, needed in rows:
        settings = experiment(parties=250, budgets="2", mechanism=name)
        study = make_study(settings, experiment_budgets(settings), classes=10, queries=1000)
        stated = [most_right(study, agreement) for agreement in (0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)]
        assert shares.split(" | ") == [f"{100 * share:.0f}" for share in stated]
        assert f"{100 * (needed_agreement(study) or 0):.0f}" == needed
        if name == "thresholded_gnmax":
            assert f"noise alone answers a share q of the queries: {100 * answered_by_noise(study):.0f} %" in flat(text)


def test_the_agreement_that_is_expected_is_as_wrong_as_the_page_says() -> None:
    text = (ROOT / "docs" / "explanation" / "right-labels.md").read_text(encoding="utf-8")
    with (ROOT / "tests" / "vectors" / "measured" / "agreement.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    wrong = []
    for row in rows:
        each = int(row["records"]) / int(row["parties"])
        expected = expected_agreement(row["partition"], [each], classes=int(row["classes"]))
        wrong.append(100 * abs(expected - float(row["agreement"])))
    mean = sum(wrong) / len(wrong)
    assert f"Over {len(rows)} studies" in flat(text)
    assert f"{mean:.1f} points of agreement in the mean and by {max(wrong):.1f} at most" in flat(text)


def test_plans_hold_runs_as_often_and_warnings_are_as_right_as_the_pages_say() -> None:
    plans = (ROOT / "docs" / "how-to" / "let-records-vote.md").read_text(encoding="utf-8")
    labels = (ROOT / "docs" / "explanation" / "right-labels.md").read_text(encoding="utf-8")
    with (ROOT / "tests" / "vectors" / "measured" / "plans.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    off, inside = [], 0
    for row in rows:
        right = f"{100 * float(row['right']):.1f}" if row["right"] else ""
        shown = [f"{float(row[name]):.3f}" if row[name] else "" for name in ("student", "teacher")]
        assert f"| {row['dataset']} | {row['parties']} | {row['labels']} | {right} | {' | '.join(shown)} |" in labels
        gain, found = float(row["expected"]), float(row["found"])
        plan = ForeseenAccuracies(
            student=gain, alone=0.0, pooled=1.0, best=1.0, guessing=0.0, gain=gain, spread=float(row["spread"]),
            teachers=None, equal=False,
        )  # fmt: skip
        low, high = plan.interval
        off.append((found - gain) ** 2)
        inside += low <= found <= high
        said = f"| {row['dataset']} | {row['parties']} | {gain:+.3f} | {low:+.3f} to {high:+.3f} | {found:+.3f} |"
        assert said in plans
    assert round((sum(off) / len(off)) ** 0.5, 2) == MISFIT
    assert f"{inside} of the {len(off)}" in flat(plans)


@pytest.mark.slow
def test_the_tutorials_results_are_those_of_its_runs(run_page: RunPage) -> None:
    text = TUTORIAL.read_text(encoding="utf-8")
    runs = run_page(TUTORIAL) / "runs"
    weighted, uniform = summary(runs / "exhaustive"), summary(runs / "uniform")
    said = re.search(r"^labels released +([\d.]+) of ([\d.]+) asked", text, re.MULTILINE)
    assert said is not None
    assert (float(said[1]), float(said[2])) == (nearly(weighted["answered"]), nearly(weighted["asked"]))
    assert f"were asked about {said[2]} public digits and agreed clearly enough on {said[1]};" in flat(text)
    baselines = weighted["baselines"]
    mark = "not for release: "
    for name, value in (
        ("label accuracy  ", weighted["label_accuracy"]),
        ("student accuracy", weighted["student_accuracy"]),
        ("majority class  ", baselines["majority_class_accuracy"]),
        (f"{mark}a party alone, mean", baselines["single_party_accuracy_mean"]),
        (f"{mark}a party alone, best", baselines["single_party_accuracy_best"]),
        (f"{mark}all data pooled", baselines["non_private_student_accuracy"]),
        (f"{mark}parties that gain", baselines["single_parties_that_gain"]),
    ):
        stated = re.search(rf"^{name} ([\d.]+)( %)?", text, re.MULTILINE)
        assert stated is not None, name
        assert float(stated[1]) / (100 if stated[2] else 1) == nearly(value), name
    right = re.search(r"student that is right (\d+) % instead of (\d+) %\s+of the time", text)
    assert right is not None
    stated_shares = [float(share) / 100 for share in right.groups()]
    assert stated_shares == [nearly(weighted["student_accuracy"]), nearly(uniform["student_accuracy"])]


@pytest.mark.slow
def test_the_tutorials_private_figures_are_those_of_its_analysis(run_page: RunPage) -> None:
    text = TUTORIAL.read_text(encoding="utf-8")
    found = json.loads((run_page(TUTORIAL) / "runs" / "analysed" / "private" / "findings.json").read_text())
    stated = re.findall(r"^ +(.*): epsilon ([\d.]+) to ([\d.]+), order", text, re.MULTILINE)
    columns = [name for name in found["parties"][0] if name.startswith(tuple(found["accountants"]))]
    columns = [name for name in columns if not name.endswith(" order")]
    assert len(stated) == len(columns)
    for (line, low, high), column in zip(stated, columns, strict=True):
        assert line == ("as the papers convert (Mironov 2017)" if "Mironov" in column else column)
        values = np.array([party[column] for party in found["parties"]])
        assert (float(low), float(high)) == (nearly(values.min()), nearly(values.max())), column


@pytest.mark.slow
def test_the_labels_of_four_ways_to_spend_unequal_budgets_are_those_stated(run_page: RunPage) -> None:
    stated = re.search(r"they released (\d+), (\d+), (\d+) and (\d+) labels", BUDGETS.read_text(encoding="utf-8"))
    assert stated is not None
    runs = run_page(BUDGETS) / "runs"
    released = [summary(runs / way)["answered"] for way in ("weighting", "vanishing", "secret", "upsampling")]
    assert [float(count) for count in stated.groups()] == [nearly(count) for count in released], released
