"""The command demo: a whole consortium on one machine, from nothing to a verified release."""

from __future__ import annotations

import signal
from pathlib import Path

import click

from runtime.cli import EPILOG, json_option
from runtime.printing import print_json


@click.command(epilog=EPILOG)
@click.option(
    "--out",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("conclave-demo"),
    show_default=True,
    help="A folder for everything that the demo creates: a new one, or an earlier demo's, which it replaces.",
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="CONCLAVE_DATA",
    show_envvar=True,
    help="Folder of data sets: its copy of heart_disease is used, if it has one, instead of that of the package.",
)
@click.option(
    "--confidentiality",
    "level",
    type=click.Choice(["clear", "two_server"]),
    default="clear",
    show_default=True,
    help="clear: the coordinator sees votes; two_server: nobody does, and a guardian runs too.",
)
@click.option(
    "--votes-by",
    type=click.Choice(["record", "teacher"]),
    default="record",
    show_default=True,
    help="record: each record votes once, with its own label; teacher: models trained on records vote on each query.",
)
@json_option
def demo(folder: Path, data_dir: Path | None, level: str, votes_by: str, as_json: bool) -> int:
    """Run one coordinator and four hospitals as real processes on this machine, up to a verified release.

    The patients of four real hospitals come with the package. It takes about a minute; nothing leaves the machine. It
    ends with one sentence, was it worth joining?, one page, and a file of every command that was called.

    \b
    Examples:
      conclave-party demo
      conclave-party demo --out demo --data-dir ~/data
      conclave-party demo --confidentiality two_server
      conclave-party demo --votes-by teacher
    """
    from party.demo.demo import run_demo
    from party.demo.figures import in_words

    def say(line: str) -> None:
        click.echo(line, err=as_json)

    # As Ctrl-C does: the servers end too.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        figures = run_demo(folder, data_dir=data_dir, say=say, level=level, votes_by=votes_by)
    finally:
        signal.signal(signal.SIGTERM, before)
    if as_json:
        print_json(figures)
    else:
        click.echo(f"\n{in_words(figures)}")
    return 0
