"""What is written of a comparison: tidy rows, their means over seeds with intervals, a figure, groups, and a page.

A mean hides who loses, and methods with the same mean may lose it in other groups of the test records. Groups are those
of a run (simulations.datasets.groups). What a method loses is the accuracy of REFERENCE minus its own, on the same
records, seed by seed.
"""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Iterator, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from protocols.claims.coverage import SIMULATED
from protocols.plural import at_most
from protocols.study.study import ADJACENCY
from runtime.files import write_atomically
from runtime.page import document, facts, lines, table, text, verdict
from simulations.baselines import METHODS
from simulations.baselines.cells import Comparison
from simulations.baselines.method import Row
from simulations.groups import FEWEST
from simulations.plots.style import (
    Drawing,
    inline_svg,
    level_line,
    light_grid,
    line_with_band,
    new_figure,
    pdf_bytes,
    percent_axis,
    plain_log_axis,
    style,
    write_figures,
)
from simulations.results.files import environment
from simulations.stages.label import mean_and_interval

_COLUMNS = (
    "method epsilon delta protects adjacency seed accuracy parties_that_gain best_party noise_multiplier labels auroc "
    "note"
).split()
# Of two seeds Student's t is 12.7 standard errors: an interval that says nothing.
FEWEST_SEEDS = 3
COVERED = (
    "95 % confidence intervals: Student's t over seeds, each of which draws the split, the parties, the teachers, the "
    "noise and the student anew. A test part that a data set has of its own is not drawn. "
    "A mean of fewer than three seeds has none."
)


def tidy(rows: Sequence[Row]) -> pd.DataFrame:
    """One row for each method, epsilon and seed; None where there is nothing to say."""
    of = {"best_party": "best", "noise_multiplier": "noise_multiplier", "labels": "labels", "auroc": "auroc"}
    flat = [row | {name: row["details"].get(key) for name, key in of.items()} for row in rows]
    return pd.DataFrame(flat).reindex(columns=_COLUMNS)


def means(table: pd.DataFrame) -> pd.DataFrame:
    """One row for each method and epsilon, in the order of the table: the mean accuracy, the ends of its interval
    (empty for fewer than three seeds), the mean share of parties that gain, and on how many seeds they rest:
    those in which the method gave a model.
    """
    found = []
    table = table if "auroc" in table else table.assign(auroc=np.nan)  # stored tables of one class keep none
    for (method, epsilon), group in table.groupby(["method", "epsilon"], sort=False, dropna=False):
        known = pd.to_numeric(group["accuracy"]).dropna().to_numpy(dtype=np.float64)
        mean, half = mean_and_interval(known) if len(known) else (None, None)
        half = half if len(known) >= FEWEST_SEEDS else None
        notes = group["note"][group["note"] != ""]
        gains, labels, aurocs = (
            pd.to_numeric(group.get(name, pd.Series(dtype=float))).dropna()
            for name in ("parties_that_gain", "labels", "auroc")
        )
        found.append(
            {
                "method": method,
                "epsilon": epsilon,
                "protects": group["protects"].iloc[0],
                "accuracy": mean,
                "accuracy_low": None if half is None or mean is None else mean - half,
                "accuracy_high": None if half is None or mean is None else mean + half,
                "seeds": len(known),
                "of_seeds": len(group),
                "parties_that_gain": gains.mean() if len(gains) else None,
                "labels": labels.mean() if len(labels) else None,
                "auroc": aurocs.mean() if len(aurocs) else None,
                "note": "" if notes.empty else notes.iloc[0],
            }
        )
    numbers = ["epsilon", "accuracy", "accuracy_low", "accuracy_high", "parties_that_gain", "labels", "auroc"]
    return pd.DataFrame(found).astype(dict.fromkeys(numbers, "float64"))


