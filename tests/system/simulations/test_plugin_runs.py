"""The page's Gumbel noisy-max, installed beside Conclave: run, replay, plan, report and audit, with its own words."""

import html
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.harness.distributions import ROOT, example, install, install_gumbel

# Words of other mechanisms, and of other accountants, that nothing may say of this one.
OTHERS = re.compile("gauss|gnmax|lnmax|laplace", re.IGNORECASE)
RUNNER = """
import contextlib, json, sys
from simulations.commands.group import run_command
from tests.harness.undrawn import drawing_nothing
with contextlib.nullcontext() if sys.argv[2] == "drawn" else drawing_nothing():
    for arguments in json.loads(sys.argv[1]):
        print("exit", run_command(arguments), flush=True)
"""
DIGITS = "--dataset digits --parties 20 --engine in_process --workers 1 --no-attack --no-baselines".split()
# A student that has learned which class was released most often.
STUDENT = """
from dataclasses import dataclass

import numpy as np

from coordinator.students.student import Student, StudentKind


@dataclass(frozen=True)
class MostReleased(Student):
    answer: int
    classes: int

    def predict(self, inputs):
        return np.full(len(inputs), self.answer, dtype=np.int64)

    def predict_proba(self, inputs):
        return np.eye(self.classes, dtype=np.float32)[self.predict(inputs)]


class MostReleasedKind(StudentKind):
    def learn(self, released):
        return MostReleased(int(released.targets.sum(axis=0).argmax()), released.classes)


def student(*, device):
    return MostReleasedKind()
"""


