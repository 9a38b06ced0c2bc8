"""The pages of documentation, and what a test reads in them: blocks, headings, sections, tables."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
RunPage = Callable[[Path], Path]
LANGUAGES = {"console", "bash", "toml", "text", "python"}
COMMANDS = {"console", "bash"}
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_NOT_RUN = re.compile(r"<!-- not run: (.+?) -->\n\Z", re.DOTALL)
_HEREDOC = re.compile(r"<<'(\w+)'$")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, text, line, and why it is not run (None: it is)."""

    language: str
    text: str
    line: int
    not_run: str | None


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(text):
        before = text[: match.start()]
        reason = _NOT_RUN.search(before)
        found.append(Block(match[1], match[2], before.count("\n") + 1, reason and reason[1]))
    return found


def steps(block: Block) -> Iterator[list[str] | str]:
    """A block as arguments of conclave-simulate, where a line is no more than that, and as shell scripts."""
    lines = iter(block.text.splitlines())
    for line in lines:
        plain = line.startswith("conclave-simulate ") and not re.search(r"[|<>$&;\\`]", line)
        if plain:
            yield shlex.split(line)[1:]
            continue
        script = [line]
        if heredoc := _HEREDOC.search(line):
            for inner in lines:
                script.append(inner)
                if inner == heredoc[1]:
                    break
        yield "\n".join(script) + "\n"


def slug(heading: str) -> str:
    """A heading's anchor, as GitHub makes it."""
    kept = re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower())
    return kept.strip().replace(" ", "-")


def section(page: Path, heading: str) -> str:
    """What stands under a heading, up to the next one of any level."""
    parts = re.split(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return parts[parts.index(heading) + 1]


def names_of(table: str) -> set[str]:
    """The names in backquotes in the first column of a table."""
    cells = re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}
