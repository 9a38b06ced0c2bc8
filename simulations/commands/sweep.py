"""The sub-command sweep."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any  # values of flags, as click gives them

import click

from protocols.errors import InvalidInput
from runtime.files import write_atomically
from simulations.exits import EPILOG
from simulations.options import given_settings, host_from, reporter_from, say_defaults, settings_flags


@click.command(name="sweep", epilog=EPILOG)
@click.argument("sweep_file", type=click.Path())
@settings_flags
@click.option("--out", help="Folder for the results [runs/sweep-TIME].", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print the rows as JSON on standard output.")
@click.option("--quiet", is_flag=True, help="No progress on standard error.")
def sweep_flags(**flags: Any) -> None:
    """Run many settings on votes that are cast once: SWEEP_FILE has [base] settings and a [grid] of lists.

    \b
    Example of a file:
      [base]
      parties = 250
      seeds = "0-4"
      [grid]
      weights = ["uniform", "proportional", "exhaustive"]
      budgets = ["1.0", "2.0", "1:0.5,4:0.5"]
    """
    run_sweep_file(flags)


def run_sweep_file(flags: dict[str, Any]) -> None:
    """Runs the sweep of flags["sweep_file"], writes its table and figure, and prints the table."""
    import tomli_w

    from simulations.plots.figures import sweep_figure, write_figure
    from simulations.report.terminal import print_rows
    from simulations.results.files import environment
    from simulations.sweep import read_sweep, run_sweep

    reporter, host = reporter_from(flags), host_from(flags)
    sweep = read_sweep(Path(flags["sweep_file"]), given=given_settings(flags))
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    out = Path(flags["out"]) if flags["out"] else Path("runs") / f"sweep-{stamp}"
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InvalidInput(f"--out {out} is not empty; allowed: a new folder")
    say_defaults(sweep.settings[0], reporter, varied=sweep.varied)
    table = run_sweep(sweep, host=host, reporter=reporter)
    write_atomically(out / "sweep.csv", table.to_csv(index=False))
    write_atomically(out / "sweep.toml", tomli_w.dumps(sweep.document))
    write_atomically(out / "env.json", json.dumps(environment(), indent=2) + "\n")
    write_figure(sweep_figure(table), out / "figures" / "sweep")
    if flags["as_json"]:
        click.echo(table.to_json(orient="records", indent=2))
    else:
        hidden = {"unit", "view", "accountant", "note", "answered_ci95"} - set(sweep.varied)
        shown = [column for column in table.columns if column not in hidden]
        print_rows(f"{len(table)} settings, {out / 'sweep.csv'}", shown, table[shown].head(40).to_numpy().tolist())
        for note, times in table["note"][table["note"] != ""].value_counts().head(5).items():
            click.echo(f"{times} settings were not run: {note}")
