"""The sub-command baselines."""

from __future__ import annotations

import json
from typing import Any  # values of flags, as click gives them

import click

from runtime.files import write_atomically
from simulations.baselines import METHODS
from simulations.commands.folder import results_folder
from simulations.exits import EXIT_CODES_OF_RUN, Interrupted
from simulations.options import given_settings, host_from, reporter_from, settings_flags, study_words, worded_settings

_OWN = ("methods", "epsilons", "features")


@click.command(name="baselines", epilog=EXIT_CODES_OF_RUN)
@study_words
@click.option("--methods", help=f"{' | '.join(METHODS)}, between commas [all].")
@click.option("--epsilons", help="Budgets, each of every party, between commas [0.5,1,2,8].")
@settings_flags
@click.option("--out", help="Folder for the results [runs/baselines-TIME].", type=click.Path())
@click.option("--resume", is_flag=True, help="Continue in --out, whose baselines.toml must be the same.")
@click.option("--json", "as_json", is_flag=True, help="Print the rows as JSON on standard output.")
@click.option("--quiet", is_flag=True, help="No progress on standard error.")
def baselines_flags(**flags: Any) -> None:
    """Compare methods on the same records at equal epsilon: PATE, private training, parties alone, pooled data.

    Every method is scored on the same test records. Each of --seeds draws split, parties, teachers and noise
    anew, but no test part that a data set has of its own, as pneumoniamnist has.
    Linear models see features of images, made of the public pool, by which records are compared, too (--features).
    Without --student, students are those of a run, and logistic regressions where few labels were released.

    \b
    Examples:
      conclave-simulate baselines --dataset adult --parties 50 --seeds 0-4 --out runs/adult
      conclave-simulate baselines --dataset heart_disease --methods alone,pooled --epsilons 1,8
    """
    from runtime.printing import wrapped
    from simulations.baselines.cells import (
        Comparison,
        check_comparison,
        comparison_settings,
        parse_epsilons,
        parse_methods,
        run_comparison,
    )
    from simulations.baselines.table import COVERED, PRIVATE_WORDS, by_epsilon, write_comparison
    from simulations.report.terminal import print_rows

    reporter, host = reporter_from(flags), host_from(flags)
    given = {**worded_settings(flags), **given_settings(flags)}
    said = {name: _words(given.get(name) if flags.get(name) is None else flags[name]) for name in _OWN}
    chosen = {name: value for name, value in given.items() if name not in _OWN}
    comparison = Comparison(
        comparison_settings(chosen),
        parse_methods(said["methods"]),
        parse_epsilons(said["epsilons"] or "0.5,1,2,8"),
        said["features"] or "auto",
    )
    check_comparison(comparison, tuple(chosen))
    out = results_folder(flags, kind="baselines", config=comparison.config)
    write_atomically(out / "baselines.toml", comparison.config)
    try:
        rows = run_comparison(comparison, host=host, reporter=reporter, kept=out / "finished")
    except KeyboardInterrupt:
        raise Interrupted(out) from None
    table, summary = write_comparison(comparison, rows, out)
    if flags["as_json"]:
        click.echo(json.dumps(table.astype(object).where(table.notna(), None).to_dict("records"), indent=2))
        return
    print_rows(f"accuracy on the test records, {out / 'report.html'}", *by_epsilon(summary))
    click.echo(wrapped(COVERED))
    click.echo(wrapped(PRIVATE_WORDS))
    for row in summary[summary["note"] != ""].to_dict("records"):
        click.echo(wrapped(f"{row['method']}, epsilon {row['epsilon']:g}: {row['note']}", rest="  "))


def _words(value: object) -> str | None:
    """A list between commas, of a flag or of a list in a file."""
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else None if value is None else str(value)
