"""Runs in which records vote: as a person starts them, on scikit-learn's breast cancer table; what they write, and what
is refused."""

import json
import re
from dataclasses import replace
from html import unescape

import numpy as np
import pandas as pd
import pytest

from simulations import datasets
from simulations.commands.group import run_command
from simulations.report.terminal import print_summary

RUN = "run --votes-by record --dataset breast_cancer --parties 5 --engine in_process --quiet".split()
RUN += ["--workers", "1", "--student", "random_forest"]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def run(cache, monkeypatch, tmp_path, capsys, here, undrawn):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONCLAVE_CACHE", str(cache))

    def call(*flags, out="out"):
        code = run_command([*RUN, "--out", out, "--json", *flags])
        said = capsys.readouterr()
        return json.loads(said.out) if code == 0 else (code, said.err)

    return call


def test_a_run_labels_the_pool_charges_every_budget_whole_and_says_all_of_it_in_words(run, tmp_path):
    summary = run("--budgets", "1:0.4,2:0.6", "--seeds", "0-1")
    assert (summary["votes_by"], summary["view"], summary["live_checked"]) == ("record", "histogram", True)
    assert summary["accounting"] == "worst_case_gaussian"
    assert summary["stop"] == "pool_exhausted"
    for group in summary["groups"]:
        assert group["epsilon_spent"] <= group["epsilon_guaranteed"] == pytest.approx(group["budget"], rel=1e-6)
        assert group["share_of_budget_used"] == pytest.approx(1, abs=0.01)
    poor, rich = summary["groups"]
    assert poor["weight"] < 1 < rich["weight"]
    assert (summary["teachers_per_party"], summary["mechanism"]) == (None, None)
    votes, baselines = summary["record_votes"], summary["baselines"]
    assert votes["graded"]
    assert 2 <= votes["queries"] == votes["votes_per_record"] <= 31
    assert votes["protected_units"] == 319
    assert summary["label_accuracy"] > 0.85
    assert summary["student_accuracy"] > 0.85
    assert baselines["single_parties_measured"] == 5
    assert baselines["single_party_accuracy_mean"] <= baselines["single_party_accuracy_best"]
    sums = pd.read_parquet(tmp_path / "out" / "sums.parquet")
    assert len(sums) == 2 * votes["queries"] * 2
    pool = pd.read_parquet(tmp_path / "out" / "pool.parquet")
    np.testing.assert_allclose(pool.probability_0 + pool.probability_1, 1)
    assert (pool.label == pool.true_label).mean() == pytest.approx(summary["label_accuracy"])
    assert not (tmp_path / "out" / "queries.parquet").exists()
    page = unescape(
        re.sub(r"<(style|script).*?</\1>|<[^>]+>", " ", (tmp_path / "out/report.html").read_text(), flags=re.S)
    )
    assert f"{votes['queries']} public features" in page
    assert "once in the whole study" in page
    assert run("--budgets", "1:0.4,2:0.6", "--seeds", "0-1", "--student", "usual", "--resume") == summary
    # Both are parts of one table, split at random.
    assert not any("unlike" in each for each in summary["warnings"])
    assert not re.search("[Tt]eachers(?!_)|reach the threshold|[Aa]bstention", page.replace("no teachers:", ""))


@pytest.mark.parametrize("flags", [["--units", "1024", "--evaluate", "0.2"], ["--confidentiality", "secure_sum"]])
def test_with_integer_noise_too_the_live_study_is_the_replay_and_its_scores_are_a_student(run, tmp_path, flags):
    summary = run("--budgets", "1", *flags, "--student", "scores", "--no-baselines")
    assert summary["live_checked"]
    assert summary["student"] == "scores"
    assert summary["student_accuracy"] > 0.85
    assert summary["units"] == (1024 if "--units" in flags else 2**16)
    page = (tmp_path / "out" / "report.html").read_text()
    assert ('id="judged"' in page) == ("--evaluate" in flags)
    assert all(f"{100 * each:.1f}\xa0%" in page for each in (summary["evaluation"] or {"accuracy": []})["accuracy"])


def test_units_are_asked_twice_where_chance_in_the_pool_outweighs_the_noise_unless_it_is_said_otherwise(run, tmp_path):
    twice = run("--budgets", "8", "--student", "scores", "--no-baselines")
    assert twice["live_checked"]
    assert twice["record_votes"]["sums"] == 2
    sums = pd.read_parquet(tmp_path / "out" / "sums.parquet")
    assert sums.groupby("batch").size().tolist() == 2 * [2 * twice["record_votes"]["queries"]]
    assert "asked twice" in (tmp_path / "out" / "report.html").read_text()
    once = run("--budgets", "8", "--no-residuals", "--student", "none", "--no-baselines", out="once")
    assert once["record_votes"]["sums"] == 1
    noise = [each["record_votes"]["noise_in_votes"] for each in (once, twice)]
    assert noise[1] / noise[0] == pytest.approx(2**0.5, rel=0.01)


