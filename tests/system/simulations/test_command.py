"""The command line as a person uses it: exit codes, refusals before anything is spent, resuming, JSON."""

import csv
import json
import tomllib

import numpy as np
import pyarrow.parquet as pq
import pytest

from protocols.errors import EngineFailed, InvalidInput, StorageFailed
from simulations.setup.budgets import parse_budgets
from tests.harness.refusals import refuses
from tests.harness.simulating import run


def test_a_replay_writes_everything_that_a_run_promises(stored, tmp_path, capsys):
    assert run("run", *stored, "--budgets", "1:0.5,3:0.5", "--seeds", "0-2", "--out", "out", "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary == json.loads((tmp_path / "out" / "summary.json").read_text())
    assert (summary["parties"], summary["queries"]) == (60, 400)
    assert summary["accounting"] == "worst_case_label_only"
    assert (summary["unit"], summary["view"], summary["adjacency"]) == ("record", "label", "replace-one")
    assert [group["budget"] for group in summary["groups"]] == [1.0, 3.0]
    for group in summary["groups"]:
        assert group["epsilon_spent"] <= group["epsilon_guaranteed"] <= group["budget"]
        assert 0.9 < group["share_of_budget_used"] <= 1
    assert summary["live_checked"]
    assert summary["exhausted_first"]
    table = pq.read_table(tmp_path / "out" / "queries.parquet").to_pydict()
    first = np.array(table["seed"]) == 0
    labels = np.array(table["label"])[first]
    assert (labels >= 0).sum() == summary["seeds"][0]["answered"]
    assert np.array_equal(np.array(table["answered"])[first], labels >= 0)
    lines = (tmp_path / "out" / "parties.csv").read_text().splitlines()
    assert len(lines) == 61
    assert {"config.toml", "env.json", "report.html", "figures"} <= {p.name for p in (tmp_path / "out").iterdir()}
    assert tomllib.loads((tmp_path / "out" / "config.toml").read_text())["budgets"] == "1:0.5,3:0.5"
    assert not [p for p in (tmp_path / "out").rglob("*") if p.name.startswith(".")]


@pytest.mark.usefixtures("undrawn")
def test_the_run_sub_command_is_the_default_and_config_toml_repeats_a_run(stored, tmp_path, capsys):
    assert run(*stored, "--budgets", "2", "--out", "a", "--json") == 0
    first = json.loads(capsys.readouterr().out)
    assert run(*stored, "--budgets", "2", "--out", "b", "--json") == 0
    assert json.loads(capsys.readouterr().out) == first


@pytest.mark.usefixtures("undrawn")
def test_resume_goes_on_in_the_same_folder_and_refuses_another_config(stored, capsys):
    assert run(*stored, "--budgets", "2", "--out", "a", "--json") == 0
    first = json.loads(capsys.readouterr().out)
    assert run(*stored, "--budgets", "2", "--out", "a") == 2
    assert "is not empty" in capsys.readouterr().err
    assert run(*stored, "--budgets", "2", "--out", "a", "--resume", "--json") == 0
    assert json.loads(capsys.readouterr().out) == first
    assert run(*stored, "--budgets", "3", "--out", "a", "--resume") == 2
    assert "started with budgets = '2', not '3'" in capsys.readouterr().err
    assert run(*stored, "--resume") == 2
    assert run("--resume", "--out", "absent", "--quiet") == 2


@pytest.mark.parametrize(
    ("flags", "code", "reason"),
    [
        (["--budgets", "-1"], 2, "epsilon is -1.0; allowed: finite and > 0"),
        (["--delta", "0"], 2, "delta is 0.0; allowed"),
        (["--sigma", "0"], 2, "sigma is 0.0; allowed: a finite number of votes > 0"),
        (["--classes", "5"], 2, "allowed: class ids in [0, 4]"),
        (["--parties", "59"], 2, "parties is 59; allowed: 60, whose votes"),
        (["--labels", "votes.npy"], 2, "one dimension"),
        (["--accountant", "moments"], 2, "allowed: exact_composition, label_only, gaussian"),
        (["--view", "histogram", "--accountant", "label_only"], 2, "does not hold for view 'histogram'"),
        (["--mechanism", "confident_gnmax", "--view", "histogram", "--sigma-threshold", "3"], 2, "leave it out"),
        (["--seeds", "0,0"], 2, "each seed once"),
        (["--workers", "0"], 2, "workers is 0; allowed: at least 1"),
        (["--quorum", "61"], 2, "quorum is 61; allowed: at most the 60 parties"),
        (["--dropout", "1"], 2, "dropout is 1.0; allowed"),
        (["--votes", "absent.npy"], 3, "absent.npy does not exist"),
        (["--votes", "broken.npy"], 4, "is not an array of numbers"),
        (["--budgets", "1", "--sigma", "0.5"], 5, "affords no query"),
        (["--surprise"], 2, "--surprise"),
    ],
)
def test_bad_input_is_one_clear_error_and_leaves_nothing_behind(stored, tmp_path, capsys, flags, code, reason):
    (tmp_path / "broken.npy").write_bytes(b"\x93NUMPY broken")
    assert run(*stored, "--out", "out", *flags) == code
    captured = capsys.readouterr()
    assert reason in captured.err
    assert "Traceback" not in captured.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("flags", "code", "reason"),
    [
        (["--dataset", "cifar"], 2, "allowed: glyphs, clear_glyphs, "),
        (["--student", "oracle"], 2, "or none to stop after the labels"),
        (["--engine", "slurm"], 2, "allowed: flower, in_process"),
        (["--parties", "3000"], 2, "3000"),
        (["--dataset", "mnist", "--data-dir", "nowhere"], 3, "mnist"),
    ],
)
def test_unknown_names_list_the_known_before_anything_is_trained(tmp_path, monkeypatch, capsys, flags, code, reason):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONCLAVE_CACHE", str(tmp_path / "cache"))
    flags = ["--dataset", "digits", "--engine", "in_process", "--parties", "20", "--budgets", "8", *flags]
    assert run(*flags, "--quiet", "--out", "out") == code
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "cache" / "teachers").exists()


