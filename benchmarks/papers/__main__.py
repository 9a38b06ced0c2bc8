"""python -m benchmarks.papers: what papers printed, beside what is measured here."""

from __future__ import annotations

import sys
from typing import Any  # values of flags, as click gives them

import click

from benchmarks.papers import PAPERS, find_papers
from runtime.cli import CONTEXT
from simulations.commands.folder import results_folder
from simulations.commands.group import run_command
from simulations.exits import EXIT_CODES_OF_RUN, Interrupted
from simulations.options import host_flags, host_from, reporter_from


@click.command(name="python -m benchmarks.papers", epilog=EXIT_CODES_OF_RUN, context_settings=CONTEXT)
@click.argument("name", metavar=f"[list|all|{'|'.join(PAPERS)}]")
@click.option("--only", multiple=True, help="A table, by the name that `list` gives; may be repeated [all].")
@click.option("--seeds", help="Seeds of whatever is drawn: 0-9, 3 or 0,2,5-7.", default="0-4", show_default=True)
@host_flags
@click.option("--out", help="Folder for the results [runs/paper-TIME].", type=click.Path())
@click.option("--resume", is_flag=True, help="Go on in --out, whose paper.toml must be the same.")
@click.option("--json", "as_json", is_flag=True, help="Print the cells as JSON on standard output.")
@click.option("--quiet", is_flag=True, help="No progress on standard error.")
def paper_flags(**flags: Any) -> None:
    """Compute the tables of a paper again: each printed figure beside ours, with the difference.

    A percentage is near within 1 point, a count or an epsilon within 5 %. Where a paper's votes or data cannot be had,
    the row says so, or runs on the nearest data set and names it. Data sets are read from CONCLAVE_DATA.

    \b
    Examples:
      python -m benchmarks.papers list
      python -m benchmarks.papers pate2018 --only table-2 --out runs/pate2018
      python -m benchmarks.papers all --seeds 0-9 --out runs/papers
      python -m benchmarks.papers all --seeds 0-9 --resume --out runs/papers
    """
    if flags["name"] == "list":
        _list(as_json=flags["as_json"])
        return
    _measured(flags)


def _list(*, as_json: bool) -> None:
    """Prints the papers, their tables, and what data these need."""
    import json

    from simulations.report.terminal import print_rows

    rows = [
        {
            "paper": paper.name,
            "title": paper.title,
            "link": paper.link,
            "table": table.name,
            "caption": table.caption,
            "needs": sorted({source.folder for part in table.parts for source in part.needs}),
        }
        for paper in find_papers("all")
        for table in paper.tables
    ]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    columns = ["paper", "table", "caption", "needs"]
    shown: list[list[object]] = [
        [row["paper"], row["table"], row["caption"], ", ".join(row["needs"]) or "no file"] for row in rows
    ]
    print_rows("Papers and their tables; needs: folders of CONCLAVE_DATA", columns, shown)


def _measured(flags: dict[str, Any]) -> None:
    import json

    from benchmarks.papers.paper import HEAD, Measured, Task, cell_row, notes, verdict_points, verdict_text
    from benchmarks.papers.running import check_data, measure, wanted
    from benchmarks.papers.written import write_papers
    from runtime.files import write_atomically
    from runtime.printing import wrapped
    from simulations.report.terminal import print_rows
    from simulations.setup.experiment import parse_seeds

    asked = wanted(
        flags["name"], find_papers(flags["name"]), only=flags["only"], seeds=parse_seeds(str(flags["seeds"]))
    )
    host = host_from(flags)
    check_data(asked, host.data_dir)
    out = results_folder(flags, kind="paper", config=asked.config)
    write_atomically(out / "paper.toml", asked.config)
    measured: list[Measured] = []
    task = Task(asked.seeds, host, reporter_from(flags))
    try:
        for one in measure(asked, task, kept=out / "finished"):
            measured.append(one)
            if not flags["as_json"]:
                rows: list[list[object]] = [list(cell_row(cell)) for cell in one.cells]
                print_rows(f"{one.paper.name} {one.table.name}: {one.table.caption}", list(HEAD), rows)
                for note in notes(one.cells):
                    click.echo(wrapped(note, first="- ", rest="  "))
    except KeyboardInterrupt:
        raise Interrupted(out) from None
    cells = write_papers(asked, measured, out)
    if flags["as_json"]:
        click.echo(json.dumps(cells.astype(object).where(cells.notna(), None).to_dict("records"), indent=2))
        return
    click.echo(f"{verdict_text([cell for one in measured for cell in one.cells])}; {out / 'report.html'}")
    for title, said in verdict_points(measured):
        click.echo(wrapped(f"{title} {said}", first="- ", rest="  "))


if __name__ == "__main__":
    sys.exit(run_command(sys.argv[1:], paper_flags))
