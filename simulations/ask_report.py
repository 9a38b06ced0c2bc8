"""report.html of `ask`."""

from __future__ import annotations

from pathlib import Path

from simulations.ask_results import Summary
from simulations.ask_settings import AskSettings


def write_ask_report(figures: Summary, settings: AskSettings, out: Path) -> None:
    """Writes out/report.html."""
