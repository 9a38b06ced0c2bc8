"""What a tracker is given, with stand-ins for its packages, which are optional; and that nothing else imports them."""

import contextlib
import json
import sys
from types import SimpleNamespace

import pytest

from tests.harness.simulating import run

pytestmark = pytest.mark.usefixtures("undrawn")


def kept_mlflow(kept):
    """A module that keeps what mlflow would send."""

    @contextlib.contextmanager
    def start_run(*, run_name):
        kept.append(run_name)
        yield

    return SimpleNamespace(
        set_tracking_uri=kept.append,
        start_run=start_run,
        log_params=kept.append,
        log_metrics=lambda figures, *, step: kept.append((step, figures)),
    )


def kept_tensorboard(kept):
    """A module that keeps what tensorboardX would write."""

    def writer(folder):
        return SimpleNamespace(
            add_text=lambda *said: kept.append(said),
            add_scalar=lambda *figure: kept.append(figure),
            close=lambda: kept.append(folder),
        )

    return SimpleNamespace(SummaryWriter=writer)


def test_a_run_in_mlflow_has_its_settings_its_summary_and_each_seed(stored, tmp_path, monkeypatch):
    kept = []
    monkeypatch.setitem(sys.modules, "mlflow", kept_mlflow(kept))
    assert run(*stored, "--budgets", "2", "--seeds", "3-4", "--track", "mlflow:http://here", "--out", "out") == 0
    uri, name, settings, (step, figures), *seeds = kept
    assert (uri, name, settings["budgets"], step) == ("http://here", "out", "2", 3)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert figures["label_accuracy"] == summary["label_accuracy"]
    assert figures["not for release/plurality_accuracy"] == summary["plurality_accuracy"]
    assert "plurality_accuracy" not in figures
    assert [(at, each["seed/answered"]) for at, each in seeds] == [
        (one["seed"], one["answered"]) for one in summary["seeds"]
    ]


def test_a_sweep_in_tensorboard_has_a_run_for_each_setting(stored, tmp_path, monkeypatch):
    kept = []
    monkeypatch.setitem(sys.modules, "tensorboardX", kept_tensorboard(kept))
    (tmp_path / "sweep.toml").write_text("[grid]\nsigma = [10.0, 20.0]\n")
    flags = ["budgets=2", *stored, "--track", "tensorboard:logs", "--seeds", "0-1", "--out", "out"]
    assert run("sweep", "sweep.toml", *flags) == 0
    assert [each for each in kept if isinstance(each, str)] == ["logs/out-0", "logs/out-1"]
    answered = [(value, step) for name, value, step in (e for e in kept if len(e) == 3) if name == "answered"]
    assert [step for _, step in answered] == [0, 1, 0, 1]
    assert all(value > 0 for value, _ in answered)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("wandb", "--track is 'wandb'; allowed: mlflow"),
        ("tensorboard", "tensorboard:FOLDER"),
        ("mlflow", "--track mlflow needs mlflow, which is not installed"),
    ],
)
def test_a_tracker_that_is_not_there_is_refused_before_anything_runs(
    stored, tmp_path, monkeypatch, capsys, text, reason
):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    assert run(*stored, "--track", text, "--out", "out") == 2
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_tracker_that_fails_is_one_error_and_the_results_stay(stored, tmp_path, monkeypatch, capsys):
    failing = kept_mlflow([])
    failing.log_params = lambda settings: 1 / 0
    monkeypatch.setitem(sys.modules, "mlflow", failing)
    assert run(*stored, "--budgets", "2", "--track", "mlflow", "--out", "out") == 6
    assert "cannot track mlflow:" in capsys.readouterr().err
    assert (tmp_path / "out" / "report.html").exists()
    # Without the flag neither package is imported.
    monkeypatch.setitem(sys.modules, "mlflow", None)
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    assert run(*stored, "--budgets", "2", "--out", "plain") == 0
