"""A home of another version's format is left alone, by every program."""

import pytest

from coordinator.commands.group import run_command as coordinator
from guardian.commands import run_command as guardian
from party.commands.group import run_command as party


@pytest.mark.parametrize("written", ["2\n", "", "two", "0", "-1", "²"])
@pytest.mark.parametrize(("run", "command"), [(party, "enrol"), (coordinator, "status"), (guardian, "status")])
def test_no_command_opens_a_home_of_another_format(run, command, written, tmp_path, capsys):
    (tmp_path / "format").write_text(written)
    assert run([command, "--home", str(tmp_path)]) == 4
    assert "error [home_format]: " in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["format"]
