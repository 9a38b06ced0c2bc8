"""What the command line prints: tables of plans, summaries and rows."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final  # Any: the values of a JSON object

import click
from rich.console import Console
from rich.table import Table

from coordinator.students.choice import Choice, KindScore
from protocols.labelling.schedule import STOP_MEANINGS
from protocols.plural import at_most, counted
from protocols.sums.judged import judged_rows as figure_rows
from runtime.printing import wrapped
from simulations.results.text import MARK, judged_of, pays_most_words, sums_words

_WIDTH: Final = 80
# What a figure begins with; a cell may be empty.
_FIGURE: Final = ("", *"0123456789+-<>≥≤∞–")


def print_summary(figures: dict[str, Any], out: Path) -> None:
    """Prints a run's budget groups as a table, and its headline figures; out: the report's folder."""
    rows: list[list[object]] = [
        [
            g["size"],
            at_most(g["budget"]),
            g["weight"],
            at_most(g["epsilon_guaranteed"]),
            at_most(g["epsilon_spent"]),
            g["share_of_budget_used"],
        ]
        for g in figures["groups"][:40]
    ]
    votes = figures["record_votes"]
    mechanism = sums_words(figures) if votes else figures["mechanism"]["name"]
    print_rows(
        f"{_seats(figures)}, {mechanism}, {figures['accounting']}, unit {figures['unit']}, "
        f"view {figures['view']}, {figures['adjacency']}, delta {_deltas(figures)}, "
        f"{level_text(figures['confidentiality'], figures['units'])}",
        ["size", "budget", "weight", "epsilon guaranteed", "used (operator's reading)", "share used"],
        rows,
    )
    accuracy: Callable[[str], str] = lambda key: "not measured" if figures[key] is None else _share(figures[key])  # noqa: E731
    decimals = 0 if len(figures["seeds"]) == 1 else 1
    released, asked = (f"{figures[key]:.{decimals}f}" for key in ("answered", "asked"))
    if votes is None:
        click.echo(f"labels released  {released} of {asked} asked: {STOP_MEANINGS[figures['stop']]}")
        click.echo(f"label accuracy   {accuracy('label_accuracy')}")
    else:
        click.echo(
            f"sums released    {votes['queries']} {'features' if votes['graded'] else 'queries'}, noise of "
            f"{votes['noise_in_votes']:.4g} votes on each class"
        )
        click.echo(f"pool labels      {votes['pool_records_labelled']}, right for {accuracy('label_accuracy')}")
    for line in _choices(figures):
        click.echo(line)
    click.echo(f"student accuracy {accuracy('student_accuracy')}")
    for line in _findings(figures["findings"]):
        click.echo(line)
    if (true := figures["calibration"]) is not None:
        click.echo(f"calibration      error {true['error']:.4f}, Brier score {true['brier']:.4f}")
    if (judged := figures["evaluation"]) is not None:
        each, names = judged_of(figures)
        click.echo(
            f"judges           about {max(of['judges'][0] for of in each):.0f} units that did not vote; 95 % intervals"
        )
        for name, words in figure_rows(judged, figures["class_names"], names):
            click.echo(f"  {name:<22} {words}")
    click.echo(f"report           {out / 'report.html'}")
    if (asker := figures["asker"]) is not None:
        click.echo(
            f"{MARK}who asks, {asker['model']} of {counted(asker['own_records'], 'own record')}: "
            f"{_share(asker['before'])} before, {_share(asker['after'])} with the labels"
        )
        click.echo(f"{MARK}fixed point agrees {_share(asker['agreement'])}")
    measured = figures["baselines"]
    if (majority := measured["majority_class_accuracy"]) is not None:
        click.echo(f"majority class   {_share(majority)}, of the same test records: always the most frequent")
    if measured["single_party_accuracy_mean"] is None and votes is None:
        click.echo(f"{MARK}mean teacher, on the pool {accuracy('teacher_accuracy_mean')}")
        return
    for name, key in (
        ("a party alone, mean", "single_party_accuracy_mean"),
        ("a party alone, best", "single_party_accuracy_best"),
        ("all data pooled", "non_private_student_accuracy"),
    ):
        known = measured[key]
        click.echo(f"{MARK}{name} {'not measured' if known is None else _share(known)}")
    if (pooled := measured["findings_auroc_macro"]) is not None:
        click.echo(f"{MARK}all data pooled, macro AUROC {pooled:.4f}")
    if (gain := measured["single_parties_that_gain"]) is not None:
        of = measured["single_parties_measured"]
        all_of = "" if of == figures["parties"] else f" measured, of {figures['parties']}"
        click.echo(f"{MARK}parties that gain {gain} of {of}{all_of}")
    if (most := measured["pays_most"]) is not None:
        said = f"pays most for privacy: {pays_most_words(most, seeds=len(figures['seeds']))}"
        click.echo(wrapped(said, first=MARK, rest=MARK))


def print_verdict(sentence: str, doubts: list[tuple[str, bool]], figures: dict[str, Any]) -> None:
    """Prints the sentence on a party alone, the student and pooled data, and what makes it doubtful, with the mark
    where it has private figures. doubts: sentences, and whether each may be released."""
    private = ("single_party_accuracy_mean", "non_private_student_accuracy")
    mark = MARK if figures["asker"] or any(figures["baselines"][name] is not None for name in private) else ""
    click.echo(wrapped(sentence, first=mark, rest=mark))
    for doubt, public in doubts:
        click.echo(wrapped(doubt, first="" if public else MARK, rest="" if public else MARK))


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"


def _findings(found: dict[str, Any] | None) -> list[str]:
    """How well each of several findings is told: nothing of one label."""
    if found is None:
        return []
    shown: Callable[[float | None], str] = lambda value: "-" if value is None else f"{value:.3f}"  # noqa: E731
    width = max(len("finding"), *(len(each["name"]) for each in found["each"]))
    names = "present auroc label_auroc threshold sensitivity specificity brier calibration_error".split()
    heads = ["present", "AUROC", "of labels", "threshold", "sens.", "spec.", "Brier", "calibration error"]
    lines = [f"{'finding':<{width}}  " + "  ".join(f"{head:>9}" for head in heads)]
    lines += [
        f"{each['name']:<{width}}  " + "  ".join(f"{shown(each[name]):>9}" for name in names) for each in found["each"]
    ]
    half = found["macro_auroc_ci95"]
    lines.append(
        f"AUROC            macro {found['macro_auroc']:.4f}{'' if half is None else f' ± {half:.4f}'}, micro "
        f"{found['micro_auroc']:.4f}; of the pool's labels {found['label_macro_auroc']:.4f}"
    )
    return lines


def _choices(figures: dict[str, Any]) -> list[str]:
    """How the kind of student was chosen: the usual ones, or seed by seed; nothing where it was named."""
    lines = []
    for seed in figures["seeds"]:
        if (found := seed["student_choice"]) is None or seed["answered"] == 0:
            continue
        if found["why"]:
            lines.append(f"student          {found['kind']}, {found['why']}")
            continue
        scores = tuple(KindScore(**score) for score in found["scores"])
        lines += [f"student of seed {seed['seed']}: {found['kind']}", *Choice(found["kind"], scores).lines]
    return list(dict.fromkeys(lines))


def level_text(level: str, units: int | None) -> str:
    """The level in words, and whether noise is in whole lattice units."""
    return f"level {level}" if units is None else f"level {level}, noise in 1/{units} votes"


def _deltas(figures: dict[str, Any]) -> str:
    """The delta of all budgets, or the least and the largest."""
    deltas = sorted({group["delta"] for group in figures["groups"]})
    return " to ".join(dict.fromkeys((at_most(deltas[0]), at_most(deltas[-1]))))


def _seats(figures: dict[str, Any]) -> str:
    """In words: what has budgets, parties or (with upsampling) groups of pooled records."""
    pooled = figures["pooled_teachers"]
    if pooled is None:
        return counted(figures["parties"], "party")
    return f"{pooled} teachers of pooled data (simulation only), {figures['parties']} groups of records"


def print_rows(title: str, columns: list[str], rows: list[list[object]]) -> None:
    """Prints a table on standard output; floats with four digits.

    It is as wide as the terminal, or as COLUMNS says; 80 columns where neither is known. Cells fold between words,
    and columns of figures are on the right; where the words do not fit side by side, each row is a paragraph.
    """
    known = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    console = Console(width=None if known else _WIDTH)
    cells = [[f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows]
    texts = [[name, *(row[at] for row in cells)] for at, name in enumerate(columns)]
    widths = [max(len(word) for text in each for word in text.split() or [""]) for each in texts]
    room = console.width - sum(widths) - 3 * len(widths) - 1
    if room < 0:
        click.echo("\n".join(textwrap.wrap(title, console.width)))
        for row in cells:
            said = "; ".join(f"{name} {cell}" for name, cell in zip(columns, row, strict=True) if cell)
            click.echo(textwrap.fill(said, console.width, initial_indent="- ", subsequent_indent="  ",
                                     break_long_words=False, break_on_hyphens=False))  # fmt: skip
        return
    for _ in range(room):  # to whichever column folds most
        wanted = [max(map(len, each)) - width for each, width in zip(texts, widths, strict=True)]
        widths[wanted.index(max(wanted))] += max(wanted) > 0
    table = Table(title=title, title_justify="left")
    for at, (name, width) in enumerate(zip(columns, widths, strict=True)):
        figures = all(row[at][:1] in _FIGURE for row in cells)
        table.add_column(name, justify="right" if figures else "left", width=width)
    for row in cells:
        table.add_row(*row)
    console.print(table)