def accuracy_text(row: pd.Series) -> str:
    """An accuracy with the half-width of its interval, in percent, and of how many seeds where some gave none."""
    if pd.isna(row["accuracy"]):
        return "none"
    half = "" if pd.isna(row["accuracy_high"]) else f" ± {100 * (row['accuracy_high'] - row['accuracy']):.1f}"
    some = "" if row["seeds"] == row["of_seeds"] else f" ({row['seeds']} of {row['of_seeds']} seeds)"
    told = "" if pd.isna(row.get("auroc")) else f", AUROC {row['auroc']:.3f}"
    return f"{100 * row['accuracy']:.1f}{half} %{told}{some}"


def by_epsilon(summary: pd.DataFrame) -> tuple[list[str], list[list[object]]]:
    """The head and the rows of the table of all methods: a row for each, and a column for each epsilon.

    A method without privacy has one accuracy, in a column of its own.
    """
    epsilons = sorted(summary["epsilon"].dropna().unique())
    rows: list[list[object]] = []
    for method, group in summary.groupby("method", sort=False):
        cells = {None if pd.isna(row["epsilon"]) else row["epsilon"]: accuracy_text(row) for _, row in group.iterrows()}
        shown = [cells.get(None, ""), *(cells.get(epsilon, "") for epsilon in epsilons)]
        rows.append([method, group["protects"].iloc[0] or "nobody", *shown])
    return ["method", "protects", "no ε", *(f"ε = {at_most(epsilon)}" for epsilon in epsilons)], rows


