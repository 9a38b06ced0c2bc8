"""The report of `ask` as one HTML page: no scripts, nothing loaded from elsewhere, figures as inline SVG.

A node has no template engine, so the page is put together here. Everything that is not a literal of this file is
escaped by `text`; the numbers are those of the JSON file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any  # the values of a JSON object

from party.asking.improvement import CHANCE, by_chance, fixed_point
from party.asking.report import ELSEWHERE, OWN, Figures, cost, meaning, stopped, weakest
from protocols.plural import counted
from runtime.page import document, table, text, verdict

# Sizes within a drawing, in its own units: names on the left, then bars and their values; the axis below. Narrow enough
# to be read on a telephone.
_WIDTH, _NAMES, _VALUES, _ROW, _AXIS, _LETTERS = 440, 125, 75, 34, 22, 14


def page(figures: Figures) -> str:
    """The page as HTML. figures: as `ask_figures` returns them and the JSON file holds them."""
    improved = figures["improvement"]
    return document(
        title=f"What the consortium answered: {figures['name']}",
        kind="report of confidential queries",
        body="\n".join([
            _verdict(figures),
            f"<p>{text(figures['task'])}</p>",
            f'<p class="notice">For {text(figures["data_set"])} only: {text(OWN)}</p>',
            *_answers(figures), *([] if improved is None else _improvement(improved)), *_cost(figures),
        ]),
        footer=f'<p>Study digest <code>{text(figures["study"])}</code>. Beside this page are the labels, and the same '
        "figures as JSON and Markdown.</p>",
    )  # fmt: skip


def _verdict(figures: Figures) -> str:
    """What asking brought this hospital, and what it cost the others."""
    answered, asked, improved = figures["answered"], figures["asked"], figures["improvement"]
    says, points, better = f"{answered} of your {counted(asked, 'question')} got a label.", [], False
    if improved is not None:
        alone, together = improved["accuracy_before"], improved["accuracy_after"]
        says = (
            f"Alone {_percent(alone)}, with {counted(answered, 'label')} of the others {_percent(together)}, on the "
            "same test records."
        )
        gained, lost = improved["gained"], improved["lost"]
        chance = by_chance(gained, lost)
        certain = chance < CHANCE
        points.append(
            (
                "Did it help?" if together >= alone else "It did not help:",
                f"{gained} test records are right only after, {lost} only before. "
                + ("Chance alone rarely does that" if certain else "That may be chance")
                + f" (p = {chance:.2g}, McNemar's exact test).",
            )
        )
        better = certain and together > alone
    points.append(("What it cost those who answered:", f"{cost(figures)}. {weakest(figures)}"))
    return verdict(says, points, tone="good" if better else "plain")


def _answers(figures: Figures) -> list[str]:
    counts: Mapping[str, int] = figures["classes"]
    most = max([1, *counts.values()])
    rows = [
        ("in the file", figures["queries"]),
        ("asked", figures["asked"]),
        ("answered", figures["answered"]),
        ("unanswered: too few votes for one class", figures["unanswered"]),
        ("not asked yet", figures["queries"] - figures["asked"]),
    ]
    left_out = "".join(f"<li>{text(seat)}: {text(code)}</li>" for seat, code in figures["left_out"].items())
    return [
        "<h2>Answers</h2>",
        f"<p>Asking stopped as {text(stopped(figures))}.</p>",
        table("Your records", ("records", "number"), rows),
        *(["<p>Left out of the last batches:</p>", f"<ul>{left_out}</ul>"] if left_out else []),
        "<h2>Labels</h2>",
        "<p>Each label is the class with the most votes after noise was added to the counts: any one may be wrong.</p>",
        *_drawing(
            "Labels of each class", [(name, n / most, None, str(n)) for name, n in counts.items()], ("0", str(most))
        ),
        table("Labels of each class", ("class", "labels"), counts.items()),
    ]


def _improvement(improved: Mapping[str, Any]) -> list[str]:
    models = [
        (
            when,
            trained_on,
            improved[f"accuracy_{when}"],
            tuple(improved[f"interval_{when}"]),
            improved[f"error_{when}"],
        )
        for when, trained_on in (
            ("before", counted(improved["own_records"], "own record")),
            ("after", f"{counted(improved['own_records'], 'own record')} and {counted(improved['answered'], 'label')}"),
        )
    ]
    return [
        "<h2>Your own model, before and after</h2>",
        f"<p>A {text(improved['model'])}, scored on {text(improved['test_records'])} held-out records. "
        f"{text(improved['gained'])} of them are right only after, {text(improved['lost'])} only before: if these "
        "two numbers are close, the change may be chance.</p>",
        *_drawing(
            "Accuracy before and after, with 95 % intervals",
            [(when, share, interval, _percent(share)) for when, _, share, interval, _ in models],
            ("0 %", "100 %"),
        ),
        table(
            "Accuracy on the test records",
            ("model", "trained on", "accuracy", "95 % interval", "standard error"),
            [
                (when, on, _percent(share), " to ".join(map(_percent, interval)), _percent(error))
                for when, on, share, interval, error in models
            ],
        ),
        '<p class="soft">The others\' models answered in fixed point, and their weights are not seen here. '
        f"Your own model, after: {text(fixed_point(improved['agreement']))}.</p>",
    ]


def _cost(figures: Figures) -> list[str]:
    return [
        "<h2>What it cost those who answered</h2>",
        *(f"<p>{text(line)}</p>" for line in (f"{cost(figures)}.", meaning(figures), ELSEWHERE)),
    ]


def _drawing(
    name: str, bars: list[tuple[str, float, tuple[float, float] | None, str]], ends: tuple[str, str]
) -> list[str]:
    """A bar chart of rows (name, share in [0, 1], interval, text after the bar). ends: the axis labels at 0 and 1."""
    height, room = _ROW * len(bars) + 8, _WIDTH - _NAMES - _VALUES
    said = "; ".join(f"{label} {value}" for label, _, _, value in bars)
    spoken = text(f"{name}: {said}")
    lines = [f'<svg class="narrow" viewBox="0 0 {_WIDTH} {height + _AXIS}" role="img" aria-label="{spoken}">']
    lines += [
        f'<line class="grid" x1="{_NAMES + room * part / 4:.1f}" x2="{_NAMES + room * part / 4:.1f}" y1="0" '
        f'y2="{height}"/>'
        for part in range(5)
    ]
    for number, (label, share, interval, value) in enumerate(bars):
        top = 4 + _ROW * number
        middle, end = top + _ROW / 2, _NAMES + room * share
        shown = label if len(label) <= _LETTERS else f"{label[: _LETTERS - 1]}…"
        lines += [
            f'<text x="{_NAMES - 10}" y="{middle + 4:.1f}" text-anchor="end">{text(shown)}</text>',
            f'<rect class="bar" x="{_NAMES}" y="{top + 6}" width="{room * share:.1f}" height="{_ROW - 12}"/>',
        ]
        if interval is not None:
            left, right = (_NAMES + room * each for each in interval)
            lines.append(f'<path class="whisker" d="M{left:.1f} {middle} H{right:.1f}"/>')
            end = max(end, right)
        lines.append(f'<text x="{end + 8:.1f}" y="{middle + 4:.1f}">{text(value)}</text>')
    for at, anchor, said_there in ((_NAMES, "start", ends[0]), (_NAMES + room, "end", ends[1])):
        lines.append(f'<text class="axis" x="{at}" y="{height + 16}" text-anchor="{anchor}">{text(said_there)}</text>')
    return [*lines, "</svg>"]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
