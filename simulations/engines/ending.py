"""Ends processes reliably: an engine returns only when all that it started is gone."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable


def end_all(processes: Iterable[subprocess.Popen[bytes]], *, within_s: float) -> None:
    """Waits for processes that were told to end; one still there after `within_s` seconds is killed."""
    for process in processes:
        try:
            process.wait(timeout=within_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
