"""The distribution of these packages: its name on the Python index, its version, and how to install an extra.

The index has another project called conclave, so the name to install differs from the name to import.
"""

from __future__ import annotations

from typing import Final

DISTRIBUTION: Final = "conclave-pate"


def installed_version() -> str:
    """The version that is installed, as pyproject.toml has it."""
    from importlib.metadata import version  # slow to import, and not needed by --help

    return version(DISTRIBUTION)


def install(*extras: str) -> str:
    """The command that installs these extras."""
    return f"pip install '{DISTRIBUTION}[{','.join(extras)}]'"
