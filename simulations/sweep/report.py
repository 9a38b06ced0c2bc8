"""Each setting's figures as means with 95 % confidence intervals, over what was repeated.

The files of a sweep: a row per setting and seed, a row per setting, figures, and a page.

report.html of a sweep: one self-contained page; all its numbers come from the table of intervals.
"""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Sequence
from math import isfinite
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import tomli_w

from protocols.claims.coverage import SIMULATED
from protocols.plural import at_most, counted
from protocols.study.study import ADJACENCY
from runtime.files import write_atomically
from runtime.page import cards, document, facts, lines, table, text, verdict
from simulations.plots.style import PAPER, Drawing, inline_svg, pdf_bytes, write_figures
from simulations.plots.sweep import sweep_drawings
from simulations.results.files import environment
from simulations.results.trackers import Tracked
from simulations.stages.label import mean_and_interval
from simulations.sweep.cells import CellRow, Sweep, cell_words

# Figures of a row that get an interval.
FIGURES = (
    "answered",
    "asked",
    "label_accuracy",
    "student_accuracy",
    "student_auroc",
    "epsilon_spent_max",
    "share_of_budget_used_min",
)
_CONSTANT = ("auroc_of", "majority_share", "epsilon_mean", "epsilon_guaranteed_max", "unit", "view", "accountant")


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


TRACKED = (*FIGURES, "data_seed", "seed", "epsilon_guaranteed_max")
_COLUMNS = (
    "data_seed seed asked answered label_accuracy student_accuracy student_auroc auroc_of majority_share epsilon_mean "
    "epsilon_guaranteed_max epsilon_spent_max share_of_budget_used_min share_of_budget_used_max unit view accountant "
    "study_digest note".split()
)


def config_text(sweep: Sweep) -> str:
    """The sweep as TOML, with all that flags and overrides said: `sweep FILE` of it is the same sweep."""
    return tomli_w.dumps(sweep.document)


