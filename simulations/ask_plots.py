"""Figures of `ask`."""

from __future__ import annotations

from pathlib import Path

from simulations.ask_results import Summary


def write_ask_figures(figures: Summary, out: Path) -> list[Path]:
    """Writes every figure."""
    return []
