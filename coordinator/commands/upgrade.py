"""upgrade, of a coordinator's home."""

from __future__ import annotations

from coordinator.commands.group import home_option
from runtime.upgrade import upgrade_command

upgrade = upgrade_command(
    "conclave-coordinator", home_option, folder=lambda home: home.folder, lock=lambda home: home.lock_file
)
