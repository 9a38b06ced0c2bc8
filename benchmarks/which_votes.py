"""Votes of teachers and votes of records at the same budgets: what each gives a student, by the number of hospitals.

    python benchmarks/which_votes.py --dataset adult --parties 8,50,250 --epsilons 1,8 --accuracy 0.84

Each pair of runs is of `conclave-simulate run` with the same data, parties, seeds and kind of student. Teachers are
logistic regressions (networks for images), asked with the noise and threshold that `plan --optimise` finds for the
expected --accuracy of a teacher; records vote with the usual queries, for which nothing is to choose. Accuracies are of
the test part, over seeds of noise and student.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import tempfile
from pathlib import Path
from typing import Any

from simulations.commands.group import run_command


def main() -> None:
    """One line for each way of voting, number of parties and budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--parties", default="8,50,250")
    parser.add_argument("--partition", default="iid")
    parser.add_argument("--epsilons", default="1,8")
    parser.add_argument("--classes", default="2", help="of the data set; for the plan")
    parser.add_argument("--accuracy", default="0.85", help="of one teacher, as expected; for the plan")
    parser.add_argument("--teacher", default="logistic_regression")
    parser.add_argument("--student", help="of both ways [the usual one of each]")
    parser.add_argument("--seeds", default="0-2")
    asked = parser.parse_args()
    for parties in asked.parties.split(","):
        for epsilon in asked.epsilons.split(","):
            where = f"{asked.dataset} {parties:>5} parties, epsilon {epsilon:>4}"
            noise = _noise(asked, parties, epsilon)
            if noise is None:
                print(f"{where}, teachers: no plan gives labels as good as one teacher's", flush=True)
            else:
                teachers = _figures(asked, parties, epsilon, "--teacher", asked.teacher, *noise)
                print(f"{where}, teachers: {_line(teachers)}", flush=True)
            print(f"{where}, records:  {_line(_figures(asked, parties, epsilon, '--votes-by', 'record'))}", flush=True)


def _noise(asked: argparse.Namespace, parties: str, epsilon: str) -> list[str] | None:
    """The flags of the plan that gives the most from these budgets; None where there is none."""
    try:
        plan = _plan(asked, parties, epsilon)
    except SystemExit:
        return None
    flags = re.findall(r"(--(?:sigma-threshold|sigma|threshold|answer-rate)) (\S+)", plan["command"])
    return [word for pair in flags for word in pair]


def _plan(asked: argparse.Namespace, parties: str, epsilon: str) -> dict[str, Any]:
    return _command(
        "plan", "--optimise", "--parties", parties, "--budgets", epsilon, "--classes", asked.classes,
        "--accuracy", asked.accuracy, "--json",
    )  # fmt: skip


def _figures(asked: argparse.Namespace, parties: str, epsilon: str, *flags: str) -> dict[str, Any]:
    """The summary of a run."""
    given = ["--data-dir", str(asked.data_dir)] if asked.data_dir else []
    given += ["--student", asked.student] if asked.student else []
    given += ["--partition", asked.partition, "--seeds", asked.seeds, "--engine", "in_process", "--workers", "1"]
    with tempfile.TemporaryDirectory() as folder:
        return _command(
            "run", "--dataset", asked.dataset, "--parties", parties, "--budgets", epsilon, *given, *flags,
            "--no-attack", "--no-baselines", "--json", "--quiet", "--out", str(Path(folder) / "run"),
        )  # fmt: skip


def _command(*words: str) -> dict[str, Any]:
    """What a command of conclave-simulate prints."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        code = run_command(list(words))
    if code:
        raise SystemExit(code)
    found: dict[str, Any] = json.loads(printed.getvalue())
    return found


def _line(run: dict[str, Any]) -> str:
    labels = f"{run['answered']:6.0f} released, labels {_shown(run, 'label_accuracy')}"
    return f"{labels}; {run['student']} {_shown(run, 'student_accuracy')}"


def _shown(run: dict[str, Any], name: str) -> str:
    if run[name] is None:
        return "-"
    half = run[f"{name}_ci95"]
    return f"{run[name]:.3f}" + (f" +- {half:.3f}" if half is not None else "")


if __name__ == "__main__":
    main()
