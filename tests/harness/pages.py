"""The pages of documentation, and what a test reads in them: blocks, headings, sections, tables."""

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")]
OUTPUTS = ROOT / "docs" / "reference" / "outputs.md"
PAGES += sorted((ROOT / "docs").rglob("*.md")) + sorted((ROOT / "benchmarks").glob("*.md"))
RunPage = Callable[[Path], Path]
LANGUAGES = {"console", "bash", "toml", "text", "python"}
COMMANDS = {"console", "bash"}
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_NOT_RUN = re.compile(r"<!-- not run: (.+?) -->\n\Z", re.DOTALL)
_HEREDOC = re.compile(r"<<'(\w+)'$")
_LOOP = re.compile(r"for (\w+) in ([\w .-]+); do$")
_CALL = re.compile(
    r"conclave-(simulate|party|coordinator|guardian) ((?:[^|<>$&;\\`]|\"\$\(python \w+\.py \w+\)\")+?)"
    r"(?: (>>?) ([\w.-]+))?(?: \|\| test \$\? (?:=|-eq) (\d+))?$"
)
SUBSTITUTED = re.compile(r"\$\((python \w+\.py \w+)\)")
_AFTER = re.compile(r"<!-- after: (\S+) -->")
BACKGROUND = re.compile(r" &\s*\Z")


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


def after(page: Path) -> Path | None:
    """The page whose folder and running commands this page goes on with, as its comment `after: PAGE` says."""
    match = _AFTER.search(page.read_text(encoding="utf-8"))
    return None if match is None else (page.parent / match[1]).resolve()


@dataclass(frozen=True)
class Call:
    """A line that only calls one of the programs, and the exit code that the page says it has.

    into: the file that takes its standard output, None for none; mode: whether it is written anew or added to. An
    argument may be what a script prints (SUBSTITUTED).
    """

    program: str
    arguments: list[str]
    code: int
    into: str | None
    mode: Literal["w", "a"]


def steps(block: Block) -> Iterator[Call | str]:
    """A block as calls of the programs, where a line is no more than that, and as shell scripts; loops unrolled."""
    lines = iter(block.text.splitlines())
    for line in lines:
        script = [line]
        if loop := _LOOP.match(line):
            body = "\n".join(takewhile(lambda inner: inner != "done", lines))
            for value in loop[2].split():
                text = re.sub(rf"\${loop[1]}\b", value, body).replace("\n  ", "\n").removeprefix("  ")
                yield from steps(replace(block, text=text))
            continue
        while script[-1].endswith("\\"):
            script.append(next(lines))
        joined = " ".join(each.removesuffix("\\").strip() for each in script)
        if call := _CALL.match(joined):
            yield Call(call[1], shlex.split(call[2]), int(call[5] or 0), call[4], "a" if call[3] == ">>" else "w")
            continue
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


def keys(value: object, name: str = "") -> set[str]:
    """The keys of a JSON value, with dots for objects and [] for lists of objects."""
    if isinstance(value, dict):
        return {one for key, inner in value.items() for one in keys(inner, f"{name}.{key}".lstrip("."))}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return {one for inner in value for one in keys(inner, f"{name}[]")}
    return {name}


def names_of(listed: str) -> set[str]:
    """The names in backquotes in the first column of a table, or before the colon of a list's points."""
    cells = re.findall(r"^(?:\| ([^|]+) \||- (`[^`]+`(?:`[^`]+`|[^`:\n]|\n  (?=`))*): )", listed, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", "".join(cell))}
