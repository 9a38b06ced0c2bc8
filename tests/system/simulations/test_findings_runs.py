"""Several findings of each record in a person's own file: run, plan, sweep and baselines, by teachers and records."""

import json

import numpy as np
import pandas as pd
import pytest

from tests.harness.simulating import run

pytestmark = pytest.mark.usefixtures("here", "undrawn")
FINDINGS = ("pneumonia", "pleural effusion", "oedema")
SCHEMA = "".join(f'\n[[feature]]\ncolumn = "x{at}"\nkind = "numeric"\ncentre = 0\nscale = 1\n' for at in range(4))
SCHEMA = f'findings = {json.dumps(FINDINGS)}\nclasses = ["no", "yes"]\nmissing = ["", "unclear"]\n{SCHEMA}'


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def own(tmp_path, monkeypatch, cache):
    """A table with three label columns, a third of the second's cells unclear, and some rows with none."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONCLAVE_CACHE", str(cache))
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1500, 4))
    said = np.where(x[:, :3] + 0.5 * rng.normal(size=(1500, 3)) > (0.0, 0.5, 1.0), "yes", "no").astype(object)
    said[rng.random(1500) < 1 / 3, 1] = "unclear"
    said[rng.random(1500) < 0.02] = ""
    columns = {f"x{at}": x[:, at] for at in range(4)} | dict(zip(FINDINGS, said.T, strict=True))
    pd.DataFrame(columns).to_csv("chest.csv", index=False)
    (tmp_path / "chest.schema.toml").write_text(SCHEMA)
    return ["--dataset", "chest.csv", "--parties", "5", "--queries", "200", "--engine", "in_process", "--quiet"]


TEACHERS = ("--teachers-per-party", "10", "--budgets", "8")
WAYS = {
    "binary": ("--findings-by", "binary", "--student", "gradient_boosting", *TEACHERS),
    "powerset": ("--findings-by", "powerset", "--student", "mlp", *TEACHERS),
    "tau": ("--findings-by", "tau", "--student", "logistic_regression", *TEACHERS),
    "record": ("--votes-by", "record", "--student", "scores", "--budgets", "8", "--evaluate", "0.3"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_run_tells_each_finding_by_name_and_plan_foresees_it(way, own, tmp_path, capsys):
    assert run("run", *own, *WAYS[way], "--out", "out", "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    each = summary["findings"]["each"]
    assert tuple(one["name"] for one in each) == FINDINGS
    assert [one["present"] for one in each] == pytest.approx([0.5, 0.33, 0.19], abs=0.08)
    assert all(0 < one["threshold"] < 1 for one in each if one["auroc"] != 0.5)
    assert summary["findings"]["macro_auroc"] > (0.85 if way == "record" else 0.6)
    assert len(summary["baselines"]["findings_auroc"]) == 3
    assert summary["live_checked"]
    page = (tmp_path / "out" / "report.html").read_text()
    assert all(name in page for name in FINDINGS)
    for one in each if way == "record" else []:
        (_, low, high), at = summary["evaluation"][one["name"]]["by_class"][1]["auroc"], one["auroc"]
        assert low - 0.02 <= at <= high + 0.02
        assert high - low < 0.5
        assert f"{one['name']}: AUROC" in page
    planned = [flag for flag in WAYS[way] if flag not in ("--student", WAYS[way][WAYS[way].index("--student") + 1])]
    assert run("plan", *own, *planned, "--json") == 0
    plan = json.loads(capsys.readouterr().out)
    if way != "record":
        assert plan["answers_if_all_answered"] >= summary["answered"] > 0
        assert plan["groups"][0]["epsilon_guaranteed"] == summary["groups"][0]["epsilon_guaranteed"] <= 8


def test_a_sweep_and_a_comparison_have_findings_in_every_way(own, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("simulations.stages.students.calibrated", None)  # an AUROC trains no student again
    flags = [*own, "--teachers-per-party", "10", "--student", "logistic_regression"]
    (tmp_path / "sweep.toml").write_text('[grid]\nfindings_by = ["binary", "powerset", "tau"]\n')
    assert run("sweep", "sweep.toml", *flags, "--budgets", "8", "--json", "--out", "s") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["answered"] > 0 < row["student_accuracy"] for row in rows] == [True] * 3
    assert all(0.5 < row["student_auroc"] < 1 and row["auroc_of"] == "mean over 3 findings" for row in rows)
    assert run("baselines", *flags, "--epsilons", "8", "--seeds", "0", "--json", "--out", "b") == 0
    found = {row["method"]: row for row in json.loads(capsys.readouterr().out)}
    assert all((row["accuracy"] or 0.0) > 0.5 or row["note"] for row in found.values()), found
    for method in ("graded_votes", "record_votes", "pate"):
        assert 0.85 < found[method]["auroc"] < found["pooled"]["auroc"] + 0.01  # of one split
    assert found["majority"]["accuracy"] < found["alone"]["accuracy"] < found["pooled"]["accuracy"]


def test_what_is_wrong_in_a_schema_of_findings_is_refused(own, tmp_path, capsys):
    changes = (("findings", 'label = "x0"\nfindings'), ('"yes"]', '"yes", "maybe"]'), ('"oedema"', '"x0"'))
    for wrong in (SCHEMA.replace(*change) for change in changes):
        (tmp_path / "chest.schema.toml").write_text(wrong)
        assert run("run", *own, *WAYS["record"], "--out", "out") == 2
        assert "allowed" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_archive_has_findings_where_rows_of_labels_do_not_hold_a_single_1(own, tmp_path, capsys):
    rng = np.random.default_rng(1)
    x = rng.integers(0, 256, (300, 8, 8), dtype=np.uint8)
    y = np.where(rng.random((300, 3)) < 0.2, np.nan, x.reshape(300, 64)[:, :63].reshape(300, 3, 21).mean(axis=2) > 127)
    own[1] = "chest.npz"
    np.savez("chest.npz", x=x, y=y, findings=np.array(FINDINGS))
    assert run("run", *own, *WAYS["record"], "--queries", "60", "--no-baselines", "--out", "o", "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in summary["findings"]["each"]] == list(FINDINGS)
    np.savez("chest.npz", x=x, y=np.where(np.isnan(y), 2, y))
    assert run("run", *own, *WAYS["record"], "--out", "wrong") == 4
