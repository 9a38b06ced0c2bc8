"""The exit codes as the help of conclave-simulate prints them; runtime/exits.py has them."""

from __future__ import annotations

from pathlib import Path

EXIT_CODES = (
    "Exit codes: 0 done; 2 a value or flag is wrong; 3 a data set is absent; 4 a file is corrupt; 5 a budget affords "
    "nothing; 6 the disk; 7 the engine; 8 an audit found more leakage than claimed; 130 interrupted."
)
# Only a run has a folder to continue in; what other commands trained is in the cache.
EXIT_CODES_OF_RUN = EXIT_CODES.removesuffix(".") + " (continue with --resume)."


class Interrupted(KeyboardInterrupt):
    """Ctrl-C in a run whose folder is known."""

    def __init__(self, out: Path) -> None:
        super().__init__()
        self.out = out