@pytest.mark.usefixtures("undrawn")
def test_resume_notices_that_a_file_it_names_has_changed(stored, tmp_path, capsys):
    budgets = tmp_path / "budgets.csv"
    lines = [f"hospital {i},{2 + i % 2},1e-5" for i in range(60)]
    budgets.write_text("\n".join(["party,epsilon,delta", *lines]))
    flags = [*stored, "--budgets", "budgets.csv", "--out", "out"]
    assert run(*flags) == 0
    assert run(*flags, "--resume") == 0
    budgets.write_text("\n".join(["party,epsilon,delta", *lines]).replace(",3,", ",2,"))
    assert run(*flags, "--resume") == 2
    assert "another study" in capsys.readouterr().err
    budgets.write_text("\n".join(["party,epsilon,delta", *lines]))
    np.save("votes.npy", np.load("votes.npy")[:, ::-1])
    assert run(*flags, "--resume") == 2
    assert "another data" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [["--student", "cnn"], ["--dataset", "digits"], ["--teacher", "mlp"]])
def test_flags_that_stored_votes_make_idle_are_refused(stored, capsys, flags):
    assert run(*stored, *flags, "--budgets", "2") == 2
    assert "has no effect with --votes" in capsys.readouterr().err


@pytest.mark.usefixtures("here", "undrawn")
def test_a_table_gets_a_student_for_tables_and_a_broken_cache_is_made_again(tmp_path, monkeypatch, capsys):
    """The whole of a small run on real data (no file), twice: the second finds its cache in pieces."""
    monkeypatch.chdir(tmp_path)
    flags = ["--dataset", "breast_cancer", "--parties", "20", "--budgets", "8", "--engine", "in_process", "--quiet"]
    flags += ["--cache-dir", "cache", "--json"]
    assert run(*flags, "--out", "a") == 0
    first = json.loads(capsys.readouterr().out)
    assert first["student"] == "logistic_regression"
    assert first["seeds"][0]["student_choice"]["why"] == "usual for table rows with fewer than 500 labels"
    assert first["noise_by_default"]
    assert first["answered"] > 0
    assert first["student_accuracy"] > 0.6
    with (tmp_path / "a" / "parties.csv").open() as file:
        gains = [float(row["not for release: gain"]) for row in csv.DictReader(file)]
    baselines = first["baselines"]
    assert sum(gain > 0 for gain in gains) == baselines["single_parties_that_gain"]
    alone = baselines["single_party_accuracy_mean"]
    assert sum(gains) / 20 == pytest.approx(first["student_accuracy"] - alone)
    # Of the 100 test records, as students and single parties are.
    assert baselines["majority_class_accuracy"] in [right / 100 for right in range(50, 101)]
    for path in [*tmp_path.glob("cache/votes/*/*.npy"), *tmp_path.glob("cache/teachers/*/private_inputs.npy")]:
        path.write_bytes(path.read_bytes()[:100])
    for path in tmp_path.glob("cache/students/*.json"):
        path.write_text('{"accuracy": 7}')
    assert run(*flags, "--out", "b") == 0
    assert json.loads(capsys.readouterr().out) == first
    # A damaged teacher is named and removed, and the next run trains it again.
    teacher = sorted(tmp_path.glob("cache/teachers/*/teacher-3-0*"))[0]
    teacher.write_bytes(b"broken")
    for path in tmp_path.glob("cache/votes/*/*.npy"):
        path.unlink()
    assert run(*flags, "--out", "c") == 4
    assert "run the command again" in capsys.readouterr().err
    assert run(*flags, "--out", "d") == 0
    assert json.loads(capsys.readouterr().out) == first


