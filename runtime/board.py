"""The parts of a page for a board: what a study was worth, and what somebody can come to know, as pictures that a
telephone and a printer show as well as a screen: text and boxes, no drawing that shrinks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor
from typing import Literal

from protocols.claims.strength import Figure, percent_at_most
from protocols.plural import at_most
from runtime.page import prose, text


@dataclass(frozen=True)
class Accuracy:
    """One row of the picture. value, low, high: shares in [0, 1] of records that are right; low, high: of a range or an
    interval, both or neither."""

    name: str
    kind: Literal["alone", "together", "pooled"]
    value: float
    low: float | None = None
    high: float | None = None


def worth(rows: Sequence[Accuracy], caption: str) -> str:
    """How often each is right, one below the other on one axis, which ends at 100 %; caption: what the bars are."""
    least = min(each.value if each.low is None else each.low for each in rows)
    step = 10 if least >= 0.55 else 20
    start = max(0, floor((100 * least - 5) / step) * step) / 100
    lines = ['<figure class="board">']
    for each in rows:
        marks = f'<span class="dot {each.kind}" style="--at:{_at(each.value, start)}"></span>'
        if each.low is not None and each.high is not None:
            ends = f"--low:{_at(each.low, start)};--high:{_at(each.high, start)}"
            marks = f'<span class="range {each.kind}" style="{ends}"></span>{marks}'
        lines.append(_row(text(each.name), marks, percent(each.value)))
    lines.append(_axis(*(f"{each} %" for each in range(round(100 * start), 101, step))))
    return "\n".join([*lines, f"<figcaption>{text(caption)}</figcaption></figure>"])


def known(figure: Figure, *, whose: str, against: str) -> str:
    """How often somebody who knows everything but one unit's data is right who guesses between two values of them.

    whose: the unit, as "one record of one hospital"; against: whom it holds against, as a sentence.
    """
    after = figure.guessed
    said = "no limit" if after == 1 else f"at most {percent_at_most(after)}"
    marks = f'<span class="range known" style="--low:0.5;--high:{after:.4f}"></span><span class="coin"></span>'
    epsilon = "no epsilon" if figure.epsilon == float("inf") else f"epsilon {at_most(figure.epsilon)}"
    words = (
        f"Somebody who knows everything else chooses between two versions of the data of {whose}. A coin is "
        f"right in 50 of 100 guesses; with all that is released, {said} are right ({epsilon} at delta "
        f"{at_most(figure.delta)}; {figure.rating}). {against}"
    )
    lines = ['<figure class="board">', _row("a guess is right in", marks, said), _axis("0 %", "50 %", "100 %")]
    return "\n".join([*lines, f"<figcaption>{text(words)}</figcaption></figure>"])


def notice(strong: str, words: str) -> str:
    """The one thing that a board must not overlook."""
    return f'<p class="notice"><strong>{text(strong)}</strong> {prose(words)}</p>'


def percent(share: float) -> str:
    """A share as every page writes it."""
    return f"{100 * share:.1f} %"


def _at(share: float, start: float) -> str:
    return f"{(share - start) / (1 - start):.4f}" if start < 1 else "1"


def _row(name: str, marks: str, figure: str) -> str:
    track = f'<span class="track" aria-hidden="true">{marks}</span>'
    return f'<div class="row"><span class="what">{name}</span>{track}<span class="of">{text(figure)}</span></div>'


def _axis(*marks: str) -> str:
    """Marks at equal distances."""
    spans = "".join(f"<span>{text(each)}</span>" for each in marks)
    return f'<div class="row axis" aria-hidden="true"><span class="track">{spans}</span></div>'
