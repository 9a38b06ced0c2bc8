"""upgrade, of a node's home."""

from __future__ import annotations

from party.commands.group import home_option
from runtime.upgrade import upgrade_command

upgrade = upgrade_command(
    "conclave-party", home_option, folder=lambda home: home.path, lock=lambda home: home.path / "run.lock"
)
