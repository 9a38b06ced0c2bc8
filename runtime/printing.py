"""What commands print: plain-text tables, and JSON."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Sequence
from typing import Final

import click

_WIDTH: Final = 80
# A heading and the blanks to the column of what is said; or the blanks alone, of a line that goes on.
_HEADING: Final = re.compile(r"\w+(?: \w+)* {2,}| {5,}")


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


def folded(text: str, indent: str) -> str:
    """A line folded to 80 columns, but never within a word, as paths are copied; indent: of all lines but the first."""
    return textwrap.fill(text, _WIDTH, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)


def folded_under(text: str) -> str:
    """A line folded to 80 columns: what follows a heading in columns of its own stays in its column."""
    heading = _HEADING.match(text)
    return folded(text, " " * (len(heading[0]) if heading else len(text) - len(text.lstrip()) + 2))
