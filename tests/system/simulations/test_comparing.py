"""The sub-command baselines as a person uses it: its table, what it writes, keeps and refuses."""

import json

import pandas as pd
import pytest

from simulations.baselines import cells, methods
from simulations.baselines.table import means as means_over_seeds
from simulations.planning import grid
from tests.harness.simulating import run

METHODS = "majority,alone,pooled,pooled_linear"
SMALL = ("--dataset", "breast_cancer", "--parties", "6", "--private-size", "120", "--engine", "in_process")


@pytest.fixture
def folder(tmp_path, monkeypatch, here, undrawn):
    """A working folder and a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONCLAVE_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_methods_are_scored_on_the_same_records_and_a_comparison_goes_on_where_it_was_stopped(
    folder, monkeypatch, capsys
):
    flags = ["baselines", *SMALL, "--quiet", "--methods", METHODS, "--seeds", "0-1", "--groups", "class"]
    flags += ["--out", "out"]
    row, made = cells._row, []

    def stopped(name, task, groups):
        made.append(name)
        if len(made) == 4:
            raise KeyboardInterrupt
        return row(name, task, groups)

    monkeypatch.setattr(cells, "_row", stopped)
    assert run(*flags) == 130
    assert "--resume --out out" in capsys.readouterr().err
    assert run(*flags, "--epsilons", "3", "--resume") == 2
    assert "other settings" in capsys.readouterr().err
    made[:] = [""] * 4
    assert run(*flags, "--resume", "--json") == 0
    assert len(made) == 4 + 5  # three of eight cells were kept
    rows = json.loads(capsys.readouterr().out)
    assert [(each["method"], each["seed"]) for each in rows] == [(m, s) for m in METHODS.split(",") for s in (0, 1)]
    accuracy = {(each["method"], each["seed"]): each["accuracy"] for each in rows}
    gains = {(each["method"], each["seed"]): each["parties_that_gain"] for each in rows}
    for seed in (0, 1):
        assert accuracy["majority", seed] < accuracy["alone", seed] < accuracy["pooled_linear", seed]
        assert gains["majority", seed] == 0
        assert gains["pooled_linear", seed] > 0.5
    written = folder / "out"
    table = pd.read_parquet(written / "methods.parquet")
    pd.testing.assert_frame_equal(table, pd.DataFrame(rows)[list(table)], check_dtype=False)
    means = pd.read_csv(written / "means.csv").set_index("method")
    pair = [accuracy["pooled_linear", seed] for seed in (0, 1)]
    assert means["accuracy"]["pooled_linear"] == pytest.approx(sum(pair) / 2)
    assert pd.isna(means["accuracy_high"]["pooled_linear"])  # of two seeds
    three = means_over_seeds(pd.concat([table, table[table["seed"] == 1].assign(seed=2)])).set_index("method")
    half = 4.30265272991 * abs(pair[0] - pair[1]) / 3  # the 0.975 quantile of Student's t with two degrees of freedom
    assert three["accuracy_high"]["pooled_linear"] == pytest.approx((pair[0] + 2 * pair[1]) / 3 + half)
    lines = (written / "methods.md").read_text().splitlines()
    assert lines[0] == "| method | protects | no ε |"
    assert lines[-1] == f"| pooled_linear | nobody | {50 * sum(pair):.1f} % |"
    groups = pd.read_csv(written / "by_group.csv")
    for key, of in groups.groupby(["method", "seed"]):
        assert (of["accuracy"] * of["records"]).sum() / of["records"].sum() == pytest.approx(accuracy[key])
    page = (written / "report.html").read_text()
    assert "Which parties gain" in page
    assert "lost there, points" in page
    assert run("baselines", "out/baselines.toml", "--engine", "in_process", "--quiet", "--json", "--out", "again") == 0
    assert json.loads(capsys.readouterr().out) == rows


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (("--methods", "alone,magic"), "method 'magic' is unknown; allowed: majority"),
        (("--budgets", "2"), "--budgets has no effect on a comparison"),
        (("--votes-by", "record"), "--methods names who votes"),
        (("--individualization", "upsampling"), "all budgets are equal: weighting"),
    ],
)
def test_settings_that_a_comparison_does_not_have_are_refused_before_anything_is_written(folder, capsys, flags, reason):
    assert run("baselines", *SMALL, *flags) == 2
    assert reason in capsys.readouterr().err
    assert not (folder / "runs").exists()


@pytest.mark.usefixtures("folder")
def test_votes_are_those_of_a_run_and_what_affords_nothing_says_so(capsys):
    kinds = "--teacher logistic_regression --student logistic_regression --engine in_process"
    wide = f"--mechanism thresholded_gnmax --unit party {kinds}".split()
    said = ("--dataset", "breast_cancer", "--parties", "40", "--private-size", "300", *wide, "--quiet", "--json")
    methods = ("--methods", "pate,record_votes")
    assert run("baselines", *said, *methods, "--epsilons", "0.05,9", "--out", "out") == 0
    none, pate, _, record = json.loads(capsys.readouterr().out)
    assert none["accuracy"] is None
    assert (none["protects"], record["protects"]) == ("party", "party")
    assert "affords no query" in none["note"]
    assert run("run", *said, "--budgets", "9", "--no-baselines", "--out", "run") == 0
    alone = json.loads(capsys.readouterr().out)
    assert (pate["accuracy"], pate["labels"]) == (alone["student_accuracy"], alone["seeds"][0]["answered"])
    said = tuple(word for word in said if word not in ("--mechanism", "thresholded_gnmax"))
    by_record = ("--votes-by", "record", "--budgets", "9", "--no-baselines", "--record-queries", "columns")
    assert run("run", *said, *by_record, "--out", "records") == 0
    assert record["accuracy"] == json.loads(capsys.readouterr().out)["student_accuracy"]  # of cells, named or not
    assert run("baselines", *said, "--bins", "3", "--methods", "record_votes", "--epsilons", "9", "--out", "three") == 0
    (three,) = json.loads(capsys.readouterr().out)
    assert run("run", *said, *by_record, "--bins", "3", "--out", "bins") == 0
    assert three["accuracy"] == json.loads(capsys.readouterr().out)["student_accuracy"]


@pytest.mark.usefixtures("folder")
def test_without_a_mechanism_teachers_are_asked_as_the_plan_says_and_few_labels_make_a_linear_student(
    capsys, monkeypatch
):
    monkeypatch.setattr(methods, "_PLANNED_QUERIES", 40)
    monkeypatch.setattr(grid, "_STEPS", ())  # the grid alone, which takes less time
    said = ("--dataset", "digits", "--parties", "40", "--queries", "60", "--quiet", "--json", "--engine", "in_process")
    flags = "--weights uniform --epsilons 8 --features pca:16 --methods alone,pooled_linear,pate --out out".split()
    assert run("baselines", *said, *flags) == 0
    alone, pooled, pate = json.loads(capsys.readouterr().out)
    assert alone["accuracy"] < pooled["accuracy"]
    assert 0 < pate["labels"] <= 60
    assert pate["accuracy"] > 0.2
