"""conclave-simulate: many parties on one host. `python simulations/run.py --parties 250` is the same command.

This file is also a shim: when it is run as a script, its own folder must not be on the import path, where `datasets` or
`plan` would shadow other packages.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    _here = Path(__file__).resolve().parent
    sys.path[:] = [str(_here.parent), *(p for p in sys.path if Path(p or ".").resolve() != _here)]

# One BLAS and one torch thread per process, so that results do not depend on the number of cores.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")


def main() -> None:
    """Runs the command line; the process ends with its exit code."""
    try:
        from simulations.command import run_command
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(run_command(sys.argv[1:]))


if __name__ == "__main__":
    main()
