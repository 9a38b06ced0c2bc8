"""upgrade: what a new version of the software changes in a home, and doing it. Every program has this command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any  # a home of any program

import click

from protocols.errors import DataUnavailable, Refused
from protocols.installing import DISTRIBUTION
from protocols.refusals.code import Code
from runtime.cli import EPILOG, json_option
from runtime.distribution import installed_version
from runtime.printing import print_json


def upgrade_command(
    program: str, home_option: Callable[[Any], Any], *, folder: Callable[[Any], Path], lock: Callable[[Any], Path]
) -> click.Command:
    """The command of one program. folder, lock: of its home; the lock is held while the program runs from the home."""

    @click.command("upgrade", epilog=EPILOG)
    @click.option("--check", is_flag=True, help="Only say what would change.")
    @home_option
    @json_option
    def upgrade(check: bool, home: Any, as_json: bool) -> None:
        from protocols.wire.frames import WIRE_VERSIONS
        from runtime.files import alone
        from runtime.home_format import home_format, migrate, newest_format, pending

        place = folder(home)
        if not place.is_dir():
            raise DataUnavailable(f"{place} is no home; allowed: a folder that {program} init made")
        found, steps, copy = home_format(place), pending(place), None
        if steps and not check:
            running = Refused(Code.ALREADY_RUNNING, f"{program} runs from {place}; allowed: to stop it first")
            with alone(lock(home), running):
                copy = migrate(place)
        if as_json:
            print_json(
                {
                    "version": installed_version(),
                    "wire_versions": list(WIRE_VERSIONS),
                    "home": str(place),
                    "format": found,
                    "newest_format": newest_format(),
                    "changes": [step.change for step in steps],
                    "done": bool(steps) and not check,
                    "copy": None if copy is None else str(copy),
                }
            )
            return
        click.echo(f"version  {DISTRIBUTION} {installed_version()}; it speaks wire version {_all(WIRE_VERSIONS)}")
        click.echo(f"home     {place}: format {found}; this version reads and writes format {newest_format()}")
        if not steps:
            click.echo("nothing to migrate; nothing was changed, and no copy was made")
        for step in steps:
            click.echo(f"change   {step.change}")
        if copy is not None:
            click.echo(f"done     the home as it was is {copy}: never run from it once this home has answered anything")
        elif steps:
            click.echo(f"next     stop {program}, and run: {program} upgrade")

    upgrade.help = f"""Say what this version of the software changes in the home's files, and change it.

    Install the new version first. The home is copied beside itself before anything is changed. So far there is one
    format, so there is nothing to migrate.

    \b
    Examples:
      {program} upgrade --check
      {program} upgrade
    """
    return upgrade


def _all(versions: tuple[int, ...]) -> str:
    return ", ".join(map(str, versions))
