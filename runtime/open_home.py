"""Finds a home that users other than its owner can read, and closes it before a command uses it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from protocols.errors import Refused
from protocols.private_files import open_to_others, tighten
from protocols.refusals.code import Code


def mend_home(home: Path, secrets: Iterable[str]) -> list[Path]:
    """Restricts a home to its owner; returns the paths that others could read before.

    secrets: names of its private keys; a folder that holds none of them is no home, and stays as it is. Raises
    Refused("home_open"), and changes nothing, if one could have been read: folder and file were open.
    """
    keys = [home / name for name in secrets if (home / name).exists()]
    found = open_to_others(home) if keys else []
    for key in keys:
        if home in found and key in found:
            raise Refused(
                Code.HOME_OPEN,
                f"{key} could be read by others; allowed: mode 600, in a folder with mode 700: ask who may have read "
                f"it, then: chmod 700 {home}",
            )
    return tighten(home) if found else []


def mend_and_say(home: Path, secrets: Iterable[str]) -> None:
    """As mend_home, and says on standard error what others could read."""
    found = mend_home(home, secrets)
    if found:
        named = ", ".join(str(each.relative_to(home)) for each in found[:3])
        click.echo(
            f"warning: others could read {len(found)} files or folders of {home} ({named}); they are closed now: check "
            "who copied files there, and as whom",
            err=True,
        )
