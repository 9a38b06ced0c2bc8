"""The sub-commands accountants and compare, which print a table."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from simulations.exits import EXIT_CODES


@click.command(name="accountants")
@click.option("--json", "as_json", is_flag=True, help="Print the table as JSON.")
def accountants_flags(as_json: bool) -> None:
    """List the accountants: what each figure means, and whether it charges budgets and may be published."""
    from simulations.report.terminal import print_rows
    from simulations.setup.accountants import accountant_table

    table = accountant_table()
    if as_json:
        click.echo(json.dumps([asdict(row) | {"publishable": row.charges} for row in table], indent=2))
    else:
        print_rows(
            "Accountants; adjacency replace-one. Those that do not charge are private figures.",
            ["name", "charges", "statement", "unit", "view", "noise"],
            [[row.name, "yes" if row.charges else "no", row.statement, row.unit, row.view, row.noise] for row in table],
        )


@click.command(name="compare", epilog=EXIT_CODES)
@click.argument("run_a", type=click.Path())
@click.argument("run_b", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON.")
def compare_flags(run_a: str, run_b: str, as_json: bool) -> None:
    """Compare two runs: settings that differ, figures, and whether they are comparable at all."""
    from simulations.report.compare import compare_runs

    comparison = compare_runs(Path(run_a), Path(run_b))
    if as_json:
        click.echo(json.dumps(asdict(comparison), indent=2))
    else:
        comparison.show()