def test_drop_outs_charge_nobody_who_was_absent_and_may_cost_the_second_sum(run, tmp_path, capsys):
    flags = ["--dropout", "0.4", "--quorum", "3", "--student", "none", "--no-baselines", "--seeds", "1,5"]
    summary = run("--budgets", "8", *flags)
    assert summary["live_checked"]
    assert 0 < summary["groups"][0]["share_of_budget_used"] < 1
    assert (summary["record_votes"]["sums"], summary["record_votes"]["second_sums"]) == (2, 1)
    assert run("--budgets", "8", *flags, "--resume") == summary
    print_summary(summary, tmp_path)
    shown = [capsys.readouterr().out, (tmp_path / "out" / "report.html").read_text()]
    assert all("1 of 2 seeds" in each for each in shown)


def test_all_data_of_a_party_may_be_the_unit(run):
    summary = run("--budgets", "50", "--unit", "party", "--student", "none", "--no-baselines")
    assert summary["unit"] == "party"
    assert summary["record_votes"]["protected_units"] == 5


def test_a_run_whose_pool_lacks_records_says_so_with_the_columns(run, monkeypatch, capsys):
    whole = datasets.load

    def without_large_ones(name, request):
        found = whole(name, request)
        # By the first column of the table, the mean radius.
        kept = found.public_inputs[:, 0] < np.median(found.public_inputs[:, 0])
        return replace(found, public_inputs=found.public_inputs[kept], public_labels=found.public_labels[kept])

    monkeypatch.setattr("simulations.datasets.load", without_large_ones)
    (said,) = [each for each in run("--budgets", "8", "--no-baselines")["warnings"] if "unlike" in each]
    assert re.search("in theirs feature (0|2|3|20|22|23) is higher", said)  # radius, perimeter, area


def test_a_second_run_with_other_budgets_in_named_cells_starts_no_engine(run, cache, monkeypatch):
    named = ("--record-queries", "columns", "--student", "none", "--no-baselines")
    run("--budgets", "1", *named)
    monkeypatch.setattr("simulations.stages.vote_source.open_engine", lambda *_, **__: pytest.fail("an engine"))
    run("--budgets", "3", *named, out="again")


def test_a_sweep_is_the_run_of_the_same_settings(run, tmp_path, capsys):
    alone = run("--budgets", "2", "--bins", "3", "--student", "none", "--no-baselines")
    (tmp_path / "sweep.toml").write_text(
        '[base]\nvotes_by = "record"\ndataset = "breast_cancer"\nparties = 5\n'
        '[grid]\nbudgets = ["2", "4"]\nbins = [3]\n'
    )
    assert run_command(["sweep", "sweep.toml", "--engine", "in_process", "--quiet", "--json", "--out", "swept"]) == 0
    capsys.readouterr()
    rows = pd.read_csv(tmp_path / "swept" / "sweep.csv")
    assert rows.label_accuracy[0] == pytest.approx(alone["label_accuracy"])


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--sigma", "3"], "sigma is 3.0; allowed with votes_by 'teacher' only"),
        (["--view", "label"], "view is 'label'; allowed with votes_by 'record': histogram"),
        (["--parties", "319"], "no party has 2 units (records)"),
        (["--record-queries", "towns"], "record_queries is 'towns'"),
        (["--votes-by", "teacher", "--bins", "3"], "bins is 3; allowed with votes_by 'record' only"),
        (["--dataset", "digits", "--record-queries", "columns"], "digits, which has images: clusters:N"),
        (["--nearest", "2"], "nearest is 2; allowed with record_queries clusters:N only"),
        (["--student", "scores", "--bins", "3"], "student is 'scores'; allowed where records vote with graded"),
    ],
)
def test_what_has_no_meaning_is_refused_before_anything_is_written(run, tmp_path, flags, words):
    code, said = run("--budgets", "1", *flags)
    assert code == 2
    assert words in said
    assert not (tmp_path / "out").exists()


def test_a_study_whose_noise_hides_its_votes_is_warned_of_before_anything_is_worked_out(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    given = [each for each in RUN if each != "--quiet"]
    for budget, warned in (("0.02", True), ("1", False)):
        assert run_command([*given, "--budgets", budget, "--dry-run"]) == 0
        assert ("little better than a guess" in capsys.readouterr().err) == warned


def test_parties_of_one_record_vote_with_none_and_are_said_so(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    given = [each for each in RUN if each != "--quiet"]
    assert run_command([*given, "--parties", "200", "--budgets", "1", "--dry-run"]) == 0
    assert "81 of 200 parties have fewer than 2 units and vote with none" in capsys.readouterr().err
