"""passphrase, of a coordinator's keys."""

from __future__ import annotations

from coordinator.commands.group import home_option
from runtime.cli import passphrase_command

passphrase = passphrase_command(
    "conclave-coordinator", home_option, keys=lambda home: [home.key_file, home.authority_key_file], runs="serve"
)
