"""How each program starts, before anything heavy is imported."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Final, NoReturn

# The extra that brings what each program needs.
_EXTRAS: Final = {"party": "party", "coordinator": "coordinator", "guardian": "party", "simulations": "sim"}


def run(commands: str) -> NoReturn:
    """Runs the command line of this module, which has `run_command`; the process ends with its exit code.

    One BLAS and one torch thread, unless the environment says otherwise, so that teachers, students and results do not
    depend on the number of cores.
    """
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    # gRPC's C++ code writes to standard error, between the lines of a program's own log, what that log says too.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        run_command = import_module(commands).run_command
    except KeyboardInterrupt:
        sys.exit(130)
    except ModuleNotFoundError as missing:
        # Without click there is no command line that could say it.
        from runtime.distribution import lacking

        package = commands.partition(".")[0]
        print(f"error: {lacking(missing, f'the program {package}', _EXTRAS[package])}", file=sys.stderr)
        sys.exit(3)
    sys.exit(run_command(sys.argv[1:]))
