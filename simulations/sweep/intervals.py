"""Each setting's figures as means with 95 % confidence intervals, over what was repeated."""

from __future__ import annotations

import numpy as np
import pandas as pd

from simulations.stages.label import mean_and_interval

# Figures of a row that get an interval.
FIGURES = (
    "answered",
    "asked",
    "label_accuracy",
    "student_accuracy",
    "epsilon_spent_max",
    "share_of_budget_used_min",
)
_CONSTANT = ("majority_share", "epsilon_mean", "epsilon_guaranteed_max", "unit", "view", "accountant")


def intervals(rows: pd.DataFrame, varied: tuple[str, ...]) -> pd.DataFrame:
    """One row per setting: each figure's mean, and the ends `_low` and `_high` of its interval (empty for one value).

    rows: one per setting, data seed and seed. Where there are several data seeds the interval is Student's t over the
    means of the partitions, which are independent, whatever the noise within each: it covers data, partition,
    teachers, noise and student. With one data seed it is Student's t over the seeds of that one partition, and covers
    noise and student alone. `repeated` says which, and `repetitions` how many values the interval rests on. Values are
    taken to be about normal; an end may lie outside of [0, 1].
    """
    found = []
    for _, of_setting in rows.groupby("setting", sort=True):
        first = of_setting.iloc[0]
        several = of_setting["data_seed"].nunique() > 1
        row = {
            **{key: first[key] for key in ("setting", *varied)},
            "repeated": "data seeds" if several else "seeds",
            "repetitions": int(of_setting["data_seed" if several else "seed"].nunique()),
        }
        for name in FIGURES:
            values = pd.to_numeric(of_setting[name]) if name in of_setting else pd.Series(dtype=float)
            known = values.groupby(of_setting["data_seed"]).mean() if several else values
            row |= _interval(name, known.dropna().to_numpy(dtype=np.float64))
        for name in _CONSTANT:
            # The majority's share differs between data seeds where data are drawn anew.
            shown = of_setting[name] if name in of_setting else pd.Series(dtype=object)
            numeric = pd.api.types.is_numeric_dtype(shown)
            row[name] = (shown.mean() if numeric else first.get(name)) if len(shown) else None
        notes = of_setting["note"][of_setting["note"] != ""]
        found.append({**row, "note": "" if notes.empty else notes.iloc[0]})
    return pd.DataFrame(found)


def _interval(name: str, values: np.ndarray) -> dict[str, float | None]:
    if len(values) == 0:
        return {name: None, f"{name}_low": None, f"{name}_high": None}
    mean, half = mean_and_interval(values)
    return {
        name: mean,
        f"{name}_low": None if half is None else mean - half,
        f"{name}_high": None if half is None else mean + half,
    }


def covered(table: pd.DataFrame) -> str:
    """In one sentence, what the intervals of a table are and what they leave out."""
    first = table.iloc[0]
    if first["repetitions"] < 2:
        return 'No intervals: one seed and one partition. Give seeds = "0-4" and data_seed = "0-4".'
    if first["repeated"] == "data seeds":
        return (
            f"95 % confidence intervals: Student's t over {first['repetitions']} data seeds. They cover data, "
            "partition, teachers, noise and student."
        )
    return (
        f"95 % confidence intervals: Student's t over {first['repetitions']} seeds of one partition. They cover noise "
        'and student alone; another partition may lie outside of them: give data_seed = "0-4".'
    )
