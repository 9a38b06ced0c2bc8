"""Votes of teachers and votes of records at the same budgets: what each gives a student, by the number of hospitals.

    python benchmarks/which_votes.py --dataset adult --parties 50,250 --epsilons 1,8

All runs are of `conclave-simulate run` with the same data, parties, seeds and kind of student. Teachers are logistic
regressions, asked by GNMax with noise of several shares of the number of hospitals; the noise whose student is best is
shown, which favours teachers, as nobody knows it beforehand. Records vote with the usual queries, for which nothing is
to choose. Accuracies are of the test part of one split, over seeds of noise and student.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import tempfile
from pathlib import Path
from typing import Any

from simulations.commands.group import run_command

# Noise that is tried where teachers vote, as shares of the number of hospitals.
_NOISES = (0.1, 0.2, 0.4, 0.8, 1.6)


def main() -> None:
    """One line for each way of voting, number of parties and budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--parties", default="8,50,250")
    parser.add_argument("--partition", default="iid")
    parser.add_argument("--epsilons", default="1,8")
    parser.add_argument("--teacher", default="logistic_regression")
    parser.add_argument("--student", help="of both ways [the usual one of each]")
    parser.add_argument("--seeds", default="0-2")
    asked = parser.parse_args()
    for parties in asked.parties.split(","):
        for epsilon in asked.epsilons.split(","):
            where = f"{asked.dataset} {parties:>5} parties, epsilon {epsilon:>4}"
            studies = [
                _figures(asked, parties, epsilon, "--teacher", asked.teacher, "--mechanism", "gnmax", "--sigma", sigma)
                for sigma in (f"{share * int(parties):g}" for share in _NOISES)
            ]
            best = max((study for study in studies if study), key=_accuracy, default=None)
            noise = f", sigma {best['mechanism']['sigma']:g}" if best else ""
            print(f"{where}, teachers: {_line(best)}{noise}", flush=True)
            print(f"{where}, records:  {_line(_figures(asked, parties, epsilon, '--votes-by', 'record'))}", flush=True)


def _figures(asked: argparse.Namespace, parties: str, epsilon: str, *flags: str) -> dict[str, Any] | None:
    """The summary of a run; None where its budgets afford nothing."""
    given = ["--data-dir", str(asked.data_dir)] if asked.data_dir else []
    given += ["--student", asked.student] if asked.student else []
    given += ["--partition", asked.partition, "--seeds", asked.seeds, "--engine", "in_process", "--workers", "1"]
    with tempfile.TemporaryDirectory() as folder:
        return _command(
            "run", "--dataset", asked.dataset, "--parties", parties, "--budgets", epsilon, *given, *flags,
            "--no-attack", "--no-baselines", "--json", "--quiet", "--out", str(Path(folder) / "run"),
        )  # fmt: skip


def _command(*words: str) -> dict[str, Any] | None:
    """What a command of conclave-simulate prints; None if it refuses."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        code = run_command(list(words))
    if code:
        return None
    found: dict[str, Any] = json.loads(printed.getvalue())
    return found


def _accuracy(run: dict[str, Any]) -> float:
    return float(run["student_accuracy"] or 0.0)


def _line(run: dict[str, Any] | None) -> str:
    if run is None:
        return "no label"
    labels = f"{run['answered']:6.0f} released, labels {_shown(run, 'label_accuracy')}"
    return f"{labels}; {run['student']} {_shown(run, 'student_accuracy')}"


def _shown(run: dict[str, Any], name: str) -> str:
    if run[name] is None:
        return "-"
    half = run[f"{name}_ci95"]
    return f"{run[name]:.3f}" + (f" +- {half:.3f}" if half is not None else "")


if __name__ == "__main__":
    main()
