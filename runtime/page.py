"""Pages for people, each one file of HTML: what every page shares, with the standard library alone.

A page opens with its verdict: what it means for its reader. Programs with a template engine frame what their templates
make with `document`; a hospital's node puts the parts together itself. Figures of Matplotlib are inlined without a
background, in colours that follow the page into the dark.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from typing import Final, Literal

Tone = Literal["plain", "good", "warn"]
# Of a guarantee, by what it is called (protocols/claims/strength.py); any other warns.
TONES: Final[dict[str, Tone]] = {"strong": "good", "moderate": "plain"}
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def document(*, title: str, kind: str, body: str, footer: str = "", study: str = "", language: str = "en") -> str:
    """A whole page as HTML: title, the kind of page in words, body (HTML), and a footer (HTML, "" for none).

    The body holds the page's verdict first, and its own <section> and <h2>. study: its digest in hexadecimal digits,
    "" for none, which stands on each printed page; language: the page's, as HTML names it.
    """
    printed = f'@page {{ @bottom-left {{ content: "study {study[:16]}"; }} }}' if _DIGEST.fullmatch(study) else ""
    lines = [
        "<!DOCTYPE html>", f'<html lang="{language}">', "<head>", '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">', '<meta name="referrer" content="no-referrer">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        f"<title>Conclave: {text(title)}</title>", f"<style>{_look()}{printed}</style>", "</head>", "<body>",
        f'<header><p class="kind">Conclave · {text(kind)}</p>', f"<h1>{text(title)}</h1></header>",
        "<main>", _COLUMNS.sub(_named, body), "</main>",
    ]  # fmt: skip
    return "\n".join([*lines, *([f"<footer>{footer}</footer>"] if footer else []), "</body>", "</html>", ""])


_DIGEST = re.compile(r"[0-9a-f]{16,}")
# A table that folds on a telephone; its cells are this project's own markup, and what they say is escaped.
_COLUMNS = re.compile(r'<table class="folds">.*?</table>', re.DOTALL)
_HEAD = re.compile(r'<th scope="col"[^>]*>(.*?)</th>', re.DOTALL)
_ROW = re.compile(r"<tr>.*?</tr>", re.DOTALL)
# From so many columns on, besides the first, a table is set smaller, or it would not fit the page.
_WIDE = 9


def _named(found: re.Match[str]) -> str:
    """The table, with each cell named by its column: on a telephone the heading is out of sight. The first cell names
    its row, and is named only where it is a number.
    """
    head, start, rows = found[0].partition("<tbody>")
    first, *names = [re.sub(r"<[^>]*>|\s+", " ", name).strip() for name in _HEAD.findall(head)]

    def row(each: re.Match[str]) -> str:
        left = iter(names)
        named = re.sub(r"<td\b", lambda cell: f'<td data-name="{next(left)}"', each[0])
        return re.sub(r'<th scope="row"(?=[^>]*>[\d,.]+</th>)', f'<th scope="row" data-name="{first}"', named)

    if len(names) >= _WIDE:
        head = head.replace('class="folds"', 'class="folds wide"', 1)
    return head + start + _ROW.sub(row, rows)


@cache
def _look() -> str:
    return (files("runtime") / "look.css").read_text(encoding="utf-8")


def verdict(says: str, points: Iterable[tuple[str, str]] = (), *, tone: Tone = "plain") -> str:
    """The first thing on a page: one sentence, then points, each a name and what is said of it ("" for no name).

    tone: "warn" where somebody must act or decide, "good" where nothing needs them.
    """
    lines = [f'<section class="verdict {tone}" aria-label="In short">', f'<p class="says">{text(says)}</p>']
    said = [(f"<strong>{text(name)}</strong> " if name else "") + text(words) for name, words in points]
    lines += ["<ul>", *(f"<li>{each}</li>" for each in said), "</ul>"] if said else []
    return "\n".join([*lines, "</section>"])


def annex(name: str, body: str) -> str:
    """What not every reader needs, folded; on paper it is an annex, on pages of its own. body: HTML."""
    return f'<details class="annex"><summary>{text(name)}</summary>\n{body}\n</details>'


def folded_list(name: str, body: str) -> str:
    """A long list, folded; on paper it is left out unless somebody opened it. body: HTML."""
    return f"<details><summary>{text(name)}</summary>\n{body}\n</details>"


def strip(steps: Iterable[tuple[str, int, int]]) -> str:
    """Steps of a study from the left to the right, each with how many of how many are there; of one thing, whether."""
    lines = ['<ol class="strip" aria-label="Where the study stands">']
    for name, there, of in steps:
        state = "done" if there >= of > 0 else "open"
        shown = f"{there} of {of}" if of != 1 else "done" if there else "not yet"
        lines.append(f'<li class="{state}"><span class="name">{text(name)}</span> {shown}</li>')
    return "\n".join([*lines, "</ol>"])


@dataclass(frozen=True)
class Bar:
    """A cell of a table that is drawn as a bar, too: a share in [0, 1], and what is written on it."""

    share: float
    words: str


def cards(figures: Iterable[tuple[str, str | None, str]]) -> str:
    """Headline figures: name, value (None: not measured), and a note below."""
    lines = ['<ul class="cards" aria-label="Headline figures">']
    for name, value, under in figures:
        shown = "not measured" if value is None else text(value)
        lines.append(
            f'<li><span class="name">{text(name)}</span><span class="value{" none" * (value is None)}">{shown}</span>'
            f'<span class="under">{text(under)}</span></li>'
        )
    return "\n".join([*lines, "</ul>"])


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[object]], *, words: Collection[int] = ()) -> str:
    """A table whose first column names the rows; on a telephone each row folds into lines. words: the positions of
    columns that hold sentences."""
    side = ["words" if at in words else "" for at in range(len(head))]
    lines = ['<div class="scroll" role="region" tabindex="0" ' + f'aria-label="{text(caption)}">']
    lines += ['<table class="folds">', f"<caption>{text(caption)}</caption>", "<thead><tr>"]
    lines += [f'<th scope="col"{_class(each)}>{text(name)}</th>' for name, each in zip(head, side, strict=True)]
    lines.append("</tr></thead><tbody>")
    for first, *others in rows:
        cells = "".join(_cell(cell, each) for cell, each in zip(others, side[1:], strict=True))
        lines.append(f'<tr><th scope="row"{_class(side[0])}>{text(first)}</th>{cells}</tr>')
    return "\n".join([*lines, "</tbody></table></div>"])


def _cell(cell: object, side: str) -> str:
    if isinstance(cell, Bar):
        return f'<td class="share" style="--share: {cell.share:.4f}">{text(cell.words)}</td>'
    return f"<td{_class(side)}>{text(cell)}</td>"


def facts(named: Iterable[tuple[str, object]]) -> str:
    """Names, each with what is said of it."""
    return "\n".join(["<dl>", *(f"<dt>{text(name)}</dt><dd>{text(said)}</dd>" for name, said in named), "</dl>"])


def lines(items: Iterable[object]) -> str:
    """A list of sentences, as `prose`."""
    return "\n".join(["<ul>", *(f"<li>{prose(each)}</li>" for each in items), "</ul>"])


def prose(value: object) -> str:
    """Sentences escaped for the page; what stands between backticks becomes code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", text(value))


