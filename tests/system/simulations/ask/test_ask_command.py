"""`conclave-simulate ask` as a person uses it: from flags to report, again from the cache, and refusals."""

import csv
import json
import re
import tomllib

import numpy as np
import pyarrow.parquet as pq
import pytest

from protocols.reading import read_toml
from simulations.ask import votes as ask_votes
from simulations.commands.group import run_command
from tests.harness.engine_here import running_here

SMALL = (
    "ask --parties 12 --queriers 2 --unlabelled 20 --turn 5 --skew 5 --private-size 900 --budgets 10:0.5,20:0.5 "
    "--models logistic_regression --engine in_process --workers 1 --seeds 0-1 --sigma 3 --quiet"
).split()


@pytest.fixture(scope="module", autouse=True)
def engine():
    with running_here():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A finished run and its cache."""
    folder = tmp_path_factory.mktemp("ask")
    assert run_command([*SMALL, "--cache-dir", str(folder / "cache"), "--out", str(folder / "run")]) == 0
    return folder


@pytest.fixture(scope="module")
def figures(folder):
    return json.loads((folder / "run" / "summary.json").read_text())


def test_a_run_writes_everything_that_it_promises(folder, figures) -> None:
    out = folder / "run"
    drawn = {f"figures/{name}.{kind}" for name in ("before_after", "by_class") for kind in ("svg", "png")}
    data = {"config.toml", "env.json", "labels.parquet", "parties.csv", "queriers.csv", "report.html", "summary.json"}
    assert {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()} == drawn | data
    assert read_toml(out / "config.toml")["skew"] == 5.0
    assert (figures["accounting"], figures["view"], figures["adjacency"]) == (
        "worst_case_label_only", "label", "replace-one",
    )  # fmt: skip
    assert figures["confidentiality"] == {"level": "two_server", "units": 64}
    assert figures["epsilon_guaranteed_max"] <= 20 + 1e-9


def test_labels_ledgers_and_means_agree_with_each_other(folder, figures) -> None:
    labels = pq.read_table(folder / "run" / "labels.parquet").to_pandas()
    given = labels[labels.label >= 0]
    assert figures["answered"] == pytest.approx(len(given) / 2)
    assert figures["asked"] == pytest.approx((labels.label != -2).sum() / 2)
    right = given.assign(right=given.label == given.true_label).groupby("seed").right.mean().mean()
    assert figures["label_accuracy"] == pytest.approx(right)
    assert len(labels) == 2 * 2 * 20
    for querier in figures["queriers"]:
        assert sum(one["labels_given"] for one in querier["classes"]) == pytest.approx(querier["answered"])
        assert sum(one["own_records"] for one in querier["classes"]) == querier["records"]
        assert querier["after"] - querier["before"] == pytest.approx(querier["gain"])
        # Test records of all classes: the mean over classes, weighed, is the whole.
        lacked = [one for one in querier["classes"] if one["class"] in querier["lacks"]]
        assert len(lacked) == len(querier["lacks"])
    assert figures["after"] == pytest.approx(np.mean([one["after"] for one in figures["queriers"]]))
    with (folder / "run" / "parties.csv").open() as file:
        parties = list(csv.DictReader(file))
    assert [row["party"] for row in parties if row["asks"] == "True"] == [one["party"] for one in figures["queriers"]]
    assert all(float(row["spent"]) <= float(row["cap"]) for row in parties)
    assert all(float(row["epsilon_guaranteed"]) <= float(row["epsilon"]) + 1e-9 for row in parties)
    assert {row["epsilon"] for row in parties} == {"10.0", "20.0"}


def test_the_report_says_what_each_epsilon_means_and_loads_nothing(folder, figures) -> None:
    page = (folder / "run" / "report.html").read_text()
    assert "with these labels. Asking ended as" in " ".join(page.split())
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))
    for words in ("all 2 querying parties together, colluding", "the guardian", "Not for release", "protects nobody"):
        assert words in text
    assert not re.search(r"(?:src|href)=[\"'](?!#)", page)
    for querier in figures["queriers"]:
        assert querier["party"] in text
    tomllib.loads((folder / "run" / "config.toml").read_text())


@pytest.mark.usefixtures("undrawn")
def test_the_same_command_again_trains_and_votes_nothing_and_gives_the_same(
    folder, figures, monkeypatch, capsys
) -> None:
    def nothing(*arguments, **keywords):
        raise AssertionError("this was cached")

    monkeypatch.setattr(ask_votes, "open_engine", nothing)
    monkeypatch.setattr(ask_votes, "fixed_point_votes", nothing)
    loud = [flag for flag in SMALL if flag != "--quiet"]
    assert run_command([*loud, "--cache-dir", str(folder / "cache"), "--out", str(folder / "again"), "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == figures == json.loads((folder / "again" / "summary.json").read_text())
    # What was not said and matters to privacy is said first.
    first = printed.err.splitlines()[0]
    assert "unit record (default), delta 1e-05 (default)" in first
    assert "over all queries of all 2 querying parties" in first


def test_an_interrupted_run_says_how_to_go_on_and_leaves_no_results(folder, monkeypatch, capsys) -> None:
    def interrupted(*arguments, **keywords):
        raise KeyboardInterrupt

    monkeypatch.setattr("simulations.ask.stages.retrain", interrupted)
    assert run_command([*SMALL, "--cache-dir", str(folder / "cache"), "--out", str(folder / "stopped")]) == 130
    assert "run the same command again" in capsys.readouterr().err
    assert not (folder / "stopped").exists()


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (["--queriers", "13"], 2, "queriers is 13"),
        (["--models", "random_forest"], 2, "random_forest"),
        (["--mechanism", "gnmax", "--threshold", "3"], 2, "--threshold has no effect on gnmax"),
        (["--dataset", "digits", "--private-size", "1000", "--unlabelled", "9999"], 2, "9999|19998"),
        (["--engine", "abacus"], 2, "abacus"),
        (["--dataset", "mnist", "--data-dir", "nowhere"], 3, "mnist"),
        (["--budgets", "0.1"], 5, "affords no round"),
    ],
)
def test_what_cannot_be_is_refused_by_number_before_anything_is_written(folder, capsys, flags, code, words) -> None:
    out = folder / "refused"
    assert run_command([*SMALL, "--cache-dir", str(folder / "cache"), "--out", str(out), *flags]) == code
    assert re.search(words, capsys.readouterr().err)
    assert not out.exists()


def test_a_folder_with_something_in_it_is_not_written_into(folder, capsys) -> None:
    assert run_command([*SMALL, "--cache-dir", str(folder / "cache"), "--out", str(folder / "run")]) == 2
    assert "not empty" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_heterogeneous_models_label_for_each_other_and_skewed_parties_gain(tmp_path, capsys) -> None:
    arguments = (
        "ask --parties 9 --queriers 3 --unlabelled 40 --skew 3 --private-size 2400 --budgets 40 --engine in_process "
        "--workers 1 --sigma 2 --threshold 5 --quiet --json"
    ).split()
    assert run_command([*arguments, "--cache-dir", str(tmp_path / "cache"), "--out", str(tmp_path / "run")]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert {one["kind"] for one in figures["models"]} == {one["model"] for one in figures["queriers"]} == {
        "logistic_regression", "mlp", "small_cnn",
    }  # fmt: skip
    assert all(one["agreement"] > 0.97 for one in figures["models"])
    assert figures["after"] > figures["before"]
