"""Groups as a report and its figures show them: the ones that pay most where they are many, and notes on small ones."""

import numpy as np

from simulations.datasets.groups import Grouping
from simulations.groups import by_group
from simulations.report.page import doubts, gains, shown_groups
from simulations.results.text import baseline_groups, groups_summary, pays_most_words

CLASSES = 25
# 24 classes of 20 records and one of 19; the student gets the first c of every class c wrong.
LABELS = np.arange(CLASSES * 20 - 1) % CLASSES
TRUTH = np.eye(CLASSES, dtype=np.float32)[LABELS]
WRONG = np.arange(len(LABELS)) // CLASSES < LABELS * 20 / CLASSES
STUDENT = np.where(WRONG[:, None], np.roll(TRUTH, 1, axis=1), TRUTH)
GROUPS = Grouping("class", tuple(f"c{number}" for number in range(CLASSES)), LABELS)
FOUND = by_group([GROUPS], [STUDENT], TRUTH, LABELS)


def test_of_many_groups_those_that_pay_most_are_shown_and_a_small_one_says_so():
    figures = {"by_group": groups_summary(FOUND), "baselines": baseline_groups(FOUND)}
    (table,) = shown_groups(figures)["tables"]
    assert [row["group"] for row in table["rows"][:2]] == ["c24", "c23"]
    costs = [float(row["cost"].split()[0]) for row in table["rows"]]
    assert costs == sorted(costs, reverse=True)
    assert (len(costs), table["left"]) == (20, 5)
    assert [row["accuracy"].partition(" of only ")[2] for row in table["rows"][:2]] == ["19", ""]
    assert [row["note"] for row in figures["by_group"][-2:]] == ["", "fewer than 20 records"]
    # The small one pays most of all, and is not named.
    assert figures["baselines"]["pays_most"]["group"] == "c23"
    assert pays_most_words(figures["baselines"]["pays_most"], seeds=1).startswith("class c23: 95.0 more of 100 ")
    free = baseline_groups(by_group([GROUPS], [TRUTH], TRUTH, LABELS))["pays_most"]
    assert pays_most_words(free, seeds=1) == f"none of {free['compared']} groups loses accuracy"


def test_without_a_pooled_model_those_that_are_right_least_are_shown():
    found = by_group([GROUPS], [STUDENT], None, LABELS)
    figures = {"by_group": groups_summary(found), "baselines": baseline_groups(found)}
    shown = shown_groups(figures)
    assert not shown["priced"]
    assert shown["tables"][0]["rows"][1]["group"] == "c23"
    assert figures["baselines"]["pays_most"] is None


def test_a_verdict_is_doubtful_where_a_group_is_left_behind_and_counts_the_parties_that_were_measured():
    baselines = {**baseline_groups(FOUND), "single_parties_measured": 50, "single_parties_that_gain": 48}
    baselines["majority_class_accuracy"] = None
    figures = {"warnings": [], "by_group": groups_summary(FOUND), "baselines": baselines, "parties": 250}
    figures["student_accuracy"] = float((STUDENT.argmax(axis=1) == LABELS).mean())
    # Right on 20 - c records of class c: below 1/4 with certainty only where few of them are right.
    behind = [row["group"] for row in figures["by_group"] if row["accuracy_high"] < figures["student_accuracy"] / 2]
    assert behind
    assert "c5" not in behind
    ((said, public),) = [each for each in doubts(figures) if each[1]]
    assert public
    assert f"class {behind[-1]} " in said
    assert doubts({**figures, "student_accuracy": 0.0, "baselines": baselines | {"cost": None}}) == []
    assert gains(figures) == "48 of 50 parties that were measured, of 250, gain"
    assert gains({**figures, "parties": 50}) == "48 of 50 parties gain"
