"""What commands print: tables, JSON, and commands to paste, with the --home that the person gave to this one."""

from __future__ import annotations

import json
import os
import re
import shlex
import textwrap
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

import click

# Up to here a command of a sentence goes at most.
_SENTENCE: Final = re.compile(r"[.:;,)`](?:\s|$)|$|\n")


def without_flags(seats: Iterable[str]) -> str:
    """The flags by which a command to paste does without these seats."""
    return " ".join(f"--without {shlex.quote(seat)}" for seat in seats)


def say_next(text: str, *, err: bool = False) -> None:
    """Prints the line `next:` with what to do; its commands name the home that the running command was given."""
    click.echo(f"next: {pasteable(text)}", err=err)


def pasteable(text: str) -> str:
    """The text, in which the commands of the running program name the home that was given on its command line.

    A home of the environment or the default is left out, as it holds for the next command too.
    """
    return _pasting(lambda given: given)(text)


def pasting_on_page() -> Callable[[str], str]:
    """What makes a text pasteable from now on, in any thread; the home is an absolute path, as a page has no folder."""
    return _pasting(os.path.abspath)


def _pasting(path: Callable[[str], str]) -> Callable[[str], str]:
    context = click.get_current_context(silent=True)
    if context is None:
        return str
    root = context.find_root()
    given: object = (root.obj or {}).get("home")
    if given is None or not isinstance(root.command, click.Group):
        return str
    return partial(with_home, group=root.command, program=root.info_name or "", home=path(str(given)))


def with_home(text: str, *, group: click.Group, program: str, home: str) -> str:
    """The text with `--home HOME` after each command of `program` in it that takes one and does not name it yet."""

    def replaced(found: re.Match[str]) -> str:
        command: click.Command | None = group
        end = found.start(1)
        for word in re.finditer(r" ([a-z-]+)", found[1]):
            inner = command.get_command(click.Context(group), word[1]) if isinstance(command, click.Group) else None
            if inner is None:
                break
            command, end = inner, found.start(1) + word.end()
        assert command is not None  # as the loop ends where there is none
        rest = text[end:]
        sentence = rest[: match.start()] if (match := _SENTENCE.search(rest)) else rest
        if not any(each.name == "home" for each in command.params) or "--home" in sentence:
            return found[0]
        return f"{text[found.start() : end]} --home {shlex.quote(home)}{text[end : found.end()]}"

    return re.sub(rf"\b{re.escape(program)}((?: [a-z-]+)+)", replaced, text)


_WIDTH: Final = 80
# A heading and the blanks to the column of what is said; or the blanks alone, of a line that goes on.
_HEADING: Final = re.compile(r"\w+(?: \w+)* {2,}| {5,}")


def print_json(value: object) -> None:
    """Prints one JSON document."""
    click.echo(json.dumps(value, indent=2))


def text_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
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


def wrapped(text: str, rest: str = "", *, first: str = "") -> str:
    """A line folded to 80 columns, but never within a word, as paths are copied. first, rest: how the lines begin."""
    return textwrap.fill(
        text, _WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False, break_long_words=False
    )


def folded_under(text: str) -> str:
    """A line folded to 80 columns: what follows a heading in columns of its own stays in its column."""
    heading = _HEADING.match(text)
    return wrapped(text, " " * (len(heading[0]) if heading else len(text) - len(text.lstrip()) + 2))
