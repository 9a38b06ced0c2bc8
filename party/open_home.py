"""Finds a home that users other than its owner can read, and fixes it before a node answers."""

from __future__ import annotations

from pathlib import Path

from party.home import PartyHome
from protocols.errors import Refused
from protocols.private_files import open_to_others, tighten
from protocols.refusals.code import Code


def mend_home(home: PartyHome) -> list[Path]:
    """Restricts the whole home to its owner; returns the paths that others could read before.

    Raises Refused("home_open"), and changes nothing, if the key could have been read: folder and file were open.
    """
    found = open_to_others(home.path)
    if home.path in found and home.key in found:
        raise Refused(
            Code.HOME_OPEN, f"{home.key} could be read by others; allowed: mode 600, in a folder with mode 700"
        )
    return tighten(home.path) if found else []
