"""The files of a sweep: a row per setting and seed, a row per setting, figures, and a page."""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import tomli_w

from runtime.files import write_atomically
from simulations.plots.figures import write_figures
from simulations.plots.style import PAPER, Drawing, pdf_bytes
from simulations.plots.sweep import sweep_drawings
from simulations.results.files import environment
from simulations.results.trackers import Tracked
from simulations.sweep.cells import Row
from simulations.sweep.grid import Sweep
from simulations.sweep.intervals import FIGURES, covered, intervals
from simulations.sweep.report import sweep_report

TRACKED = (*FIGURES, "data_seed", "seed", "epsilon_guaranteed_max")
COLUMNS = (
    "data_seed seed asked answered label_accuracy student_accuracy majority_share epsilon_mean epsilon_guaranteed_max "
    "epsilon_spent_max share_of_budget_used_min share_of_budget_used_max unit view accountant study_digest note".split()
)


def config_text(sweep: Sweep) -> str:
    """The sweep as TOML, with all that flags and overrides said: `sweep FILE` of it is the same sweep."""
    return tomli_w.dumps(sweep.document)


def write_sweep(
    sweep: Sweep, rows: Sequence[Row], out: Path, *, paper: bool = False
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Writes sweep.csv and sweep.parquet, intervals.csv, the figures and report.html; returns rows and intervals.

    paper: figures for one column of a paper, too, as PDF and SVG, and their captions.
    Raises StorageFailed; each file is whole or absent.
    """
    columns = dict.fromkeys(("setting", *sweep.varied, *COLUMNS))
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


def tracked_settings(sweep: Sweep, rows: Sequence[Row], *, name: str) -> list[Tracked]:
    """Each setting as one tracked run, with a step for each of its rows."""
    tracked = []
    for number, settings in enumerate(sweep.settings):
        own = [row for row in rows if row["setting"] == number]
        figures = [(step, {key: float(row[key]) for key in TRACKED if row.get(key) is not None})
                   for step, row in enumerate(own)]  # fmt: skip
        tracked.append(Tracked(f"{name}-{number}", settings.model_dump(mode="json", exclude_none=True), figures))
    return tracked


def printed_columns(settings: pd.DataFrame, varied: tuple[str, ...]) -> tuple[list[str], list[list[object]]]:
    """The head and the rows of the table that a terminal shows: each figure with the half-width of its interval."""
    known = [name for name in FIGURES[:4] if pd.to_numeric(settings[name]).notna().any()]
    rows: list[list[object]] = []
    for row in settings.head(40).to_dict("records"):
        shown: list[object] = [row["setting"], *(row[key] for key in varied)]
        for name in known:
            mean, high = row[name], row[f"{name}_high"]
            half = "" if high is None or pd.isna(high) else f" ± {high - mean:.3g}"
            shown.append("none" if mean is None or pd.isna(mean) else f"{mean:.4g}{half}")
        rows.append(shown)
    return ["setting", *varied, *known], rows
