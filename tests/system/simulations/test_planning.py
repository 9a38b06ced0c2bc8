"""The sub-commands plan and compare as a person uses them: what they print, write and refuse."""

import json

import pytest

from tests.harness.simulating import run

pytestmark = pytest.mark.usefixtures("undrawn")


def test_plan_and_dry_run_print_what_budgets_afford_and_train_nothing(stored, tmp_path, capsys):
    flags = [*stored, "--budgets", "1:0.5,3:0.5", "--weights", "uniform"]
    assert run("plan", *flags, "--json") == 0
    plan = json.loads(capsys.readouterr().out)
    assert run(*flags, "--dry-run", "--json", "--out", "out") == 0
    assert json.loads(capsys.readouterr().out) == plan
    poor, rich = plan["groups"]
    assert plan["answers_if_all_answered"] == poor["answers_all"] < rich["answers_all"]
    assert poor["epsilon_guaranteed"] == pytest.approx(1, rel=1e-6)
    assert not (tmp_path / "out").exists()
    assert run("plan", *flags) == 0
    text = capsys.readouterr().out
    assert str(poor["answers_all"]) in text
    assert "worst_case_label_only" in text


def test_a_budget_that_buys_no_planned_query_is_shown_as_none_and_its_party_takes_no_part(stored, tmp_path, capsys):
    flags = [*stored, "--accountant", "exact_composition", "--mechanism", "gnmax", "--budgets", "0.01:0.5,8:0.5"]
    flags += ["--weights", "uniform", "--stop", "drop-exhausted"]
    assert run("plan", *flags) == 0
    assert "none" in capsys.readouterr().out
    assert run(*flags, "--out", "out") == 0
    poor, rich = json.loads((tmp_path / "out" / "summary.json").read_text())["groups"]
    assert (poor["epsilon_guaranteed"], poor["share_of_budget_used"]) == (0, 0)
    assert rich["share_of_budget_used"] > 0


def test_a_plan_of_record_votes_rehearses_them_and_names_the_command_that_runs_them(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONCLAVE_CACHE", str(tmp_path / "cache"))
    flags = ["--votes-by", "record", "--dataset", "breast_cancer", "--parties", "4", "--budgets", "1", "--quiet"]
    assert run("plan", *flags, "--bins", "2", "--json") == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["chosen"] == plan["candidates"][0]
    assert plan["chosen"]["record_queries"] == "columns"
    assert plan["epsilon_guaranteed"] == [pytest.approx(1, rel=1e-6)]
    assert plan["votes_by"] == "record"
    assert 0.5 < plan["guessing"] < plan["chosen"]["pool_labels"] < plan["best"]
    words = plan["command"].split()
    assert run(*words[1:], "--dry-run", "--engine", "in_process", "--quiet") == 0
    capsys.readouterr()
    assert run("plan", *flags, "--json") == 0
    tried = [each["record_queries"] for each in json.loads(capsys.readouterr().out)["candidates"]]
    assert tried == ["graded"]
    assert run("plan", *flags, "--bins", "2", "--accuracy", "0.9") == 0
    printed = capsys.readouterr().out
    assert "verdict" in printed
    assert "run it" in printed


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--optimise"], "leave it out with --votes-by record"),
        (["--concentration", "3"], "--concentration has no effect without --optimise"),
        (["--unit", "patient"], "names no patients"),
    ],
)
def test_a_plan_of_record_votes_refuses_what_it_cannot_use(flags, message, capsys):
    given = ["--votes-by", "record", "--dataset", "breast_cancer", "--parties", "4", "--bins", "2", "--quiet"]
    assert run("plan", *given, *flags) == 2
    assert message in capsys.readouterr().err