def text(value: object) -> str:
    """Any value escaped for the page, also inside quotes; control characters, which HTML does not allow, become
    spaces, and a percent sign stays with its figure.
    """
    plain = "".join(each if each.isprintable() else " " for each in str(value))
    return escape(_PERCENT.sub("\N{NO-BREAK SPACE}%", plain), quote=True)


_PERCENT = re.compile(r"(?<=\d) %")


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


# Apart also for colour-blind readers, by 17 in CIELAB at least (tests/unit/runtime/test_page.py); runtime/look.css
# redefines them for dark screens.
COLOURS: Final = {
    "ink": "#1c2430",
    "muted": "#5d6673",
    "grid": "#d5dae1",
    "blue": "#005a9e",
    "vermillion": "#b01515",
    "green": "#08915e",
    "purple": "#9d457e",
    "orange": "#b97a00",
    "sky": "#3394ed",
    "grey": "#6b7683",
}
# In an SVG of Matplotlib, the first patch of the figure and of each of its axes is the background.
_BACKGROUND = re.compile(r'(<g id="(?:figure|axes)_\d+">\s*<g id="patch_\d+">\s*<path d="[^"]*" style="fill: )#ffffff')


def inlined(svg: str, *, name: str, alt: str, only: str = "") -> str:
    """An SVG of Matplotlib as an <svg> element of a page: no background, colours as CSS variables --c-NAME.

    name: what its identifiers start with, so that several figures live on one page; alt: what is said instead of it;
    only: its class in runtime/look.css, "telephone" for one that nothing else shows. It refers to nothing outside
    itself.
    """
    svg = svg[svg.index("<svg") :]
    svg = _BACKGROUND.sub(r"\1none", svg)
    svg = re.sub(r'\s(?:width|height)="[\d.]+pt"', "", svg, count=2)
    svg = re.sub(r'\sxmlns(?::\w+)?="[^"]*"', "", svg)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'xlink:href="#', f'href="#{name}-', svg)
    svg = re.sub(r"url\(#", f"url(#{name}-", svg)
    svg = re.sub(r"font: ([^;\"]*?)'DejaVu Sans'[^;\"]*", r"font: \1var(--figure-font)", svg)
    for colour_name, colour in COLOURS.items():
        svg = svg.replace(colour, f"var(--c-{colour_name})")
    return svg.replace("<svg", f'<svg{_class(only)} role="img" aria-label="{text(alt)}"', 1)
