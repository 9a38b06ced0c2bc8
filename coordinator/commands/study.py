"""study create, study pool-digest: what is asked, and of whom."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any  # a row of a status

import click

from coordinator.commands.group import home_option
from runtime.cli import EPILOG, json_option
from runtime.printing import print_json, table

if TYPE_CHECKING:
    from coordinator.home import CoordinatorHome


@click.group(epilog=EPILOG)
def study() -> None:
    """Create studies."""


@study.command(epilog=EPILOG)
@click.argument("study_file", type=click.Path(path_type=Path), required=False)
@click.option("--pool", "pool_file", type=click.Path(path_type=Path), help="Public queries: npy, npz or csv.")
@click.option("--template", is_flag=True, help="Print a commented study.toml and stop.")
@home_option
@json_option
def create(
    study_file: Path | None, pool_file: Path | None, template: bool, home: CoordinatorHome, as_json: bool
) -> None:
    """Check STUDY_FILE and its pool of public queries, and store both. A study with a querier has no pool.

    \b
    Examples:
      conclave-coordinator study create --template > study.toml
      conclave-coordinator study create study.toml --pool pool.npy
    """
    from coordinator.labelling.study_creation import TEMPLATE, create_study
    from coordinator.status import study_status
    from coordinator.store.store import Store

    if template:
        click.echo(TEMPLATE, nl=False)
        return
    if study_file is None:
        raise click.UsageError("give STUDY_FILE (and --pool FILE unless the study has a querier), or --template")
    settings = home.settings()
    with Store(home) as store:
        today = datetime.datetime.now(datetime.UTC).date()
        made = create_study(store, settings, file=study_file, pool_file=pool_file, today=today)
        shown = study_status(store, made.name, set())
    file = home.study(made.name) / "study.toml"
    if as_json:
        print_json({**shown, "file": str(file)})
        return
    kind = f"queries that only {made.who_asks} sees" if made.confidentiality.hides_queries else "public queries"
    click.echo(f"study {made.name!r}, digest {made.digest.hex()[:16]}, {shown['pool']} {kind}")
    click.echo(table(*seat_rows(shown)))
    click.echo(f"next: send {file} to every hospital, which runs conclave-party approve study.toml")


@study.command(name="pool-digest", epilog=EPILOG)
@click.argument("pool_file", type=click.Path(path_type=Path))
@click.option(
    "--study", "study_file", type=click.Path(path_type=Path), help="Encode the columns of a csv as this study does."
)
@json_option
def digest(pool_file: Path, study_file: Path | None, as_json: bool) -> None:
    """Print the lines about a pool of public queries for the [terms] of a study.

    \b
    Example:
      conclave-coordinator study pool-digest pool.npy
    """
    from coordinator.labelling.pool import read_pool
    from protocols.study.file import read_deployed
    from protocols.study.queries import pool_digest

    features = () if study_file is None else read_deployed(study_file).terms.features
    pool = read_pool(pool_file, features=features)
    figures = {"input_shape": list(pool.shape[1:]), "pool_size": len(pool), "pool_sha256": pool_digest(pool)}
    if as_json:
        print_json(figures)
        return
    click.echo(f"input_shape = {figures['input_shape']}")
    click.echo(f"pool_size = {figures['pool_size']}")
    click.echo(f'pool_sha256 = "{figures["pool_sha256"]}"')


def seat_rows(shown: dict[str, Any]) -> tuple[list[str], list[list[object]]]:
    """Columns and rows for a study's seats, with the answers left first."""
    columns = ["seat", "connected", "answers left", "epsilon used", "epsilon guaranteed", "delta", "left out of"]
    rows: list[list[object]] = [
        [
            each["seat"],
            each["connected"],
            each["answers_left"],
            each["epsilon_used"],
            each["epsilon_guaranteed"],
            each["delta"],
            each["left_out"],
        ]
        for each in shown["seats"]
    ]
    return columns, rows
