"""Figures of Matplotlib within a page: no background, and colours that follow the page into the dark."""

from __future__ import annotations

import re
from typing import Final

from runtime.page import text

# Okabe & Ito's colours, which colour-blind readers can tell apart; runtime/look.css redefines them for dark screens.
COLOURS: Final = {
    "ink": "#1c2430",
    "muted": "#5d6673",
    "grid": "#d5dae1",
    "blue": "#0072b2",
    "vermillion": "#d55e00",
    "green": "#009e73",
    "purple": "#aa4499",
    "orange": "#b97a00",
    "sky": "#3f8fc4",
    "grey": "#8b95a3",
}
# In an SVG of Matplotlib, the first patch of the figure and of each of its axes is the background.
_BACKGROUND = re.compile(r'(<g id="(?:figure|axes)_\d+">\s*<g id="patch_\d+">\s*<path d="[^"]*" style="fill: )#ffffff')


def inlined(svg: str, *, name: str, alt: str) -> str:
    """An SVG of Matplotlib as an <svg> element of a page: no background, colours as CSS variables --c-NAME.

    name: what its identifiers start with, so that several figures live on one page; alt: what is said instead of it. It
    refers to nothing outside itself.
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
    return svg.replace("<svg", f'<svg role="img" aria-label="{text(alt)}"', 1)
