"""The default run as a person starts it: time and peak memory, with nothing cached and with cached votes.

    python benchmarks/default_run.py [--engine flower] [--engine in_process]

Runs `simulations/run.py --parties 250` in fresh cache folders: first with nothing cached, then again with other
budgets (so that everything after the votes is done anew). Memory is the peak, over samples twice a second, of the
proportional set size of the whole process tree, so that memory shared by workers counts once.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent


def run(out: Path, cache: Path, engine: str, *flags: str) -> tuple[float, float, dict[str, object]]:
    """Seconds, peak memory in GiB, and the summary of one run."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "simulations/run.py", "--parties", "250", "--engine", engine, "--out", str(out), *flags],
        cwd=ROOT,
        env={**os.environ, "CONCLAVE_CACHE": str(cache)},
        stdout=subprocess.DEVNULL,
    )
    peak = 0
    while process.poll() is None:
        total = 0
        for member in [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]:
            try:
                total += member.memory_full_info().pss
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        peak = max(peak, total)
        time.sleep(0.5)
    seconds = time.perf_counter() - start
    assert process.returncode == 0, process.returncode
    return seconds, peak / 2**30, json.loads((out / "summary.json").read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", action="append", choices=["flower", "in_process"])
    engines = parser.parse_args().engine or ["flower", "in_process"]
    for engine in engines:
        with tempfile.TemporaryDirectory() as folder:
            base = Path(folder)
            for title, flags in (("nothing cached", ()), ("cached votes, other budgets", ("--budgets", "1:0.5,4:0.5"))):
                seconds, peak, summary = run(base / title.split(",")[0], base / "cache", engine, *flags)
                print(
                    f"{engine}, {title}: {seconds:.1f} s, peak {peak:.2f} GiB; {summary['answered']} labels, "
                    f"label accuracy {summary['label_accuracy']:.3f}, student {summary['student_accuracy']:.3f}, "
                    f"mean teacher {summary['teacher_accuracy_mean']:.3f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
