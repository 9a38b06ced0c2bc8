"""What plan and run say where budgets afford nothing, or where many labels will be wrong: commands that do run."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from protocols.study.right_labels import LEAST_RIGHT, most_right
from simulations.planning.advice import expected_agreement, expected_right, scaled_budgets
from simulations.setup.budgets import parse_budgets
from simulations.setup.experiment import experiment, experiment_budgets, make_study
from tests.harness.simulating import run


def commands(text):
    return [shlex.split(line)[1:] for line in re.findall(r"run it   (.*)", text)]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONCLAVE_CACHE", str(tmp_path / "cache"))


def test_budgets_that_afford_nothing_are_told_the_nearest_settings_whose_commands_run(tmp_path, capsys):
    flags = ["--dataset", "breast_cancer", "--parties", "12", "--budgets", "0.3:0.5,0.6:0.5", "--weights", "uniform"]
    assert run(*flags, "--quiet", "--engine", "in_process", "--out", "out") == 5
    said = capsys.readouterr().err
    # The most worth first: votes of records label the whole pool.
    kinds = ("record votes: ", "larger budgets, ", "more parties, ", "more noise, sigma ")
    places = [said.index(words) for words in kinds]
    assert places == sorted(places)
    found = commands(said)
    assert len(found) == 4
    # Enough for a student, and not much more: ten labels of each class.
    for number, command in enumerate(found):
        assert run(*command, "--dry-run", "--quiet", "--engine", "in_process") == 0
        afforded = re.search(r"it releases (\d+) labels", capsys.readouterr().out)
        assert afforded is None if number == 0 else 20 <= int(afforded[1]) <= 24
    assert not (tmp_path / "out").exists()


def test_who_votes_is_chosen_by_public_figures(capsys):
    flags = ["--dataset", "breast_cancer", "--parties", "12", "--votes-by", "usual", "--dry-run"]
    assert run(*flags, "--budgets", "1") == 0
    assert "votes: by record (usual)" in capsys.readouterr().err
    # Teachers where they give enough, and where noise hides what records say.
    assert run("--parties", "250", "--votes-by", "usual", "--dry-run") == 0
    assert "votes: by teacher (usual)" in capsys.readouterr().err
    assert run(*flags, "--budgets", "0.01", "--delta", "0.01") == 0
    said = capsys.readouterr().err
    assert "votes: by teacher (usual)" in said
    assert "delta is 0.01, and there are 319 records" in said
    # Where noise hides both, records need the smaller budgets.
    assert run("plan", *flags[:-1], "--budgets", "0.02") == 0
    said = capsys.readouterr().out
    assert 0 < said.index("record votes and larger budgets") < said.index("\nlarger budgets")
    assert run(*commands(said)[0], "--dry-run") == 0
    assert "little better than a guess" not in capsys.readouterr().err


def test_a_plan_warns_of_labels_that_will_be_wrong_and_its_remedy_needs_no_warning(capsys):
    flags = ["--dataset", "digits", "--parties", "20", "--budgets", "6"]
    assert run("plan", *flags) == 0
    assert "many labels will be wrong" not in capsys.readouterr().err
    assert run("plan", *flags, "--partition", "dirichlet:0.3") == 0
    warned = capsys.readouterr().err
    assert "many labels will be wrong" in warned
    assert re.search(r"sigma [\d.]+ votes", warned)
    (command,) = commands(warned)
    assert run("plan", *command[1:]) == 0
    said = capsys.readouterr()
    assert "many labels will be wrong" not in said.err
    assert "it releases 0 labels" not in said.out
    # Where the parties' classes have nothing in common, no noise is small enough.
    assert run("plan", "--dataset", "breast_cancer", "--parties", "12", "--partition", "dirichlet:0.001") == 0
    assert "no noise helps" in capsys.readouterr().err


@pytest.mark.parametrize("partition", ["dirichlet:0.1", "dirichlet:3", "classes:2", "iid"])
def test_the_expected_agreement_is_the_mean_over_parties_that_are_drawn(partition):
    rng, classes, records = np.random.default_rng(0), 5, 40
    kind, _, value = partition.partition(":")
    shares = np.full((20_000, classes), 1 / classes)
    if kind == "dirichlet":
        shares = rng.dirichlet(np.full(classes, float(value) / classes), size=20_000)
    elif kind == "classes":
        shares = rng.permuted(np.repeat([[0.5, 0.5, 0, 0, 0]], 20_000, axis=0), axis=1)
    knows = 1 - 1 / (1 + 0.64 * (records * shares) ** 0.65)
    drawn = (knows + (1 - knows) * shares).mean()
    assert expected_agreement(partition, [records], classes=classes) == pytest.approx(drawn, abs=0.01)


@pytest.mark.parametrize(
    ("name", "parties", "records", "classes", "pool", "warned"),
    [("digits", 250, 1097, 10, 400, True), ("heart_disease", 250, 500, 2, 250, True),
     ("heart_disease", 50, 500, 2, 250, False),
     ("mnist", 250, 60_000, 10, 9000, False), ("glyphs", 250, 60_000, 10, 10_000, False)],
)  # fmt: skip
def test_few_records_each_are_warned_of_and_a_default_run_is_not(name, parties, records, classes, pool, warned):
    settings = experiment(dataset=name, parties=parties)
    study = make_study(settings, experiment_budgets(settings), classes=classes, queries=pool)
    expected = expected_agreement(settings.partition, [records / parties], classes=classes)
    likely = expected_right(study, settings.partition, expected)
    assert (min(most_right(study, expected), likely) < LEAST_RIGHT) == warned


@pytest.mark.usefixtures("here", "undrawn")
def test_a_run_whose_labels_are_poor_says_so_in_its_verdict(capsys):
    flags = ["--dataset", "digits", "--parties", "120", "--private-size", "240", "--queries", "200", "--budgets", "9"]
    flags += ["--student", "logistic_regression", "--no-baselines", "--quiet", "--engine", "in_process"]
    assert run(*flags, "--out", "out") == 0
    said = capsys.readouterr().out
    assert "Doubtful: many labels will be wrong" in said
    page = Path("out/report.html").read_text(encoding="utf-8")
    assert page.index("many labels will be wrong") < page.index("What did it cost")


@pytest.mark.parametrize("text", ["0.37", "1:0.5,2.5:0.5", "lognormal:2,0.5", "uniform:1,4"])
def test_scaled_budgets_have_the_same_form_and_are_never_smaller_than_the_factor(text):
    before = parse_budgets(text, parties=10, delta=1e-5, seed=0).epsilon
    after = parse_budgets(str(scaled_budgets(text, 3.0)), parties=10, delta=1e-5, seed=0).epsilon
    assert (after / before).min() >= 3 - 1e-3
    assert (after / before).max() < 3.1
    assert scaled_budgets("budgets.csv", 3.0) is None


def test_a_student_of_permuted_labels_is_said_to_be_no_better_than_guessing_without_baselines(tmp_path, capsys):
    rng = np.random.default_rng(0)
    np.savez("permuted.npz", x=rng.normal(size=(600, 6)), y=rng.integers(0, 2, 600))
    flags = ["--dataset", "permuted.npz", "--parties", "40", "--budgets", "10", "--student", "logistic_regression"]
    assert run(*flags, "--no-baselines", "--engine", "in_process", "--quiet", "--out", "out") == 0
    assert "always naming the most frequent class" in " ".join(capsys.readouterr().out.split())