def markdown(summary: pd.DataFrame) -> str:
    """The table of `by_epsilon` for a page of Markdown, with the largest mean of each epsilon in bold."""
    head, rows = by_epsilon(summary)
    known = summary.dropna(subset=["epsilon", "accuracy"]).sort_values("accuracy", kind="stable")
    last = known.drop_duplicates("epsilon", keep="last")
    best = {(name, f"ε = {at_most(epsilon)}") for name, epsilon in zip(last["method"], last["epsilon"], strict=True)}
    shown = [
        [f"**{cell}**" if (row[0], name) in best else str(cell) for name, cell in zip(head, row, strict=True)]
        for row in rows
    ]
    return markdown_table(head, shown)


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown, of cells as they are."""
    return "".join(f"| {' | '.join(line)} |\n" for line in [head, ["---"] * len(head), *rows])


# The student's kind of model of all private records.
REFERENCE: Final = "pooled"
GROUP_COLUMNS: Final = "method epsilon seed attribute group records accuracy".split()
GROUP_COVERED: Final = (
    f"The group with the lowest mean accuracy, of those with at least {FEWEST} test records in every seed. The lowest "
    "of several is low by chance, too: the 95 % intervals hold for all groups that were compared at once (Bonferroni). "
    f"Lost: the accuracy of {REFERENCE} minus the method's, on the same records."
)
_LEVEL: Final = 0.95
_CELL: Final = ["attribute", "method", "epsilon"]
# A table of a page has no more groups.
_MOST_COLUMNS: Final = 12


def tidy_groups(rows: Sequence[Row]) -> pd.DataFrame:
    """One row for each method, epsilon, seed and group, of the rows of a comparison."""
    flat = [
        {"method": row["method"], "epsilon": row["epsilon"], "seed": row["seed"], **group}
        for row in rows
        for group in row["groups"]
    ]
    return pd.DataFrame(flat, columns=GROUP_COLUMNS).astype({"epsilon": "float64"})


def worst_groups(table: pd.DataFrame) -> pd.DataFrame:
    """One row for each attribute, method and epsilon of the rows of `tidy_groups`: the worst group, see GROUP_COVERED.

    accuracy and lost: means over seeds, in the worst group, with the ends of their intervals (empty for fewer than
    three seeds); lost_in_all: on all test records; both lost: empty where REFERENCE was not run. compared: of how many
    groups it is the worst; no row where fewer than two can be compared.
    """
    found, of_seeds = [], table["seed"].nunique()
    for (attribute, method, epsilon), accuracy, records in _cells(table):
        fit = [name for name in accuracy if (records[name] >= FEWEST).all()]
        if len(fit) < 2:
            continue
        worst = accuracy[fit].mean().idxmin()
        lost = _reference(table, attribute).reindex(index=accuracy.index, columns=accuracy.columns) - accuracy
        level = 1 - (1 - _LEVEL) / len(fit)
        found.append(
            {
                "attribute": attribute, "method": method, "epsilon": epsilon, "group": worst, "compared": len(fit),
                "seeds": len(accuracy), "of_seeds": of_seeds, **_ends("accuracy", accuracy[worst], level),
                **_ends("lost", lost[worst], level),
                "lost_in_all": ((lost * records).sum(axis=1, min_count=1) / records.sum(axis=1)).mean(),
            }
        )  # fmt: skip
    return pd.DataFrame(found)


def _cells(table: pd.DataFrame) -> Iterator[tuple[tuple[Any, ...], pd.DataFrame, pd.DataFrame]]:
    """Of each attribute, method and epsilon: accuracy and records, a row for each seed and a column for each group."""
    for key, cell in table.groupby(_CELL, sort=False, dropna=False):
        accuracy, records = (
            cell.pivot(index="seed", columns="group", values=name).reindex(columns=cell["group"].unique())
            for name in ("accuracy", "records")
        )
        yield key, accuracy, records


def _reference(table: pd.DataFrame, attribute: str) -> pd.DataFrame:
    of = table[(table["method"] == REFERENCE) & (table["attribute"] == attribute)]
    return of.pivot(index="seed", columns="group", values="accuracy")


def _ends(name: str, of_seeds: pd.Series, level: float) -> dict[str, float | None]:
    """The mean over seeds and the ends of its interval."""
    known = of_seeds.dropna().to_numpy(dtype="float64")
    mean, half = mean_and_interval(known, level=level) if len(known) else (None, None)
    ends = (None, None) if mean is None or half is None or len(known) < FEWEST_SEEDS else (mean - half, mean + half)
    return {name: mean, f"{name}_low": ends[0], f"{name}_high": ends[1]}


def worst_rows(worst: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """The head and the rows of the table of `worst_groups`."""
    head = ["method", "ε", "by", "worst group", "accuracy there", "lost there, points", "lost on all, points"]
    return head, [
        [
            row["method"],
            "none" if pd.isna(row["epsilon"]) else at_most(row["epsilon"]),
            row["attribute"],
            f"{row['group']} (of {row['compared']})",
            accuracy_text(row),
            _points(row, "lost"),
            _points(row, "lost_in_all"),
        ]
        for _, row in worst.iterrows()
    ]


def _points(row: pd.Series, name: str) -> str:
    if pd.isna(row[name]) or row["method"] == REFERENCE:
        return ""
    high = row.get(f"{name}_high")
    return f"{100 * row[name]:+.1f}" + ("" if high is None or pd.isna(high) else f" ± {100 * (high - row[name]):.1f}")


def accuracy_rows(table: pd.DataFrame, attribute: str) -> tuple[list[str], list[list[str]]]:
    """The head and the rows of the mean accuracy in every group of one attribute, or in its largest groups.

    A share of few records says nothing: groups with fewer than FEWEST of them in the mean are left out.
    """
    of = table[table["attribute"] == attribute]
    sizes = of.groupby("group", sort=False)["records"].mean()
    largest = sizes[sizes >= FEWEST].nlargest(_MOST_COLUMNS)
    names = [name for name in sizes.index if name in largest.index]
    of_seeds = of.groupby("group")["seed"].nunique()
    rows = []
    for (_, method, epsilon), accuracy, _ in _cells(of):
        means = accuracy.reindex(columns=names)
        shown = [
            "" if means[name].isna().all()
            else accuracy_text(pd.Series({
                **_ends("accuracy", means[name], _LEVEL), "seeds": means[name].count(), "of_seeds": of_seeds[name],
            }, dtype=object))
            for name in names
        ]  # fmt: skip
        rows.append([method, "none" if pd.isna(epsilon) else at_most(epsilon), *shown])
    return ["method", "ε", *(f"{name} ({sizes[name]:.0f} records)" for name in names)], rows


def comparison_drawing(summary: pd.DataFrame) -> Drawing:
    """Lines with intervals for methods that have an epsilon, dotted lines across for those without privacy."""
    with style():
        figure = new_figure(height=4.2)
        axes = figure.subplots()
        private = summary[summary["epsilon"].notna() & summary["accuracy"].notna()]
        for at, (method, rows) in enumerate(private.groupby("method", sort=False)):
            x, mean, low, high = (
                pd.to_numeric(rows[name]).to_numpy(dtype=float)
                for name in ("epsilon", "accuracy", "accuracy_low", "accuracy_high")
            )
            line_with_band(axes, x, (mean, low, high), number=at, label=str(method))
        for _, row in summary[summary["epsilon"].isna() & summary["accuracy"].notna()].iterrows():
            level_line(axes, row["accuracy"], row["method"])
        axes.set_xlabel("ε of every party")
        axes.set_ylabel("accuracy on the test records")
        percent_axis(axes.yaxis)
        light_grid(axes, "y")
        if not private.empty:
            plain_log_axis(axes)
            axes.set_xticks(sorted(private["epsilon"].unique()))
            axes.legend(loc="best", alignment="left")
    return Drawing(
        name="methods",
        caption=f"Accuracy on the same test records. Dotted: without privacy. {COVERED}",
        alt="Chart of the test accuracy of every method against epsilon.",
        figure=figure,
    )


PRIVATE_WORDS: Final = (
    "Not for release where the private records are real: figures of methods without an epsilon, which parties gain, "
    "and what is lost in groups. They are computed from private records, and no budget pays for them."
)


def write_comparison(comparison: Comparison, rows: Sequence[Row], out: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Writes the tables, the figure and report.html (docs/reference/outputs.md); returns rows and means.

    Raises StorageFailed; each file is whole or absent.
    """
    found = tidy(rows)
    summary = means(found)
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pandas(found, preserve_index=False), sink, compression="zstd")
    write_atomically(out / "methods.parquet", sink.getvalue())
    write_atomically(out / "methods.csv", found.to_csv(index=False))
    write_atomically(out / "means.csv", summary.to_csv(index=False))
    write_atomically(out / "methods.md", markdown(summary))
    groups = tidy_groups(rows)
    worst = worst_groups(groups)
    write_atomically(out / "by_group.csv", groups.to_csv(index=False))
    write_atomically(out / "worst_groups.csv", worst.to_csv(index=False))
    write_atomically(out / "worst_groups.md", markdown_table(*worst_rows(worst)))
    write_atomically(out / "env.json", json.dumps(environment(), indent=2) + "\n")
    drawn = comparison_drawing(summary)
    write_figures([drawn], out)
    write_atomically(out / "figures" / f"{drawn.name}.pdf", pdf_bytes(drawn.figure))
    write_atomically(out / "report.html", _page(comparison, summary, drawn, _of_groups(groups, worst), out))
    return found, summary


