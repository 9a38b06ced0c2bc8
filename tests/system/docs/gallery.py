"""The images of docs/gallery.md, each made by the command that the page shows above it.

poe gallery     runs the commands in a temporary folder and makes docs/images/gallery/ again

Of each image the page says which figure of a command it is (`figure: PATH`). An image follows its viewer into the dark,
as the pages of reports do.
"""

import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from runtime.page import inlined
from tests.harness.pages import ROOT, blocks

PAGE = ROOT / "docs" / "gallery.md"
_SHOWN = re.compile(r"^!\[([^\]]+)\]\((images/gallery/[\w-]+\.svg)\)\n<!-- figure: (\S+) -->$", re.MULTILINE)


@dataclass(frozen=True)
class Shown:
    """An image of the page: what is said instead of it, its file, and the figure that it is, as a command names it."""

    alt: str
    image: Path
    figure: str


def shown() -> list[Shown]:
    """The images of the page, in its order."""
    return [Shown(alt, PAGE.parent / image, figure) for alt, image, figure in _SHOWN.findall(PAGE.read_text("utf-8"))]


def alone(svg: str, *, name: str, alt: str) -> str:
    """A figure's SVG as a file that brings its colours for light and dark, and its background, with it."""
    look = (files("runtime") / "look.css").read_text(encoding="utf-8")
    colours = look[look.index(":root") : look.index("* {")]
    inner = inlined(svg, name=name, alt=alt)
    head, rest = inner.split(">", 1)
    return (
        f'{head} xmlns="http://www.w3.org/2000/svg">\n<style>\n{colours}</style>\n'
        f'<rect width="100%" height="100%" fill="var(--page)"/>{rest}\n'
    )


def make() -> None:
    """Runs every command of the page, and writes every image."""
    with tempfile.TemporaryDirectory() as folder:
        for block in blocks(PAGE):
            subprocess.run(["bash", "-euo", "pipefail", "-c", block.text], cwd=folder, check=True)
        for each in shown():
            svg = (Path(folder) / each.figure).read_text(encoding="utf-8")
            each.image.parent.mkdir(parents=True, exist_ok=True)
            each.image.write_text(alone(svg, name=each.image.stem, alt=each.alt), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(make())
