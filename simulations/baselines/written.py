"""The files of a comparison: tidy rows, their means, a figure, and a page."""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import Final

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
from simulations.baselines.drawing import comparison_drawing
from simulations.baselines.method import Row
from simulations.baselines.table import (
    COVERED,
    GROUP_COVERED,
    accuracy_rows,
    accuracy_text,
    by_epsilon,
    markdown,
    markdown_table,
    means,
    tidy,
    tidy_groups,
    worst_groups,
    worst_rows,
)
from simulations.plots.figures import write_figures
from simulations.plots.style import Drawing, inline_svg, pdf_bytes
from simulations.results.files import environment

PRIVATE: Final = (
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
        f'<p class="notice"><strong>This was a simulation.</strong> {text(SIMULATED)} {text(PRIVATE)}</p>',
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