def _of_groups(groups: pd.DataFrame, worst: pd.DataFrame) -> str:
    """The section on groups of test records as HTML; nothing where no method gave a model."""
    if groups.empty:
        return ""
    tables = [] if worst.empty else [table(GROUP_COVERED, *worst_rows(worst))]
    tables += [
        table(f"Accuracy by {attribute}. {COVERED}", *accuracy_rows(groups, attribute))
        for attribute in groups["attribute"].unique()
    ]
    head = '<section aria-labelledby="groups"><h2 id="groups">Groups of test records</h2>'
    return "\n".join([head, *tables, "</section>"])


def _page(comparison: Comparison, summary: pd.DataFrame, drawn: Drawing, groups: str, out: Path) -> str:
    """The page as HTML; groups: its section on groups. All its numbers come from the tables of means."""
    settings = comparison.settings
    head, rows = by_epsilon(summary)
    notes = summary[summary["note"] != ""]
    body = [
        _verdict(summary),
        f'<p class="notice"><strong>This was a simulation.</strong> {text(SIMULATED)} {text(PRIVATE_WORDS)}</p>',
        '<section aria-labelledby="methods"><h2 id="methods">Accuracy on the test records</h2>',
        table(f"Means and 95 % intervals. {COVERED}", head, rows),
        f'<figure><div class="scroll" role="region" tabindex="0" aria-label="Figure 1">{inline_svg(drawn)}</div>'
        f"<figcaption>Figure 1. {text(drawn.caption)}</figcaption></figure>",
        *([lines(f"{row['method']}, {_epsilon(row)}: {row['note']}" for _, row in notes.iterrows())]
          if len(notes) else []),
        "</section>",
        '<section aria-labelledby="gains"><h2 id="gains">Which parties gain</h2>',
        table(
            "Share of the measured parties whose own model is less often right than the method's.",
            ["method", "epsilon", "accuracy", "parties that gain", "labels released"],
            [_gain(row) for _, row in summary.iterrows()],
        ),
        "</section>",
        groups,
        '<section aria-labelledby="what"><h2 id="what">The methods</h2>',
        table(
            "What each is, whose data its epsilon covers, and who sees records or models in the clear.",
            ["method", "what it is", "protects", "trusted", "source"],
            [[name, METHODS[name].meaning, METHODS[name].protects or "nobody", METHODS[name].trusted,
              METHODS[name].source] for name in comparison.methods],
            words=(1, 3, 4),
        ),
        lines(
            [
                f"Every epsilon is of {ADJACENCY} neighbours, at delta {at_most(settings.delta)}. Of neighbours that "
                "add or remove one record, as many papers have them, the same noise has about half that epsilon.",
                "All methods learn from the same private records and are scored on the same test records. Settings of "
                "methods are constants, or follow from public numbers: none is chosen by the accuracies shown "
                "here. Some constants were chosen on data sets that this program has "
                "(docs/explanation/when-pate-is-wrong.md).",
            ]
        ),
        "</section>",
        '<section aria-labelledby="again"><h2 id="again">Make it again</h2>',
        f"<pre>{text(command_text(comparison, out))}</pre>",
        "<pre>" + "\n".join(text(line) for line in comparison.config.splitlines()) + "</pre>",
        facts((name, value) for name, value in environment().items() if name != "versions"),
        "</section>",
    ]  # fmt: skip
    return document(
        title=f"{len(comparison.methods)} methods on {settings.dataset}",
        kind="report of simulated methods",
        body="\n".join(body),
    )


