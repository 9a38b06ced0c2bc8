"""A run at level hidden_queries: a hospital outside the roster asks about records of its own."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from simulations.commands.group import run_command
from simulations.stages import cast
from tests.harness.engine_here import running_here

SMALL = (
    "run --confidentiality hidden_queries --parties 12 --queries 20 --private-size 900 --partition dirichlet:5 "
    "--budgets 10:0.5,20:0.5 --engine in_process --workers 1 --seeds 0-1 --sigma 3 --threshold 5 --no-baselines --quiet"
).split()

pytestmark = pytest.mark.usefixtures("undrawn")


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


def test_what_asking_brings_and_costs_is_in_the_summary(folder, figures):
    asker = figures["asker"]
    assert (figures["parties"], figures["confidentiality"], figures["units"]) == (12, "hidden_queries", 64)
    assert (asker["model"], asker["input_bound"], figures["student"]) == ("logistic_regression", 1.0, "none")
    assert asker["after"] - asker["before"] == pytest.approx(asker["gain"])
    assert 0.95 < asker["agreement"] <= 1
    assert "asker" in figures["not_for_release"]
    # The hospital that asks has records that no party has.
    rows = np.genfromtxt(folder / "run" / "parties.csv", delimiter=",", names=True, dtype=None, encoding="utf-8")
    assert sum(rows["records"]) + asker["own_records"] == 900
    assert all(rows["epsilon_spent"] <= rows["epsilon"])
    labels = pq.read_table(folder / "run" / "queries.parquet").to_pandas()
    assert labels.answered.sum() == pytest.approx(2 * figures["answered"])
    assert labels.groupby(["seed", "batch"]).size().max() <= 10


def test_the_same_command_again_trains_and_votes_nothing_and_gives_the_same(folder, figures, monkeypatch):
    def nothing(*arguments, **keywords):
        raise AssertionError("this was cached")

    monkeypatch.setattr(cast, "fixed_point_votes", nothing)
    assert run_command([*SMALL, "--cache-dir", str(folder / "cache"), "--out", str(folder / "again")]) == 0
    assert json.loads((folder / "again" / "summary.json").read_text()) == figures


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        (["--teacher", "random_forest"], 2),
        (["--teachers-per-party", "2"], 2),
        (["--individualization", "upsampling"], 2),
        (["--votes-by", "record"], 2),
        (["--mechanism", "interactive_gnmax"], 2),
        (["--input-bound", "0"], 2),
        (["--confidentiality", "clear", "--input-bound", "2"], 2),
        (["--budgets", "0.1", "--sigma", "1"], 5),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_is_written(folder, flags, code):
    out = folder / "refused"
    assert run_command([*SMALL, "--cache-dir", str(folder / "cache"), "--out", str(out), *flags]) == code
    assert not out.exists()


@pytest.mark.slow
def test_a_hospital_with_skewed_classes_gains(tmp_path, capsys):
    arguments = (
        "run --confidentiality hidden_queries --parties 9 --queries 60 --private-size 2400 --partition dirichlet:3 "
        "--budgets 40 --teacher mlp --engine in_process --workers 1 --sigma 1 --threshold 4 --no-baselines --quiet "
        "--json"
    ).split()
    assert run_command([*arguments, "--cache-dir", str(tmp_path / "cache"), "--out", str(tmp_path / "run")]) == 0
    asker = json.loads(capsys.readouterr().out)["asker"]
    assert asker["agreement"] > 0.97
    assert asker["after"] > asker["before"]
