"""The sub-command sweep as a person uses it: each of its rows is a run, and what it writes, keeps and refuses."""

import json

import pandas as pd
import pytest

from simulations.stages.cast import cast_votes
from simulations.sweep import cells
from tests.harness.simulating import run

pytestmark = pytest.mark.usefixtures("undrawn")
WAYS = ("weighting", "vanishing", "secret-vanishing", "upsampling")


def swept(capsys, *arguments):
    assert run("sweep", *arguments, "--json", "--quiet") == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.usefixtures("here")
def test_every_row_of_a_sweep_is_the_run_of_the_same_settings_which_resume_finds_again(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONCLAVE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("simulations.stages.vote_source._FIRST_CAST", 20)
    monkeypatch.setitem(cast_votes.__kwdefaults__, "block", 20)
    base = {"dataset": "breast_cancer", "parties": 10, "budgets": "6:0.5,12:0.5", "seeds": "0-1", "private_size": 240}
    base |= {"sigma": 2.4, "threshold": 7.0}
    (tmp_path / "study.toml").write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in base.items()))
    sweep = ["study.toml", f"individualization=[{','.join(WAYS)}]", "--engine", "in_process"]
    rows = swept(capsys, *sweep, "--parallel", "--out", "s")
    assert len(list((tmp_path / "s" / "finished").iterdir())) == 4
    kept = {path.name: path.read_bytes() for path in (tmp_path / "s" / "finished").iterdir()}
    assert swept(capsys, *sweep, "--out", "one") == rows
    assert {path.name: path.read_bytes() for path in (tmp_path / "one" / "finished").iterdir()} == kept
    assert [row["answered"] > 0 for row in rows] == [True] * 8
    for way in WAYS:
        flags = ["--quiet", "--engine", "in_process", "--out", way, "--json"]
        said = ["study.toml", f"individualization={way}", "student=none", "baselines=false"]
        assert run("run", *said, *flags) == 0
        alone = json.loads(capsys.readouterr().out)
        own = [row for row in rows if row["individualization"] == way]
        for key in ("seed", "asked", "answered", "label_accuracy"):
            assert [row[key] for row in own] == [seed[key] for seed in alone["seeds"]], (way, key)
        assert {row["study_digest"] for row in own} == {alone["study_digest"]}
        assert max(row["epsilon_spent_max"] for row in own) == alone["epsilon_max"]
        assert {row["epsilon_guaranteed_max"] for row in own} == {alone["epsilon_guaranteed_max"]}
    assert run("run", "--resume", *flags) == 0
    assert json.loads(capsys.readouterr().out) == alone
    # At most 20 of the pool of 150 are asked, and no more were voted on.
    assert {path.name for path in (tmp_path / "cache" / "votes").rglob("*.npy")} == {"0-20.npy"}


@pytest.mark.usefixtures("here")
def test_a_sweep_repeats_over_partitions_and_goes_on_where_it_was_stopped(stored, tmp_path, monkeypatch, capsys):
    (tmp_path / "sweep.toml").write_text('[base]\nseeds = "0-1"\ndata_seed = "0-2"\n[grid]\nsigma = [10.0, 20.0]\n')
    flags = ["sweep.toml", 'budgets="1:0.5,3:0.5"', *stored, "--out", "out"]
    flags[1] = "budgets=1:0.5,3:0.5"
    label, labelled = cells.labelled_source, []

    def stopped(*arguments):
        labelled.append(1)
        if len(labelled) == 8:
            raise KeyboardInterrupt
        return label(*arguments)

    monkeypatch.setattr(cells, "labelled_source", stopped)
    assert run("sweep", *flags) == 130
    assert "--resume --out out" in capsys.readouterr().err
    assert run("sweep", *flags, "sigma=[5.0]", "--resume") == 2
    assert "other settings" in capsys.readouterr().err
    labelled[:] = [1] * 8
    # Side by side too, what is finished is kept, and what was finished before is not run again.
    labelled[4:] = []
    assert run("sweep", *flags, "--resume", "--parallel", "--engine", "in_process") == 130
    assert "--resume --out out" in capsys.readouterr().err
    labelled[:] = [1] * 8
    rows = swept(capsys, *flags, "--resume", "--parallel", "--engine", "in_process")
    assert len(labelled) == 8 + 4  # four of six settings and partitions were kept, each of two seeds
    assert [(row["setting"], row["data_seed"], row["seed"]) for row in rows] == [
        (setting, part, seed) for setting in range(2) for part in range(3) for seed in range(2)
    ]
    assert rows == swept(capsys, "out/sweep.toml", *stored, "--out", "again")
    table = pd.read_parquet(tmp_path / "out" / "sweep.parquet")
    pd.testing.assert_frame_equal(table, pd.DataFrame(rows)[list(table)], check_dtype=False)
    settings = pd.read_csv(tmp_path / "out" / "intervals.csv")
    for number, of_setting in table.groupby("setting"):
        means = of_setting.groupby("data_seed")["answered"].mean()
        half = 4.302652730 * means.std(ddof=1) / 3**0.5  # the 0.975 quantile of Student's t with two degrees of freedom
        assert settings["answered_low"][number] == pytest.approx(means.mean() - half)
        assert settings["answered_high"][number] == pytest.approx(means.mean() + half)
    assert {"report.html", "figures", "env.json", "sweep.csv"} <= {path.name for path in (tmp_path / "out").iterdir()}
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Student&#x27;s t over 3 data seeds" in page
    assert {path.name for path in (tmp_path / "out" / "figures").iterdir()} == {"sweep.svg", "sweep.png", "sweep.pdf"}


