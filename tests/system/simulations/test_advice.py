"""What plan and run say where budgets afford nothing, or where many labels will be wrong: commands that do run."""

import re
import shlex

import numpy as np
import pytest

from simulations.planning.agreement import expected_agreement
from simulations.planning.nearest import scaled_budgets
from simulations.setup.budgets import parse_budgets
from simulations.setup.experiment import experiment
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
    for words in ("larger budgets, ", "more noise, sigma ", "more parties, ", "record votes: "):
        assert words in said
    found = commands(said)
    assert len(found) == 4
    for command in found:
        assert run(*command, "--dry-run", "--quiet", "--engine", "in_process") == 0
        afforded = re.search(r"it releases (\d+) labels", capsys.readouterr().out)
        assert afforded is None or int(afforded[1]) >= 1
    # Nearest: a little less affords nothing.
    larger = scaled_budgets(found[0][found[0].index("--budgets") + 1], 0.94)
    assert run("plan", *flags, "--budgets", larger, "--quiet") == 0
    printed = capsys.readouterr().out
    assert "it releases 0 labels" in printed
    assert "larger budgets, " in printed
    assert not (tmp_path / "out").exists()


def test_of_images_record_votes_are_advised_with_the_noise_that_their_run_has(capsys):
    assert run("plan", "--dataset", "digits", "--parties", "12", "--budgets", "0.5", "--quiet") == 0
    pattern = r"record votes: .* noise of ([\d.]+) votes on each sum\n  run it   (.*)"
    (said,) = re.findall(pattern, capsys.readouterr().out)
    assert run(*shlex.split(said[1])[1:], "--dry-run", "--quiet", "--engine", "in_process") == 0
    has = re.search(r"noise of ([\d.]+)\s+votes", capsys.readouterr().out)
    assert has is not None
    assert float(has[1]) == pytest.approx(float(said[0]), rel=1e-3)


def test_a_plan_warns_of_labels_that_will_be_wrong_and_its_remedy_needs_no_warning(capsys):
    flags = ["--dataset", "digits", "--parties", "40", "--budgets", "6"]
    assert run("plan", *flags) == 0
    assert "many labels will be wrong" not in capsys.readouterr().err
    assert run("plan", *flags, "--partition", "dirichlet:0.3") == 0
    warned = capsys.readouterr().err
    assert re.search(r"at most \d+% of the votes can be expected to agree, and with sigma 12 votes at most", warned)
    (command,) = commands(warned)
    assert run("plan", *command[1:]) == 0
    said = capsys.readouterr()
    assert "many labels will be wrong" not in said.err
    assert "it releases 0 labels" not in said.out
    # Where the parties' classes have nothing in common, no noise is small enough.
    assert run("plan", "--dataset", "breast_cancer", "--parties", "12", "--partition", "dirichlet:0.001") == 0
    assert "no noise helps" in capsys.readouterr().err


@pytest.mark.parametrize(("concentration", "classes", "records"), [(0.1, 10, 20), (1.0, 3, 100), (30.0, 5, 8)])
def test_the_share_of_parties_that_hold_a_class_is_that_of_polyas_urn(concentration, classes, records):
    settings = experiment(parties=5, partition=f"dirichlet:{concentration}")
    first, second = concentration / classes, concentration * (1 - 1 / classes)
    # Record by record, as from an urn (Polya).
    without = np.prod([(second + drawn) / (first + second + drawn) for drawn in range(records)])
    found = expected_agreement(settings, classes=classes, private_records=5 * records)
    assert found == pytest.approx(max(1 / classes, 1 - without), rel=1e-9)
    assert expected_agreement(experiment(parties=5), classes=classes, private_records=records) == 1.0


@pytest.mark.parametrize("text", ["0.37", "1:0.5,2.5:0.5", "lognormal:2,0.5", "uniform:1,4"])
def test_scaled_budgets_have_the_same_form_and_are_never_smaller_than_the_factor(text):
    before = parse_budgets(text, parties=10, delta=1e-5, seed=0).epsilon
    after = parse_budgets(str(scaled_budgets(text, 3.0)), parties=10, delta=1e-5, seed=0).epsilon
    assert (after / before).min() >= 3 - 1e-3
    assert (after / before).max() < 3.1
    assert scaled_budgets("budgets.csv", 3.0) is None
