"""How each program starts, before anything heavy is imported."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import NoReturn


def run(commands: str) -> NoReturn:
    """Runs the command line of this module, which has `run_command`; the process ends with its exit code.

    One BLAS and one torch thread, unless the environment says otherwise, so that teachers, students and results do not
    depend on the number of cores.
    """
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    try:
        run_command = import_module(commands).run_command
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(run_command(sys.argv[1:]))