def simulate(folder: Path, *commands: list[str], drawn: bool = False) -> tuple[list[str], str]:
    """What conclave-simulate prints for each of the commands in one fresh process, exit code last; and its errors."""
    paths = os.pathsep.join([str(folder), str(ROOT), str(ROOT / "tests" / "installed")])
    done = subprocess.run(
        [sys.executable, "-c", RUNNER, json.dumps([[*command, "--quiet"] for command in commands]), "drawn" * drawn],
        env={**os.environ, "PYTHONPATH": paths, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    return re.findall(r"(.*?exit \d+)\n", done.stdout, re.DOTALL), done.stderr


def text_of(page: Path) -> str:
    """What a reader sees of an HTML page, figures included."""
    shown = re.sub(r"<(style|script).*?</\1>", " ", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return html.unescape(re.sub(r"<[^>]+>", " ", shown))


@pytest.mark.slow
def test_a_mechanism_of_another_distribution_runs_replays_plans_reports_and_is_audited(tmp_path: Path) -> None:
    install_gumbel(tmp_path)
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, 400)
    votes = np.where(rng.random((40, 400)) < 0.85, truth, rng.integers(0, 3, (40, 400)))
    np.save(tmp_path / "votes.npy", votes.astype(np.int16))
    np.save(tmp_path / "truth.npy", truth)
    chosen = ["--mechanism", "gumbel_max", "--budgets", "2:0.5,4:0.5"]
    stored = ["--votes", str(tmp_path / "votes.npy"), "--votes-kind", "ids", "--labels", str(tmp_path / "truth.npy")]
    trained = [*DIGITS, "--student", "random_forest", "--cache-dir", str(tmp_path / "cache")]
    audited = ["audit", "--mechanism", "gumbel_max", "--noise", "fast", "--trials"]
    sweep = tmp_path / "sweep.toml"
    sweep.write_text('[base]\nmechanism = "gumbel_max"\nbudgets = "4"\n[grid]\nscale = [4.0, 12.0]\n')
    printed, errors = simulate(
        tmp_path,
        ["run", *trained, *chosen, "--out", str(tmp_path / "run")],
        ["run", *stored, *chosen, "--scale", "9", "--out", str(tmp_path / "replay")],
        ["plan", "--parties", "40", *chosen],
        ["plan", "--parties", "40", *chosen, "--json"],
        ["sweep", str(sweep), *stored, "--out", str(tmp_path / "sweep"), "--json"],
        [*audited, "2000"],
        [*audited, "5000", "--break", "half-noise"],
        [*audited, "20000", "--scale", "2", "--json"],
        drawn=True,
    )
    assert errors == ""
    run, replay, plan, plan_json, swept, audit, broken, wide = printed
    assert all(one.endswith("exit 0") for one in (run, replay, plan, plan_json, swept, audit, wide))
    for name, shown in (("run", run), ("replay", replay)):
        summary = json.loads((tmp_path / name / "summary.json").read_text())
        assert summary["answered"] > 0
        assert summary["label_accuracy"] > 0.8
        assert (summary["accountant"], summary["accounting"]) == ("renyi", "worst_case")
        assert summary["mechanism"]["name"] == "gumbel_max"
        assert "gumbel_max, worst_case" in shown
        page = text_of(tmp_path / name / "report.html")
        assert "Gumbel noisy-max: the class with the most noisy votes; Gumbel noise of scale" in page
        assert "worst case of Gumbel noisy-max (Cesar & Rogers 2021, Lemma 3.2)" in page
        assert not OTHERS.search(page)
        assert not OTHERS.search(shown)
        # Weighted votes: the larger budget weighs more, and both are guaranteed and used up together.
        poor, rich = summary["groups"]
        assert poor["weight"] < 1 < rich["weight"]
        assert poor["epsilon_guaranteed"] <= 2
        assert 2 < rich["epsilon_guaranteed"] <= 4
        assert min(poor["share_of_budget_used"], rich["share_of_budget_used"]) > 0.8
    assert json.loads((tmp_path / "replay" / "summary.json").read_text())["mechanism"]["scale"] == 9.0
    assert "gumbel_max, scale 5 votes, worst_case" in plan
    assert json.loads(plan_json.removesuffix("exit 0"))["scale"] == 5.0
    few, many = json.loads(swept.removesuffix("exit 0"))
    assert (few["scale"], many["scale"]) == (4.0, 12.0)
    assert few["answered"] < many["answered"]
    assert "passed" in audit
    assert not OTHERS.search(audit)
    assert broken.endswith("exit 8")
    (finding,) = json.loads(wide.removesuffix("exit 0"))["findings"]
    assert finding["noise"] == "scale 2"
    assert finding["lower_epsilon"] <= finding["exact_epsilon"] <= finding["claimed_epsilon"]
    assert finding["lower_epsilon"] > 0.5 * finding["claimed_epsilon"]


@pytest.mark.slow
def test_a_teacher_a_student_and_a_weight_rule_of_other_distributions_run_and_are_named(tmp_path: Path) -> None:
    for kind, name, source in (
        ("teachers", "majority:majority", example("The most frequent class")),
        ("students", "most_released:student", STUDENT),
        ("weight_rules", "halfway:HALFWAY", example("Halfway between")),
        ("accountants", "label_only_classic:CLASSIC", example("Renyi DP converted")),
        ("questions", "outermost:outermost", example("The records farthest")),
        ("encoders", "directions:encoder", example("The two directions")),
    ):
        module = name.partition(":")[0]
        install(tmp_path, name=module, group=f"conclave.{kind}", entries={module: name}, source=source)
    run = ["run", *DIGITS]
    run += ["--teacher", "majority", "--student", "most_released", "--weights", "halfway", "--budgets", "2:0.5,6:0.5"]
    # Such teachers hardly agree: every query is answered.
    run += ["--threshold", "0"]
    run += ["--cache-dir", str(tmp_path / "cache"), "--out", str(tmp_path / "run")]
    other = ["--accountant", "label_only_classic", "--questions", "outermost", "--out", str(tmp_path / "other")]
    printed, errors = simulate(
        tmp_path,
        run,
        [*run[:-1], str(tmp_path / "none"), "--weights", "quarter"],
        [*run[:-2], *other],
        ["encoder", "directions", "--dataset", "digits", "--out", str(tmp_path / "directions.onnx")],
        ["run", "--help"],
        ["run", "--accountant", "absent"],
    )
    assert [one[-1] for one in printed] == ["0", "2", "0", "0", "0", "2"]
    assert (tmp_path / "directions.onnx").stat().st_size > 0
    assert all(name in printed[4] for name in ("label_only_classic", "outermost"))
    assert "label_only_classic" in errors.partition("accountant is 'absent'")[2]
    counted, usual = (json.loads((tmp_path / name / "summary.json").read_text()) for name in ("other", "run"))
    assert counted["accounting"] == "worst_case_label_only_classic"
    assert counted["answered"] < usual["answered"]
    assert "'quarter' is not one of 'uniform', 'proportional', 'exhaustive', 'halfway'" in errors
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["answered"] > 0
    assert summary["weights"] == "halfway"
    assert [group["weight"] for group in summary["groups"]] == [0.75, 1.25]
    page = text_of(tmp_path / "run" / "report.html")
    assert "halfway: a vote weighs half of 1 and half in proportion to its party's ε" in page
    assert "majority, one per party" in page
    assert "most_released" in page
    # Another version of the teacher is trained anew, not read from the cache.
    code = tmp_path / "majority.py"
    code.write_text(code.read_text().replace("argmax()", "argmin()"))
    rerun = [*run[:-1], str(tmp_path / "changed")]
    assert [one[-1] for one in simulate(tmp_path, rerun)[0]] == ["0"]
    assert len(list((tmp_path / "cache" / "teachers").iterdir())) == 2
