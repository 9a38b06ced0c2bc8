"""Plans beside runs, and warnings beside labels: the tables of twelve studies, with the usual settings and one seed.

    python benchmarks/twelve.py --out runs/twelve [--sets digits,heart_disease] [--parties 10,50,250] [--printed 4]

Of each data set and number of parties it runs `plan --votes-by record`, `run --votes-by record` and `run`, and prints a
row of tests/vectors/measured/plans.csv, whose tables are in docs/how-to/let-records-vote.md and
docs/explanation/right-labels.md. --printed: of so many studies, the first ones, the commands that `plan` and a refusal
print are run, too. Started again with the same --out, it goes on with what is there. garments needs
`pip install ./benchmarks`.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

SETS, PARTIES = "digits,adult,garments,heart_disease", "10,50,250"
# What stands in the warnings and doubts of a run, and its word in the table.
WORDS = {"many labels will be wrong": "wrong", "may be noise": "noise", "the released labels name": "class"}
HEAD = "dataset,parties,expected,spread,found,labels,right,student,teacher,warned,plan_cpu_s"


def simulate(arguments: str) -> tuple[int, str, str]:
    """The exit code, stdout and stderr of a command of conclave-simulate."""
    done = subprocess.run(
        [sys.executable, "-m", "simulations.run", *shlex.split(arguments)], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


def figure(value: Any, digits: int = 4) -> str:
    """A cell: nothing for None."""
    return "" if value is None else str(round(value, digits))


def study(data: str, parties: int, out: Path, *, printed: bool) -> str:
    """One row."""
    about = f"--dataset {data} --parties {parties}"
    began = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    code, said, wrong = simulate(f"plan {about} --votes-by record --json")
    cost = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - began
    assert code == 0, wrong
    plan = json.loads(said)
    low, high = plan["gain_interval"]
    found = {}
    for votes, flags in (("record", "--votes-by record"), ("teacher", "")):
        folder = out / f"{data}-{parties}-{votes}"
        again = "--resume" if (folder / "config.toml").exists() else ""
        code, told, errors = simulate(f"run {about} {flags} --out {folder} {again}")
        (out / f"{data}-{parties}-{votes}.txt").write_text(told + errors)
        found[votes] = json.loads((folder / "summary.json").read_text()) if code == 0 else {}
        commands = re.findall(r"run it +(conclave-simulate .*)", told + errors)
    if printed:
        for number, command in enumerate([plan["command"], *commands]):
            again = out / f"{data}-{parties}-printed-{number}"
            code, _, errors = simulate(f"{command.removeprefix('conclave-simulate ')} --out {again}")
            print(f"exit {code}: {command}" + (f"\n{errors[-400:]}" if code else ""), file=sys.stderr, flush=True)
    records, teachers = found["record"], found["teacher"]
    alone = (records["baselines"][name] for name in ("single_party_accuracy_mean", "majority_class_accuracy"))
    gain = records["student_accuracy"] - max(alone)
    teacher = teachers.get("teacher_accuracy_mean", records["baselines"]["single_party_accuracy_mean"])
    words = " ".join((told + errors).split())
    warned = "" if teachers else "refused"
    for sentence, word in WORDS.items():
        warned = warned or (word if sentence in words else "")
    spread = (((high - low) / 2 / 1.96) ** 2 - 0.04**2) ** 0.5
    return ",".join([
        data, str(parties), figure(plan["gain"]), figure(spread), figure(gain), figure(teachers.get("answered", 0)),
        figure(teachers.get("label_accuracy")), figure(teachers.get("student_accuracy")), figure(teacher), warned,
        figure(cost, 1),
    ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sets", default=SETS, help=f"between commas [{SETS}]")
    parser.add_argument("--parties", default=PARTIES, help=f"between commas [{PARTIES}]")
    parser.add_argument("--printed", type=int, default=0, help="of so many studies printed commands are run [0]")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    print(HEAD, flush=True)
    left = asked.printed
    for parties in map(int, asked.parties.split(",")):
        for data in asked.sets.split(","):
            print(study(data, parties, asked.out, printed=left > 0), flush=True)
            left -= 1


if __name__ == "__main__":
    main()
