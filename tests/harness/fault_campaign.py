"""A campaign of generated fault sequences over all kinds of studies (fault_kinds.py), and the counts of what was tried.

    python -m tests.harness.fault_campaign --sequences 100000 --seed 1 --out counts.json

A study in which a promise is broken is named in the output by kind and number: `--only KIND --first NUMBER
--sequences 1` with the same seed runs it again.
"""

import argparse
import itertools
import json
import random
import subprocess
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

from tests.harness.fault_kinds import kinds
from tests.harness.fault_sequences import study_of

# How often each kind of study is drawn: a circuit takes 0.1 s, and a study of records has one batch.
WEIGHTS = {"clear": 100, "secure_sum": 10, "two_server": 1, "hidden_queries": 1}
RECORDS = 6


def weight(name: str) -> int:
    """How often a kind of study is drawn."""
    return RECORDS if name.endswith("records") else WEIGHTS[name.split(",")[0]]


def chosen(seed: int, number: int, only: str) -> str:
    """The kind of the study of this number."""
    names = [name for name in kinds() if only in name]
    draw = random.Random(f"{seed} {number}")
    return draw.choices(names, weights=[weight(name) for name in names])[0]


def summary(tried: Counter[str], broken: set, failed: list[str], given: argparse.Namespace, began: float) -> dict:
    """What is written: counts, and how many different statements of which ledgers failed how."""
    places = Counter(f"{role}, {how}" for _, role, how, _ in broken)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "commit": commit.stdout.strip(),
        "seed": given.seed,
        "first": given.first,
        "minutes": round((time.monotonic() - began) / 60, 1),
        "tried": dict(sorted(tried.items())),
        "statements that failed, by kind of study": dict(sorted(places.items())),
        "broken promises": failed,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequences", type=int, required=True, help="stop after so many")
    parser.add_argument("--minutes", type=float, default=1e6, help="or after so many minutes")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--first", type=int, default=0, help="the number of the first study")
    parser.add_argument("--only", default="", help="kinds of studies whose name contains this")
    parser.add_argument("--out", type=Path, help="a JSON file for the counts, written anew every ten seconds")
    given = parser.parse_args()
    tried: Counter[str] = Counter()
    broken: set = set()
    failed: list[str] = []
    began = last = time.monotonic()
    for number in itertools.count(given.first):
        name = chosen(given.seed, number, given.only)
        try:
            tried["sequences"] += study_of(name, f"{given.seed} {number}", tried, broken)
            tried["studies"] += 1
        except AssertionError:
            failed.append(f"{name}, number {number}:\n{traceback.format_exc(limit=-4)}")
        now = time.monotonic()
        over = tried["sequences"] >= given.sequences or now - began > 60 * given.minutes
        if given.out and (over or now - last > 10):
            last = now
            given.out.write_text(json.dumps(summary(tried, broken, failed, given, began), indent=1))
        if over:
            break
    print(json.dumps(summary(tried, broken, failed, given, began), indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
