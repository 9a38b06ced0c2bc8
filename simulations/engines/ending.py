"""Ends processes reliably: an engine returns only when all that it started is gone."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable


def end_all(processes: Iterable[subprocess.Popen[bytes]], *, within_s: float) -> None:
    """Waits for processes that were told to end; kills those that still run after `within_s` seconds."""
    for process in processes:
        try:
            process.wait(timeout=within_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
