"""The sub-command schema."""

from __future__ import annotations

from pathlib import Path

import click

from protocols.errors import InvalidInput
from runtime.files import write_atomically
from simulations.exits import EXIT_CODES


@click.command(name="schema", epilog=EXIT_CODES)
@click.argument("file", type=click.Path())
@click.option(
    "--label", help="The column to predict [the first of label, labels, outcome, target, class, diagnosis, species, y]."
)
@click.option("--text", multiple=True, help="A column of texts, such as notes; may be given again [none].")
@click.option("--out", help="Write it to this file, which must be new [standard output].", type=click.Path())
def schema_flags(file: str, label: str | None, text: tuple[str, ...], out: str | None) -> None:
    """Propose the schema of your own CSV, Parquet or JSON lines table, from its columns and values, for you to correct.

    \b
    Example:
      conclave-simulate schema clinic.csv --label outcome --out clinic.schema.toml
    """
    from simulations.datasets.own import table_name
    from simulations.datasets.proposed_schema import proposed_schema

    path = Path(file)
    table_name(path)
    proposed = proposed_schema(path, label=label, text=text)
    for note in proposed.notes:
        click.echo(f"note: {note}", err=True)
    if out is None:
        click.echo(proposed.text, nl=False)
        return
    if Path(out).exists():
        raise InvalidInput(f"--out {out} exists; allowed: a new file")
    write_atomically(Path(out), proposed.text)
