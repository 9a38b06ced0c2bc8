"""conclave-simulate: many parties on one host. `python simulations/run.py --parties 250` is the same command.

This file is also a shim: when it is run as a script, its own folder must not be on the import path, where `datasets` or
`plan` would shadow other packages.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    _here = Path(__file__).resolve().parent
    sys.path[:] = [str(_here.parent), *(p for p in sys.path if Path(p or ".").resolve() != _here)]

from runtime.distribution import run_program  # after the path is set


def main() -> None:
    """Runs the command line; the process ends with its exit code."""
    run_program("simulations.commands.group")


if __name__ == "__main__":
    main()
