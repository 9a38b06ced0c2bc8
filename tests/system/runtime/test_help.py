"""What --help of every command does without; benchmarks/help_times.py measures the time that it takes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from protocols.installing import install
from runtime.distribution import BRINGS

# What computes, draws, talks to a network or reads keys. Flags of the simulator name the mechanisms that there are,
# which need NumPy; those of the other programs need none of it.
_HEAVY = (
    "scipy.special scipy.stats scipy.optimize pandas pyarrow torch matplotlib sklearn onnxruntime grpc cryptography "
    "flwr ray jinja2 pydantic rich sqlite3"
).split()
_PROGRAMS = {
    "party.commands.group": [*_HEAVY, "numpy"],
    "coordinator.commands.group": [*_HEAVY, "numpy"],
    "guardian.commands": [*_HEAVY, "numpy"],
    "simulations.commands.group": _HEAVY,
}
_SHOW_EVERY_HELP = """
import importlib, sys
import click

def show(command, words):
    context = click.Context(command, info_name=words)
    command.get_help(context)
    shown = [words]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            shown += show(command.get_command(context, name), f"{words} {name}")
    return shown

print(len(show(importlib.import_module(sys.argv[1]).cli, "program")))
print(*[name for name in sys.argv[2:] if name in sys.modules])
"""
# Every command with the least that its flags ask for, where no package of any extra but click is installed.
_RUN_EVERY_COMMAND = """
import importlib, importlib.abc, sys
import click

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[2:]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
module = importlib.import_module(sys.argv[1])

def given(flag):
    value = flag.type.choices[0] if isinstance(flag.type, click.Choice) else "x"
    return [*flag.opts[:1] * isinstance(flag, click.Option), *[value] * max(1, flag.nargs)]

def run(command, words):
    context = click.Context(command)
    if isinstance(command, click.Group):
        return sum(run(command.get_command(context, name), [*words, name]) for name in command.list_commands(context))
    said = [word for flag in command.params if flag.required for word in given(flag)]
    assert module.run_command([*words, *said]) in (2, 3, 4, 130), words
    return 1

print(run(module.cli, []))
"""


@pytest.mark.parametrize("module", _PROGRAMS)
def test_no_help_imports_what_only_a_run_needs(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SHOW_EVERY_HELP, module, *_PROGRAMS[module]], capture_output=True, text=True, check=True
    )
    commands, imported = done.stdout.split("\n")[:2]
    assert int(commands) > 7
    assert imported == ""


@pytest.mark.parametrize("module", _PROGRAMS)
def test_without_the_packages_of_an_extra_no_command_ends_in_a_traceback(module: str, tmp_path: Path) -> None:
    missing = {package for brought in BRINGS.values() for package in brought} - {"click"}
    done = subprocess.run(
        [sys.executable, "-c", _RUN_EVERY_COMMAND, module, *missing],
        capture_output=True, text=True, cwd=tmp_path, stdin=subprocess.DEVNULL,
        env={**os.environ, "HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    assert int(done.stdout.splitlines()[-1]) > 7
    if module.startswith("simulations"):
        # The standard encoder needs an extra of its own.
        extras = (install("sim"), install("torch"))
        hints = [line for line in done.stderr.splitlines() if any(extra in line for extra in extras)]
        # One command refuses a file of no known kind first.
        assert len(hints) >= int(done.stdout.splitlines()[-1]) - 1
