"""The report of `ask` as one HTML page: no scripts, nothing loaded from elsewhere, figures as inline SVG.

A node has no template engine, so the page is put together here. Everything that is not a literal of this file is
escaped by `_text`; the numbers are those of the JSON file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any  # the values of a JSON object

from party.asking.improvement import fixed_point
from party.asking.report import ELSEWHERE, OWN, Figures, cost, meaning, stopped

_STYLE = """
:root { --page: #fff; --card: #f5f7f9; --line: #d5dae1; --text: #1c2430; --soft: #4d5663; --blue: #0072b2;
  --orange: #b97a00; }
@media screen and (prefers-color-scheme: dark) { :root { --page: #12161c; --card: #1b212a; --line: #343d4a;
  --text: #e6eaf0; --soft: #aab4c2; --blue: #4ba3dc; --orange: #e0a63c; } }
body { margin: 0 auto; padding: 1.5rem 1.25rem 3rem; max-width: 50rem; background: var(--page); color: var(--text);
  font: 1rem/1.55 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.25; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
.kind, .soft, caption, footer { color: var(--soft); font-size: .9rem; }
.notice { border-left: 4px solid var(--orange); background: var(--card); padding: .7rem 1rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: .4rem; }
th, td { border-bottom: 1px solid var(--line); padding: .4rem .6rem; text-align: right; overflow-wrap: normal; }
th:first-child, td:first-child { text-align: left; padding-left: 0; } tbody th { font-weight: 600; }
svg { display: block; width: 100%; height: auto; max-width: 30rem; margin: .6rem 0; }
svg text { font: 15px system-ui, sans-serif; fill: var(--text); }
.bar { fill: var(--blue); } .grid { stroke: var(--line); } .whisker { stroke: var(--text); stroke-width: 2; }
svg text.axis { fill: var(--soft); }
"""
# Sizes within a drawing, in its own units: names on the left, then bars and their values; the axis below. Narrow enough
# to be read on a telephone.
_WIDTH, _NAMES, _VALUES, _ROW, _AXIS, _LETTERS = 440, 125, 75, 34, 22, 14


def page(figures: Figures) -> str:
    """The page as HTML. figures: as `ask_figures` returns them and the JSON file holds them."""
    title = f"What the consortium answered: {figures['name']}"
    improved = figures["improvement"]
    return "\n".join([
        "<!DOCTYPE html>", '<html lang="en">', "<head>", '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>Conclave: {_text(title)}</title>", f"<style>{_STYLE}</style>", "</head>", "<body>", "<header>",
        '<p class="kind">Conclave · report of confidential queries</p>', f"<h1>{_text(title)}</h1>",
        f"<p>{_text(figures['task'])}</p>",
        f'<p class="notice">For {_text(figures["data_set"])} only: {_text(OWN)}</p>', "</header>", "<main>",
        *_answers(figures), *([] if improved is None else _improvement(improved)), *_cost(figures), "</main>",
        f'<footer><p>Study digest <code>{_text(figures["study"])}</code>. Beside this page are the labels, and the '
        "same figures as JSON and Markdown.</p></footer>", "</body>", "</html>", "",
    ])  # fmt: skip


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
    left_out = "".join(f"<li>{_text(seat)}: {_text(code)}</li>" for seat, code in figures["left_out"].items())
    return [
        "<h2>Answers</h2>",
        f"<p>Asking stopped as {_text(stopped(figures))}.</p>",
        *_table("Your records", ("records", "number"), rows),
        *(["<p>Left out of the last batches:</p>", f"<ul>{left_out}</ul>"] if left_out else []),
        "<h2>Labels</h2>",
        "<p>Each label is the class with the most votes after noise was added to the counts: any one may be wrong.</p>",
        *_drawing(
            "Labels of each class", [(name, n / most, None, str(n)) for name, n in counts.items()], ("0", str(most))
        ),
        *_table("Labels of each class", ("class", "labels"), counts.items()),
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
            ("before", f"{improved['own_records']} own records"),
            ("after", f"{improved['own_records']} own records and {improved['answered']} labels"),
        )
    ]
    return [
        "<h2>Your own model, before and after</h2>",
        f"<p>A {_text(improved['model'])}, scored on {_text(improved['test_records'])} held-out records. "
        f"{_text(improved['gained'])} of them are right only after, {_text(improved['lost'])} only before: if these "
        "two numbers are close, the change may be chance.</p>",
        *_drawing(
            "Accuracy before and after, with 95 % intervals",
            [(when, share, interval, _percent(share)) for when, _, share, interval, _ in models],
            ("0 %", "100 %"),
        ),
        *_table(
            "Accuracy on the test records",
            ("model", "trained on", "accuracy", "95 % interval", "standard error"),
            [
                (when, on, _percent(share), " to ".join(map(_percent, interval)), _percent(error))
                for when, on, share, interval, error in models
            ],
        ),
        '<p class="soft">The others\' models answered in fixed point, and their weights are not seen here. '
        f"Your own model, after: {_text(fixed_point(improved['agreement']))}.</p>",
    ]


def _cost(figures: Figures) -> list[str]:
    return [
        "<h2>What it cost those who answered</h2>",
        *(f"<p>{_text(line)}</p>" for line in (f"{cost(figures)}.", meaning(figures), ELSEWHERE)),
    ]


def _table(caption: str, head: Iterable[str], rows: Iterable[Iterable[object]]) -> list[str]:
    lines = [f'<div class="scroll"><table><caption>{_text(caption)}</caption><thead><tr>']
    lines += [f'<th scope="col">{_text(name)}</th>' for name in head]
    lines.append("</tr></thead><tbody>")
    for first, *others in rows:
        cells = "".join(f"<td>{_text(each)}</td>" for each in others)
        lines.append(f'<tr><th scope="row">{_text(first)}</th>{cells}</tr>')
    return [*lines, "</tbody></table></div>"]


def _drawing(
    name: str, bars: list[tuple[str, float, tuple[float, float] | None, str]], ends: tuple[str, str]
) -> list[str]:
    """A bar chart of rows (name, share in [0, 1], interval, text after the bar). ends: the axis labels at 0 and 1."""
    height, room = _ROW * len(bars) + 8, _WIDTH - _NAMES - _VALUES
    said = "; ".join(f"{label} {value}" for label, _, _, value in bars)
    lines = [f'<svg viewBox="0 0 {_WIDTH} {height + _AXIS}" role="img" aria-label="{_text(f"{name}: {said}")}">']
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
            f'<text x="{_NAMES - 10}" y="{middle + 4:.1f}" text-anchor="end">{_text(shown)}</text>',
            f'<rect class="bar" x="{_NAMES}" y="{top + 6}" width="{room * share:.1f}" height="{_ROW - 12}"/>',
        ]
        if interval is not None:
            left, right = (_NAMES + room * each for each in interval)
            lines.append(f'<path class="whisker" d="M{left:.1f} {middle} H{right:.1f}"/>')
            end = max(end, right)
        lines.append(f'<text x="{end + 8:.1f}" y="{middle + 4:.1f}">{_text(value)}</text>')
    for at, anchor, said_there in ((_NAMES, "start", ends[0]), (_NAMES + room, "end", ends[1])):
        lines.append(f'<text class="axis" x="{at}" y="{height + 16}" text-anchor="{anchor}">{_text(said_there)}</text>')
    return [*lines, "</svg>"]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _text(value: object) -> str:
    """Any value escaped for the page, also inside quotes; control characters, which HTML does not allow, become
    spaces.
    """
    return escape("".join(each if each.isprintable() else " " for each in str(value)), quote=True)