def write_sweep(
    sweep: Sweep, rows: Sequence[CellRow], out: Path, *, paper: bool = False
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Writes sweep.csv and sweep.parquet, intervals.csv, the figures and report.html; returns rows and intervals.

    paper: figures for one column of a paper, too, as PDF and SVG, and their captions.
    Raises StorageFailed; each file is whole or absent.
    """
    columns = dict.fromkeys(("setting", *sweep.varied, *_COLUMNS))
    table = pd.DataFrame(rows).reindex(columns=[*columns])
    settings = intervals(table, sweep.varied)
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pandas(table, preserve_index=False), sink, compression="zstd")
    write_atomically(out / "sweep.parquet", sink.getvalue())
    write_atomically(out / "sweep.csv", table.to_csv(index=False))
    write_atomically(out / "intervals.csv", settings.to_csv(index=False))
    write_atomically(out / "env.json", json.dumps(environment(), indent=2) + "\n")
    drawn = sweep_drawings(settings, sweep.varied, covered=covered(settings))
    write_figures(drawn, out)
    for drawing in drawn:
        write_atomically(out / "figures" / f"{drawing.name}.pdf", pdf_bytes(drawing.figure))
    if paper:
        _write_paper(sweep_drawings(settings, sweep.varied, covered=covered(settings), look=PAPER), out)
    command = shlex.join(["conclave-simulate", "sweep", "sweep.toml"])
    page = sweep_report(sweep, settings, drawn, config=config_text(sweep), command=command)
    write_atomically(out / "report.html", page)
    return table, settings


def _write_paper(drawn: Sequence[Drawing], out: Path) -> None:
    """figures/paper/NAME.pdf and .svg of each drawing, and captions.txt."""
    folder = out / "figures" / "paper"
    for drawing in drawn:
        write_atomically(folder / f"{drawing.name}.pdf", pdf_bytes(drawing.figure, look=PAPER))
        write_atomically(folder / f"{drawing.name}.svg", drawing.svg)
    write_atomically(folder / "captions.txt", "".join(f"{each.name}: {each.caption}\n" for each in drawn))


def tracked_settings(sweep: Sweep, rows: Sequence[CellRow], *, name: str) -> list[Tracked]:
    """Each setting as one tracked run, with a step for each of its rows."""
    tracked = []
    for number, settings in enumerate(sweep.settings):
        own = [row for row in rows if row["setting"] == number]
        figures = [(step, {key: float(row[key]) for key in TRACKED if row.get(key) is not None})
                   for step, row in enumerate(own)]  # fmt: skip
        tracked.append(Tracked(f"{name}-{number}", settings.known, figures))
    return tracked


def printed_columns(settings: pd.DataFrame, varied: tuple[str, ...]) -> tuple[list[str], list[list[object]]]:
    """The head and the rows of the table that a terminal shows: each figure with the half-width of its interval."""
    known = [name for name in FIGURES[:5] if pd.to_numeric(settings[name]).notna().any()]
    rows: list[list[object]] = []
    for row in settings.head(40).to_dict("records"):
        shown: list[object] = [row["setting"], *(row[key] for key in varied)]
        rows.append(shown + [_figure(row, name).replace("\N{NO-BREAK SPACE}", " ") for name in known])
    return [each.replace("_", " ") for each in ("setting", *varied, *known)], rows


# Rows shown on the page; the rest is in intervals.csv.
_MOST_ROWS = 300
_MOST_EPSILONS = 8
# By what the best setting is told: the first that was measured.
_RANKED = ("student_accuracy", "answered")
_SHARES = ("label_accuracy", "student_accuracy", "student_auroc", "share_of_budget_used_min")


def sweep_report(sweep: Sweep, settings: pd.DataFrame, drawn: Sequence[Drawing], *, config: str, command: str) -> str:
    """The page as HTML. settings: the table of intervals; config: sweep.toml; command: what makes the same again."""
    first = sweep.settings[0]
    body = [
        _verdict(settings, sweep.varied),
        f'<p class="notice"><strong>This was a simulation.</strong> {text(SIMULATED)}</p>',
        cards(
            [
                ("Settings", str(len(settings)), f"varied: {', '.join(sweep.varied)}"),
                ("Seeds", str(len(first.seeds)), "of noise, coins and student"),
                ("Data seeds", str(len(sweep.data_seeds)), "of data, partition, teachers and who has which budget"),
                ("Afford nothing", str(int((settings["note"] != "").sum())), "settings without a label"),
            ]
        ),
        '<section aria-labelledby="figures"><h2 id="figures">Figures</h2>',
        *(
            f'<figure><div class="scroll" role="region" tabindex="0" aria-label="Figure {number}">{inline_svg(one)}'
            f"</div><figcaption>Figure {number}. {text(one.caption)}</figcaption></figure>"
            for number, one in enumerate(drawn, 1)
        ),
        "</section>",
        '<section aria-labelledby="settings"><h2 id="settings">Settings</h2>',
        table(
            "Means and 95 % intervals",
            [*(name.replace("_", " ") for name in ("setting", *sweep.varied)), "labels", "asked", "label accuracy",
             "student accuracy", "student AUROC", "most frequent class", "ε that may be published",
             "least share of a budget used"],
            [_row(row, sweep.varied) for row in settings.head(_MOST_ROWS).to_dict("records")],
        ),
        *([lines(f"{cell_words({key: row[key] for key in sweep.varied})}: {row['note']}" for row in refused)]
          if (refused := settings[settings["note"] != ""].head(_MOST_ROWS).to_dict("records")) else []),
        "</section>",
        '<section aria-labelledby="reading"><h2 id="reading">How to read it</h2>',
        lines(
            [
                covered(settings),
                *(f"AUROC on the test records: {each}." for each in settings["auroc_of"].dropna().unique()),
                f"Each ε protects one {first.unit} ({ADJACENCY}) against whoever sees the "
                f"{'labels' if first.view == 'label' else 'noisy counts'}, unless unit or view vary. It holds for one "
                "run: a hospital that took part in all of these runs would have spent the sum.",
                "Accuracies of labels and students are measured against true labels that a federation would not have. "
                "Choosing the best of many settings by them is a choice that no budget pays for.",
                "With many settings some differ by chance: an interval holds for one setting, not for the best of all.",
            ]
        ),
        "</section>",
        '<section aria-labelledby="again"><h2 id="again">Make it again</h2>',
        f"<pre>{text(command)}</pre><pre>{_kept_lines(config)}</pre>",
        facts((name, value) for name, value in environment().items() if name != "versions"),
        "</section>",
    ]  # fmt: skip
    return document(
        title=f"Sweep of {len(settings)} settings", kind="report of a simulated sweep", body="\n".join(body)
    )


def best_at_each_epsilon(settings: pd.DataFrame, varied: tuple[str, ...]) -> list[str] | None:
    """For each epsilon of a budget the setting with the best student, else the most labels; None where there is one
    epsilon, or nothing is afforded."""
    shown = settings[settings["note"] == ""]
    name = next((key for key in _RANKED if pd.to_numeric(shown[key]).notna().any()), None)
    epsilons = pd.to_numeric(shown["epsilon_guaranteed_max"]).round(6)
    if name is None or epsilons.nunique() < 2:
        return None
    ranked = _ranked(shown, name).assign(_epsilon=epsilons)
    kept = ranked.drop_duplicates("_epsilon").sort_values("_epsilon").head(_MOST_EPSILONS)
    one_budget = pd.to_numeric(shown["budgets"], errors="coerce").notna().all() if "budgets" in shown else True
    others = [key for key in varied if key not in (("budgets", "delta") if one_budget else ("delta",))]
    return [
        f"{'' if one_budget else 'largest '}ε {at_most(row['_epsilon'])}: {_figure(row, name)}"
        + (f" at {cell_words({key: row[key] for key in others})}" if others else "")
        + _and_alike(ranked[ranked["_epsilon"] == row["_epsilon"]])
        for row in kept.to_dict("records")
    ]


def _ranked(settings: pd.DataFrame, name: str) -> pd.DataFrame:
    """The settings with the most of this figure first; those of the same in the order given."""
    return settings.assign(_rank=pd.to_numeric(settings[name])).sort_values("_rank", ascending=False, kind="stable")


def _and_alike(ranked: pd.DataFrame) -> str:
    alike = int((ranked["_rank"] == ranked["_rank"].iloc[0]).sum()) - 1
    return f", and of {counted(alike, 'other setting')}" if alike else ""


def _verdict(settings: pd.DataFrame, varied: tuple[str, ...]) -> str:
    """The setting with the best student, else the best labels, and whether its interval is apart from the next."""
    shown = settings[settings["note"] == ""]
    name = next((key for key in _RANKED if pd.to_numeric(shown[key]).notna().any()), None)
    if name is None:
        return verdict("No setting affords a label.", tone="warn")
    ranked = _ranked(shown, name)
    best = ranked.iloc[0]
    what = "the best student" if name == "student_accuracy" else "the most labels"
    said = f"{what[0].upper()}{what[1:]}: {_figure(best, name)}, at {cell_words({key: best[key] for key in varied})}"
    said += f"{_and_alike(ranked)}."
    points = [("Intervals:", covered(settings))]
    epsilons = pd.to_numeric(ranked["epsilon_guaranteed_max"])
    if (each := best_at_each_epsilon(settings, varied)) is not None:
        if best["epsilon_guaranteed_max"] == epsilons.max():
            said += " It is also the least private of them."
        points.append(("The best at each ε:", f"{'; '.join(each)}."))
    worse = ranked[ranked["_rank"] < best["_rank"]]
    if len(worse) and best["repetitions"] > 1:
        second = worse.iloc[0]
        apart = best[f"{name}_low"] > second[f"{name}_high"]
        points.append(
            (
                "Is it better than the next?",
                f"The next has {_figure(second, name)}. "
                + ("Their intervals do not overlap." if apart else "Their intervals overlap: it may be chance."),
            )
        )
    return verdict(said, points)


def _row(row: dict[object, object], varied: tuple[str, ...]) -> list[object]:
    epsilon, majority = row["epsilon_guaranteed_max"], row["majority_share"]
    return [
        row["setting"], *(row[key] for key in varied),
        *(_figure(row, name) for name in ("answered", "asked", "label_accuracy", "student_accuracy", "student_auroc")),
        "none" if not _known(majority) else f"{100 * float(majority):.1f} %",  # type: ignore[arg-type]  # a number
        "none" if not _known(epsilon) else at_most(float(epsilon)),  # type: ignore[arg-type]  # a number
        _figure(row, "share_of_budget_used_min"),
    ]  # fmt: skip


def _figure(row: object, name: str) -> str:
    """A figure with the half-width of its interval."""
    mean, high = row[name], row[f"{name}_high"]  # type: ignore[index]  # a row, as a dict or a series
    if not _known(mean):
        return "none"
    scale, unit = (100, " %") if name in _SHARES else (1, "")
    half = f" ± {scale * (float(high) - float(mean)):.1f}" if _known(high) else ""
    return f"{scale * float(mean):.1f}{half}{unit}".replace(" ", "\N{NO-BREAK SPACE}")


def _known(value: object) -> bool:
    return isinstance(value, int | float) and isfinite(value)


def _kept_lines(config: str) -> str:
    return "\n".join(text(line) for line in config.splitlines())
