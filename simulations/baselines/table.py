"""The table of a comparison: for each method and epsilon the mean over seeds, and its interval."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from simulations.baselines.method import Row
from simulations.stages.label import mean_and_interval

COLUMNS = (
    "method epsilon delta protects adjacency seed accuracy parties_that_gain best_party noise_multiplier labels note"
).split()
# Of two seeds Student's t is 12.7 standard errors: an interval that says nothing.
FEWEST_SEEDS = 3
COVERED = (
    "95 % confidence intervals: Student's t over seeds, each of which draws the split, the parties, the teachers, the "
    "noise and the student anew. A mean of fewer than three seeds has none."
)


def tidy(rows: Sequence[Row]) -> pd.DataFrame:
    """One row for each method, epsilon and seed; None where there is nothing to say."""
    flat = [
        {
            **row,
            "best_party": row["details"].get("best"),
            "noise_multiplier": row["details"].get("noise_multiplier"),
            "labels": row["details"].get("labels"),
        }
        for row in rows
    ]
    return pd.DataFrame(flat).reindex(columns=COLUMNS)


def means(table: pd.DataFrame) -> pd.DataFrame:
    """One row for each method and epsilon, in the order of the table: the mean accuracy, the ends of its interval
    (empty for fewer than three seeds), the mean share of parties that gain, and on how many seeds they rest:
    those in which the method gave a model.
    """
    found = []
    for (method, epsilon), group in table.groupby(["method", "epsilon"], sort=False, dropna=False):
        known = pd.to_numeric(group["accuracy"]).dropna().to_numpy(dtype=np.float64)
        mean, half = mean_and_interval(known) if len(known) else (None, None)
        half = half if len(known) >= FEWEST_SEEDS else None
        notes = group["note"][group["note"] != ""]
        gains, labels = (pd.to_numeric(group[name]).dropna() for name in ("parties_that_gain", "labels"))
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
                "note": "" if notes.empty else notes.iloc[0],
            }
        )
    numbers = ["epsilon", "accuracy", "accuracy_low", "accuracy_high", "parties_that_gain", "labels"]
    return pd.DataFrame(found).astype(dict.fromkeys(numbers, "float64"))


def accuracy_text(row: pd.Series) -> str:
    """An accuracy with the half-width of its interval, in percent, and of how many seeds where some gave none."""
    if pd.isna(row["accuracy"]):
        return "none"
    half = "" if pd.isna(row["accuracy_high"]) else f" ± {100 * (row['accuracy_high'] - row['accuracy']):.1f}"
    some = "" if row["seeds"] == row["of_seeds"] else f" ({row['seeds']} of {row['of_seeds']} seeds)"
    return f"{100 * row['accuracy']:.1f}{half} %{some}"


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
    return ["method", "protects", "no ε", *(f"ε = {epsilon:g}" for epsilon in epsilons)], rows


def markdown(summary: pd.DataFrame) -> str:
    """The table of `by_epsilon` for a page of Markdown, with the largest mean of each epsilon in bold."""
    head, rows = by_epsilon(summary)
    known = summary.dropna(subset=["epsilon", "accuracy"]).sort_values("accuracy", kind="stable")
    last = known.drop_duplicates("epsilon", keep="last")
    best = {(method, f"ε = {epsilon:g}") for method, epsilon in zip(last["method"], last["epsilon"], strict=True)}
    shown = [
        [f"**{cell}**" if (row[0], name) in best else str(cell) for name, cell in zip(head, row, strict=True)]
        for row in rows
    ]
    return markdown_table(head, shown)


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown, of cells as they are."""
    return "".join(f"| {' | '.join(line)} |\n" for line in [head, ["---"] * len(head), *rows])
