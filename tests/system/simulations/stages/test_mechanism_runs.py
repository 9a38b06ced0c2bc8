"""Every mechanism and every individualization as a person runs it, on digits; and what is refused with stored votes."""

import json

import numpy as np
import pytest

from simulations.commands.group import run_command
from simulations.report.terminal import print_summary
from simulations.setup.experiment import read_config
from tests.harness.studies import make_votes

DIGITS = [
    "--dataset", "digits", "--parties", "12", "--student", "random_forest", "--no-baselines", "--quiet", "--json",
    "--engine", "in_process", "--workers", "1",
]  # fmt: skip
ONE_DRAW = ["--sigma", "3", "--threshold", "6"]
NOISE = [*ONE_DRAW, "--sigma-threshold", "6"]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Teachers are trained once for all runs with the same shards."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def run(cache, monkeypatch, tmp_path, capsys, here, undrawn):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONCLAVE_CACHE", str(cache))

    def call(*flags):
        assert run_command(["run", *DIGITS, "--out", "out", *flags]) == 0, capsys.readouterr().err
        return json.loads(capsys.readouterr().out)

    return call


def within_budgets(summary):
    for group in summary["groups"]:
        assert group["epsilon_spent"] <= group["epsilon_guaranteed"] <= group["budget"]
        assert 0 < group["share_of_budget_used"] <= 1
    return summary


@pytest.mark.parametrize("mechanism", ["gnmax", "lnmax"])
def test_a_mechanism_without_a_threshold_answers_whatever_is_asked(run, mechanism):
    noise = ["--sigma", "3"] if mechanism == "gnmax" else ["--gamma", "0.4"]
    summary = within_budgets(run("--mechanism", mechanism, *noise, "--budgets", "4:0.5,8:0.5"))
    assert summary["asked"] == summary["answered"] > 0
    assert summary["label_accuracy"] > 0.5
    assert summary["accounting"] == ("worst_case_laplace" if mechanism == "lnmax" else "worst_case_label_only")


def test_interactive_gnmax_has_two_rounds_and_reinforces_what_the_student_is_sure_of(run, tmp_path):
    summary = within_budgets(
        run(
            "--mechanism", "interactive_gnmax", *NOISE, "--interactive-threshold", "4", "--reinforce-confidence", "0.3",
            "--round-one", "4", "--budgets", "8", "--accountant", "papernot2018",
        )
    )  # fmt: skip
    assert summary["mechanism"]["round_one"] == 4
    assert summary["asked"] > 4
    assert summary["reinforced"] > 0
    assert summary["live_checked"]
    findings = json.loads((tmp_path / "out" / "private" / "findings.json").read_text())
    for party in findings["parties"]:
        assert party["papernot2018 (realised)"] > 0


@pytest.mark.parametrize("how", ["vanishing", "secret-vanishing"])
def test_small_budgets_take_part_less_often(run, how):
    summary = within_budgets(run("--individualization", how, *ONE_DRAW, "--budgets", "4:0.5,10:0.5"))
    assert summary["individualization"] == how
    assert summary["participation"] == ("periodic" if how == "vanishing" else "secret")
    rates = {group["budget"]: group["rate"] for group in summary["groups"]}
    assert rates[4.0] < rates[10.0] == 1
    weights = {group["weight"] for group in summary["groups"]}
    assert len(weights) == 1
    assert weights.pop() > 1


def test_upsampling_pools_all_data_and_says_so(run, tmp_path):
    summary = within_budgets(run("--individualization", "upsampling", *ONE_DRAW, "--budgets", "4:0.5,8:0.5"))
    assert summary["pooled_teachers"] == 18
    assert [group["weight"] for group in summary["groups"]] == [1.0, 2.0]
    assert not summary["live_checked"]
    page = (tmp_path / "out" / "report.html").read_text()
    assert "simulation only" in page


def test_privacy_groups_give_every_party_a_seat_for_each_budget(run):
    summary = within_budgets(run("--privacy-groups", *ONE_DRAW, "--budgets", "4:0.5,8:0.5", "--private-size", "600"))
    assert summary["parties"] == 24
    assert summary["live_checked"]


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--individualization", "upsampling"], "cannot replay stored votes"),
        (["--mechanism", "interactive_gnmax"], "cannot replay stored votes"),
        (["--privacy-groups"], "no effect with --votes"),
        (["--individualization", "vanishing", "--weights", "uniform"], "allowed: with individualization 'weighting'"),
        (["--gamma", "1"], "gamma"),
        (["--reinforce-confidence", "2"], "reinforce_confidence is 2.0"),
    ],
)
def test_what_stored_votes_cannot_do_is_refused_before_anything_is_written(
    tmp_path, monkeypatch, capsys, flags, reason
):
    votes, _ = make_votes(20, 60)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONCLAVE_CACHE", str(tmp_path / "cache"))
    np.save("votes.npy", votes[:, 0])
    code = run_command(["run", "--votes", "votes.npy", "--votes-kind", "ids", "--quiet", "--out", "out", *flags])
    assert code == 2
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_table_of_accountants_is_printed_and_given_as_json(capsys):
    assert run_command(["accountants"]) == 0
    assert "papernot2018" in capsys.readouterr().out
    assert run_command(["accountants", "--json"]) == 0
    table = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert table["label_only"]["publishable"]
    assert not table["papernot2018"]["publishable"]


def test_released_labels_choose_the_student_and_a_run_that_goes_on_compares_nothing_again(run, monkeypatch, tmp_path):
    kinds = {"logistic_regression": "sklearn", "random_forest": "sklearn"}
    monkeypatch.setattr("coordinator.students.choice._FOR_IMAGES", kinds)
    monkeypatch.setattr("coordinator.students.scikit.STUDENT_TREES", 5)
    flags = ["--student", "auto", *ONE_DRAW, "--budgets", "8"]
    summary = run(*flags)
    assert read_config(tmp_path / "out" / "config.toml").student == "auto"
    choice = summary["seeds"][0]["student_choice"]
    assert summary["student"] == choice["kind"]
    assert [score["kind"] for score in choice["scores"]] == list(kinds)
    monkeypatch.setattr("simulations.stages.students.choose_student", None)
    assert run(*flags, "--resume") == summary
    named = run("--student", choice["kind"], *flags[2:], "--out", "named")
    assert (named["student_accuracy"], named["student"]) == (summary["student_accuracy"], choice["kind"])
    assert named["seeds"][0]["student_choice"] is None


def test_two_labels_compare_no_students_and_the_summary_says_so(run, tmp_path, capsys):
    summary = run("--student", "auto", "--queries", "2", "--mechanism", "gnmax", "--sigma", "3", "--budgets", "8")
    assert (summary["answered"], summary["student"]) == (2, "logistic_regression")
    assert summary["seeds"][0]["student_choice"] == {"kind": "logistic_regression", "scores": [], "why": ""}
    print_summary(summary, tmp_path)
    assert "fewer than 3 labels cannot compare kinds of students: logistic_regression" in capsys.readouterr().out
