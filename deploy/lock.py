"""Writes requirements/*.txt: every version and hash that a release installs, from pyproject.toml, for every platform.

    pip install uv && python deploy/lock.py

Versions that are locked stay unless `--upgrade` is given. tests/unit/test_locks.py holds them against pyproject.toml.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
# What each file installs: the extras of pyproject.toml. party.txt and coordinator.txt are those of the containers, and
# of the roles hospital and operator.
LOCKS = {
    "party": ("party", "sklearn", "onnx", "parquet"),
    "party-all": ("party", "sklearn", "torch", "onnx", "parquet", "images", "sql", "dicom"),
    "guardian": ("party",),
    "officer": ("verify",),
    "physician": ("verify", "onnx"),
    "coordinator": ("coordinator", "sklearn"),
    "coordinator-torch": ("coordinator", "torch"),
    "simulator": ("sim", "sklearn", "torch", "accounting"),
}
# What builds a wheel of the project itself.
BUILD = "build"
_HEADER = "# Made by deploy/lock.py; install with: pip install --require-hashes --requirement {name}\n"


def lock(name: str, arguments: list[str], source: str, *, upgrade: bool) -> None:
    """Writes one file. source: what is compiled, "-" for the build's own requirements."""
    path = ROOT / "requirements" / f"{name}.txt"
    command = [
        "uv", "pip", "compile", source, *arguments, "--universal", "--python-version", "3.11", "--generate-hashes",
        "--no-header", "--no-annotate", "--no-config", "--quiet", "--output-file", str(path),
        *(["--upgrade"] if upgrade else []),
    ]  # fmt: skip
    subprocess.run(command, check=True, cwd=ROOT, input="setuptools>=77\nwheel\n" if source == "-" else "", text=True)
    path.write_text(_HEADER.format(name=path.relative_to(ROOT)) + path.read_text(encoding="utf-8"), encoding="utf-8")


def main() -> None:
    upgrade = "--upgrade" in sys.argv[1:]
    for name, extras in LOCKS.items():
        lock(name, [word for extra in extras for word in ("--extra", extra)], "pyproject.toml", upgrade=upgrade)
    lock(BUILD, [], "-", upgrade=upgrade)


if __name__ == "__main__":
    main()
