"""How an extra of this distribution is installed: from where the distribution itself was installed."""

from __future__ import annotations

import sys
import urllib.parse
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from protocols.errors import InvalidInput
from protocols.reading import parse_json

# The index has another project called conclave, so the name to install differs from the name to import.
DISTRIBUTION: Final = "conclave-pate"


def install(*extras: str) -> str:
    """The command that installs these extras, as this distribution was installed: from its wheel, from a copy of the
    project, or by name."""
    what, place = _installed()
    return f"pip install {what}'{place}[{','.join(extras)}]'"


def in_the_way(module: str) -> Path | None:
    """The folder or file that Python found in the place of our package in which `module` lies, such as one named
    `simulations` beside a script; None where none was."""
    room = module.partition(".")[0]
    ours = Path(__file__).parents[1] / room / "__init__.py"
    found = Path(getattr(sys.modules.get(room), "__file__", None) or ours)
    if not ours.exists() or ours.samefile(found):
        return None
    return found.parent if found.name == ours.name else found


@cache
def _installed() -> tuple[str, str]:
    """The flag of an editable copy, and what was installed: a path, or the name where pip noted none (PEP 610)."""
    try:
        note = distribution(DISTRIBUTION).read_text("direct_url.json")
        found = parse_json(note or "{}", where="direct_url.json")
    except (PackageNotFoundError, InvalidInput):
        return "", DISTRIBUTION
    found = found if isinstance(found, dict) else {}
    url = urllib.parse.urlparse(str(found.get("url", "")))
    path = urllib.parse.unquote(url.path)
    if url.scheme != "file" or not Path(path).exists():
        return "", DISTRIBUTION
    about = found.get("dir_info")
    editable = isinstance(about, dict) and about.get("editable") is True
    return "-e " if editable else "", path
