"""plan --optimise on the command line: what it prints and writes, and flags that it refuses."""

import csv
import json
import shlex
from pathlib import Path

import numpy as np
import pytest

from protocols.study.plan import make_plan
from simulations.commands.group import run_command
from simulations.commands.run import run_flags
from simulations.options import settings_from
from simulations.planning.objective import OBJECTIVES
from simulations.planning.predict import AssumedVotes, Planner
from simulations.setup.experiment import make_study

FLAGS = ["plan", "--optimise", "--parties", "12", "--classes", "3", "--budgets", "6:0.5,12:0.5", "--queries", "60",
         "--weights", "uniform"]  # fmt: skip


def test_the_command_prints_json_writes_the_frontier_and_a_line_that_makes_the_same_study(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert run_command([*FLAGS, "--accuracy", "0.8", "--json", "--out", "plans", "--delta", "1e-6"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == json.loads(Path("plans/frontier.json").read_text())
    assert document["min_accuracy"] == 0.8
    assert "Fano" in document["objective_statement"]
    with Path("plans/frontier.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["answered"]) for row in rows] == [point["answered"] for point in document["frontier"]]
    assert [row["chosen"] for row in rows].count("True") == 1
    assert {row["mechanism"] for row in rows} == {"thresholded_gnmax", "confident_gnmax"}
    assert document["better"] == document["chosen"]["mechanism"] == "thresholded_gnmax"
    assert [point["mechanism"] for point in document["compared"]] == ["thresholded_gnmax", "confident_gnmax"]
    assert {path.name for path in Path("plans/figures").iterdir()} == {"frontier.svg", "frontier.png"}
    words = shlex.split(document["command"])
    assert words[:2] == ["conclave-simulate", "run"]
    context = run_flags.make_context("run", words[2:])
    wanted = settings_from(context.params)
    assert wanted.queries == document["chosen"]["queries"]
    votes = AssumedVotes(classes=3, accuracy=0.8, concentration=4.0)
    plan = Planner.of(wanted, votes, OBJECTIVES["information"], pool=wanted.queries)
    study = make_study(wanted, plan.budgets, classes=3, queries=wanted.queries)
    assert make_plan(study).to_json() == document["plan"]
    assert study.votes.answer_rate == document["chosen"]["answer_rate"]


def test_public_pilot_votes_stand_for_an_accuracy_and_chosen_questions_keep_the_whole_pool(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=300)
    ids = np.where(rng.random((12, 300)) < 0.8, truth, rng.integers(3, size=(12, 300)))
    np.save("pilot.npy", ids)
    np.save("truth.npy", truth)
    flags = [*FLAGS, "--pilot", "pilot.npy", "--pilot-kind", "ids", "--pilot-labels", "truth.npy"]
    assert run_command([*flags, "--questions", "coverage"]) == 0
    printed = capsys.readouterr().out
    assert "300 public pilot queries of 12 voters, mean accuracy 0.8" in printed
    assert "objective  information" in printed
    # Questions are chosen from all of the pool, not from as many as the budgets afford.
    assert "questions  coverage: what is assumed is assumed of those that are asked" in printed
    assert "run it     conclave-simulate run --parties 12" in printed
    assert printed.rstrip().endswith("--queries 60")


def test_a_mechanism_for_which_the_accountant_does_not_hold_is_said_to_be_left_out(capsys):
    assert run_command([*FLAGS, "--accuracy", "0.8", "--accountant", "exact_composition"]) == 0
    said = "left out   confident_gnmax is not compared: accountant 'exact_composition' does not hold for view 'label'"
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--accuracy", "1.5"], "accuracy is 1.5; allowed: above chance, 1/3, and at most 1"),
        (["--accuracy", "0.8", "--sigma", "4"], "--sigma is 4, but --optimise chooses it"),
        (["--accuracy", "0.8", "--votes", "v.npy"], "--votes is 'v.npy'; allowed with --optimise: none; public"),
        (["--accuracy", "0.8", "--mechanism", "lnmax"], "'lnmax'; allowed with --optimise: thresholded_gnmax, conf"),
        (["--accuracy", "0.8", "--pilot", "p.npy"], "--optimise needs either --accuracy"),
        (["--pilot", "absent.npy", "--concentration", "3"], "--concentration has no effect with --pilot"),
        (["--accuracy", "0.8", "--majority", "0.7"], "--majority is given, and teachers vote"),
        ([], "--optimise needs either --accuracy"),
    ],
)
def test_flags_that_cannot_be_are_refused_in_one_line(flags, reason, capsys):
    assert run_command([*FLAGS, "--quiet", *flags]) == 2
    error = capsys.readouterr().err
    assert (reason in error, error.count("\n")) == (True, 1)


def test_flags_of_optimise_alone_and_a_plan_without_classes_are_refused(capsys):
    assert run_command(["plan", "--accuracy", "0.8", "--quiet"]) == 2
    assert "--accuracy has no effect without --optimise" in capsys.readouterr().err
    assert run_command(["plan", "--optimise", "--accuracy", "0.8", "--quiet"]) == 2
    assert "--accuracy needs --classes" in capsys.readouterr().err
