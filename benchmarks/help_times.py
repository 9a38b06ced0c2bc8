"""Processor time of --help of every command, in seconds: the minimum over some runs, each in its own process.

python benchmarks/help_times.py [--runs 3]     prints one line per program: the slowest command and its time
"""

from __future__ import annotations

import argparse
import importlib
import resource
import subprocess
import sys
from collections.abc import Iterator

import click

PROGRAMS = {
    "conclave-party": ("party.commands.group", ["-m", "party"]),
    "conclave-coordinator": ("coordinator.commands.group", ["-m", "coordinator"]),
    "conclave-guardian": ("guardian.commands", ["-m", "guardian"]),
    "conclave-simulate": ("simulations.commands.group", ["simulations/run.py"]),
}


def commands(command: click.Command, words: list[str]) -> Iterator[list[str]]:
    """The words of a command, and of every command below it."""
    yield words
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None:
                yield from commands(inner, [*words, name])


def processor_s(arguments: list[str], *, runs: int) -> float:
    """The least user and system time of a process with these arguments."""
    times = []
    for _ in range(runs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    print(f"python alone: {processor_s(['-c', 'pass'], runs=runs):.3f} s")
    print(f"import conclave: {processor_s(['-c', 'import conclave'], runs=runs):.3f} s")
    for program, (module, start) in PROGRAMS.items():
        times = {
            " ".join(words) or "--help": processor_s([*start, *words, "--help"], runs=runs)
            for words in commands(importlib.import_module(module).cli, [])
        }
        slowest = max(times, key=lambda words: times[words])
        print(f"{program}: {len(times)} helps, at most {times[slowest]:.3f} s ({slowest})")


if __name__ == "__main__":
    main()