def command_text(comparison: Comparison, out: Path) -> str:
    """The command that makes the same comparison in another folder."""
    return shlex.join(["conclave-simulate", "baselines", str(out / "baselines.toml")])


def _verdict(summary: pd.DataFrame) -> str:
    """The best private method at each epsilon, and whether its interval is apart from the next."""
    private = summary[summary["epsilon"].notna() & summary["accuracy"].notna()]
    if private.empty:
        return verdict("No method with privacy was run.", tone="warn")
    points = []
    for _, rows in private.groupby("epsilon"):
        ranked = rows.sort_values("accuracy", ascending=False)
        best = ranked.iloc[0]
        said = f"{best['method']}, {accuracy_text(best)}."
        if len(ranked) > 1:
            second = ranked.iloc[1]
            apart = best["accuracy_low"] > second["accuracy_high"]
            said += f" Next: {second['method']}, {accuracy_text(second)}" + (
                "." if apart else "; the intervals overlap, or there are none."
            )
        points.append((f"{_epsilon(best)}:", said))
    return verdict("The most accurate method with privacy, by epsilon.", points)


def _gain(row: pd.Series) -> list[object]:
    gain, labels = row["parties_that_gain"], row["labels"]
    return [
        row["method"], _epsilon(row), accuracy_text(row),
        "none measured" if not _known(gain) else f"{100 * gain:.0f} %",
        "" if not _known(labels) else f"{labels:.0f}",
    ]  # fmt: skip


def _epsilon(row: pd.Series) -> str:
    return f"ε = {at_most(row['epsilon'])}" if _known(row["epsilon"]) else "no ε"


def _known(value: object) -> bool:
    return isinstance(value, int | float) and isfinite(value)