def test_a_cache_that_cannot_be_used_is_a_storage_fault(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    flags = ["--dataset", "breast_cancer", "--parties", "20", "--budgets", "8", "--engine", "in_process", "--quiet"]
    assert run(*flags, "--cache-dir", "file", "--out", "a") == 6
    assert "choose another --cache-dir" in capsys.readouterr().err


def test_real_hospitals_keep_their_names_and_their_own_budgets(tmp_path):
    """by-site: a budgets file is matched by name, in any order, and must name every site."""
    names = ("cleveland", "hungarian", "switzerland", "va")
    path = tmp_path / "budgets.csv"
    path.write_text("party,epsilon,delta\nva,4,1e-5\ncleveland,1,1e-5\nswitzerland,3,1e-6\nhungarian,2,1e-5\n")
    budgets = parse_budgets(str(path), parties=4, delta=1e-5, seed=0, names=names)
    assert budgets.names == names
    assert budgets.epsilon.tolist() == [1, 2, 3, 4]
    assert budgets.delta.tolist() == [1e-5, 1e-5, 1e-6, 1e-5]
    with refuses(InvalidInput, "boston"):
        parse_budgets(str(path), parties=4, delta=1e-5, seed=0, names=("boston", *names[1:]))


def test_faults_of_disk_and_engine_have_their_own_exit_codes(stored, monkeypatch, capsys):
    def raising(error):
        def fail(*arguments, **keywords):
            raise error

        return fail

    monkeypatch.setattr("simulations.pipeline.run", raising(StorageFailed("the disk is full")))
    assert run(*stored, "--out", "a") == 6
    monkeypatch.setattr("simulations.pipeline.run", raising(EngineFailed("a worker died")))
    assert run(*stored, "--out", "b") == 7
    monkeypatch.setattr("simulations.pipeline.run", raising(KeyboardInterrupt()))
    assert run(*stored, "--out", "c") == 130
    assert "--resume" in capsys.readouterr().err
