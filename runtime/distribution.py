"""The distribution that these packages come in: its name on the Python index, its version, how an extra is installed.

The index has another project called conclave, so that the name to install is not the name to import.
"""

from __future__ import annotations

from typing import Final

DISTRIBUTION: Final = "conclave-pate"


def installed_version() -> str:
    """The version that is installed, as pyproject.toml has it."""
    from importlib.metadata import version  # slow, and of no use to --help

    return version(DISTRIBUTION)


def install(*extras: str) -> str:
    """The command that installs these extras."""
    return f"pip install '{DISTRIBUTION}[{','.join(extras)}]'"