def test_settings_of_one_study_are_run_once_and_the_best_at_each_epsilon_is_said(stored, tmp_path, capsys):
    (tmp_path / "sweep.toml").write_text('[grid]\nbudgets = ["2", "4"]\nweights = ["uniform", "exhaustive"]\n')
    assert run("sweep", "sweep.toml", *stored[:-1], "--out", "out") == 0
    said = capsys.readouterr()
    assert "settings 0, 1 are the same study" in said.err
    assert "weights = uniform, and of 1 other setting" in " ".join(said.out.split())
    assert "best at ε 4:" in said.out
    rows = pd.read_csv(tmp_path / "out" / "sweep.csv")
    assert rows["study_digest"].nunique() == 2
    assert len([*(tmp_path / "out" / "finished").iterdir()]) == 2
    assert rows["answered"][0] == rows["answered"][1]


def test_what_affords_nothing_says_so_and_several_grids_are_one_sweep(stored, tmp_path, capsys):
    (tmp_path / "sweep.toml").write_text(
        '[[grid]]\nmechanism = ["gnmax"]\nsigma = [10.0, 0.5]\n'
        '[[grid]]\nmechanism = ["lnmax"]\ngamma = [0.05]\nunit = ["party"]\n'
    )
    assert run("sweep", "sweep.toml", "budgets=2", *stored[:-1], "--out", "out") == 0
    said = capsys.readouterr()
    assert "1 of the settings afford nothing: epsilon 2 at delta 1e-05 affords no query" in " ".join(said.out.split())
    assert "No intervals: one seed and one partition" in said.out
    assert "run it   conclave-simulate run" in said.err
    rows = pd.read_csv(tmp_path / "out" / "sweep.csv")
    assert rows["unit"].tolist() == ["record", "record", "party"]
    assert rows["answered"].gt(0).tolist() == [True, False, True]
    assert rows["note"].notna().tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[base]\nparties = 3\n", "varies nothing"),
        ("[grid]\nsigma = 3\n", "a list of at least one value"),
        ("[grid]\nsigma = []\n", "a list of at least one value"),
        ("[grid]\nsize = [1]\n", "unknown setting 'size'"),
        ("[grid]\nsigma = [4.0, -1.0]\n", "sigma = -1.0: sigma is -1.0; allowed"),
        ("[grid]\nseeds = [0, 1]\n", "allowed: seeds in [base]"),
        ("[more]\na = 1\n[grid]\nsigma = [1.0]\n", "allowed: [base] and [grid]"),
        ('[base]\nweights = "uniform"\n[grid]\nindividualization = ["weighting", "vanishing"]\n',
         "individualization = vanishing: weights is 'uniform'; allowed: with individualization 'weighting'"),
        ('[grid]\nmechanism = ["lnmax", "gnmax"]\ngamma = [0.1]\n', "gamma is 0.1, which gnmax does not use"),
        ('[grid]\naccountant = ["gaussian,papernot2018"]\n', "papernot2018 adds figures that a sweep does not have"),
        ("[base]\nattack = true\n[grid]\nsigma = [1.0]\n", "attack adds figures"),
        ("[grid\n", "is not TOML"),
    ],
)  # fmt: skip
def test_a_sweep_with_a_setting_that_run_would_refuse_is_refused_before_anything_runs(
    stored, tmp_path, capsys, text, reason
):
    (tmp_path / "sweep.toml").write_text(text)
    assert run("sweep", "sweep.toml", *stored, "--out", "out") == 2
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
