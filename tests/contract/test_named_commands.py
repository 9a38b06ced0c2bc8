"""Every command that a page of a release, or a sentence about protection, tells its reader to run is one."""

import re

import click
import pytest

from coordinator.commands.group import cli as coordinator
from party.commands.group import cli as party
from tests.harness.pages import ROOT

PROGRAMS = {"party": party, "coordinator": coordinator}
SAYS = [*(ROOT / "coordinator/release").rglob("*.j2"), ROOT / "coordinator/release/statement.py"]
SAYS += sorted((ROOT / "protocols/claims").glob("*.py"))
NAMED = {found for path in SAYS for found in re.findall(r"conclave-(party|coordinator) ([a-z ]+)", path.read_text())}


@pytest.mark.parametrize(("program", "words"), sorted(NAMED))
def test_a_command_that_is_named_exists(program, words):
    command = PROGRAMS[program]
    for word in words.split():
        if not isinstance(command, click.Group):
            break
        command = command.get_command(click.Context(command), word)
        assert command is not None, f"conclave-{program} {words}"
