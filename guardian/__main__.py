"""conclave-guardian: the command of the second server's administrator."""

from __future__ import annotations

import os
import sys

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")


def main() -> None:
    """Runs the command line; the process ends with its exit code."""
    try:
        from guardian.commands import run_command
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(run_command(sys.argv[1:]))


if __name__ == "__main__":
    main()
