"""The sub-command sweep."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any  # values of flags, as click gives them

import click

from runtime.files import write_atomically
from simulations.commands.folder import results_folder
from simulations.exits import EXIT_CODES_OF_RUN, Interrupted
from simulations.options import (
    given_settings,
    host_from,
    overrides_from,
    reporter_from,
    say_defaults,
    settings_flags,
    track_flag,
    tracker_from,
)


@click.command(name="sweep", epilog=EXIT_CODES_OF_RUN)
@click.argument("sweep_file", type=click.Path())
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@settings_flags
@click.option("--out", help="Folder for the results [runs/sweep-TIME].", type=click.Path())
@click.option("--resume", is_flag=True, help="Continue in --out, whose sweep.toml must be the same.")
@click.option(
    "--parallel",
    is_flag=True,
    help="Run the settings side by side in the engine's workers (--workers), on "
    "several hosts if RAY_ADDRESS names a cluster. The rows are the same.",
)
@click.option(
    "--style",
    help="page, or paper: figures for one column of a paper, too (3.3 inches; PDF and SVG) [page].",
    type=click.Choice(["page", "paper"]),
)
@track_flag
@click.option("--json", "as_json", is_flag=True, help="Print the rows as JSON on standard output.")
@click.option("--quiet", is_flag=True, help="No progress on standard error.")
def sweep_flags(**flags: Any) -> None:
    """Run many settings on votes that are cast once: SWEEP_FILE has [base] settings and a [grid] of lists.

    KEY=VALUE overrides [base]; KEY=[A,B] is a list of the grid.

    \b
    Example of a file:
      [base]
      parties = 250
      seeds = "0-4"
      data_seed = "0-4"
      [grid]
      weights = ["uniform", "proportional", "exhaustive"]
      budgets = ["1.0", "2.0", "1:0.5,4:0.5"]
    """
    from runtime.printing import wrapped
    from simulations.report.terminal import print_rows
    from simulations.sweep.cells import prepared, read_sweep, run_apart, run_cells
    from simulations.sweep.report import (
        best_at_each_epsilon,
        config_text,
        covered,
        printed_columns,
        tracked_settings,
        write_sweep,
    )

    reporter, host = reporter_from(flags), host_from(flags)
    tracker = tracker_from(flags)
    sweep = read_sweep(
        Path(flags["sweep_file"]), given=given_settings(flags), overrides=overrides_from(flags["overrides"], lists=True)
    )
    out = results_folder(flags, kind="sweep", config=config_text(sweep))
    say_defaults(sweep.settings[0], reporter, varied=sweep.varied)
    cells = prepared(sweep, host=host, reporter=reporter)
    write_atomically(out / "sweep.toml", config_text(sweep))
    try:
        if flags["parallel"]:
            run_apart(cells, host=host, reporter=reporter, kept=out / "finished")
        rows = run_cells(cells, sweep, host=host, reporter=reporter, kept=out / "finished")
        with reporter.stage("report"):
            table, settings = write_sweep(sweep, rows, out, paper=flags["style"] == "paper")
            if tracker is not None:
                tracker.track(tracked_settings(sweep, rows, name=out.name))
    except KeyboardInterrupt:
        raise Interrupted(out) from None
    if flags["as_json"]:
        click.echo(json.dumps(table.astype(object).where(table.notna(), None).to_dict("records"), indent=2))
        return
    head, shown = printed_columns(settings, sweep.varied)
    print_rows(f"{len(settings)} settings, {out / 'report.html'}", head, shown)
    for best in best_at_each_epsilon(settings, sweep.varied) or ():
        click.echo(wrapped(f"best at {best}", rest="  "))
    click.echo(wrapped(covered(settings)))
    for note, times in settings["note"][settings["note"] != ""].value_counts().head(5).items():
        click.echo(wrapped(f"{times} of the settings afford nothing: {note}", rest="  "))
