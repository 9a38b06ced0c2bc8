"""What commands print: plain-text tables, and JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence

import click


def print_json(value: object) -> None:
    """Prints one JSON document."""
    click.echo(json.dumps(value, indent=2))


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A plain-text table with aligned columns, words to the left and numbers to the right."""
    cells = [[_cell(cell) for cell in row] for row in rows]
    numeric = [all(isinstance(row[at], int | float) for row in rows) for at in range(len(columns))]
    widths = [max(len(row[at]) for row in [list(columns), *cells]) for at in range(len(columns))]
    return "\n".join(
        "  ".join(
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(row, widths, numeric, strict=True)
        ).rstrip()
        for row in [list(columns), *cells]
    )


def _cell(cell: object) -> str:
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)
