"""A home of an earlier format is copied and brought up to date; one of a later format is left alone."""

from __future__ import annotations

import json

import pytest

from coordinator.commands.group import run_command as coordinator
from guardian.commands import run_command as guardian
from party.commands.group import run_command as party
from protocols.errors import InvalidInput, Refused, StorageFailed
from runtime import home_format
from runtime.files import alone
from runtime.home_format import Migration, check_format, migrate, newest_format, pending

PROGRAMS = pytest.mark.parametrize(
    ("program", "run"), [("party", party), ("coordinator", coordinator), ("guardian", guardian)]
)


def renames(old, new):
    return Migration(f"{old} is called {new}", lambda folder: (folder / old).rename(folder / new))


STEPS = (renames("a", "b"), renames("b", "c"))


@pytest.fixture
def home(tmp_path):
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    (folder / "a").write_text("kept")
    return folder


def test_a_home_is_copied_and_then_brought_through_every_format(home):
    assert newest_format(STEPS) == 3
    assert pending(home, STEPS) == STEPS
    copy = migrate(home, STEPS)
    assert (home / "c").read_text() == "kept"
    assert copy == home.with_name("home.format-1")
    assert [path.name for path in copy.iterdir()] == ["a"]
    assert copy.stat().st_mode & 0o777 == 0o700
    check_format(home, program="conclave-party", migrations=STEPS)
    assert migrate(home, STEPS) is None


def test_a_migration_that_broke_off_goes_on_where_it_was(home):
    def breaks(folder):
        raise StorageFailed("the disk is full")

    with pytest.raises(StorageFailed, match="disk is full"):
        migrate(home, (STEPS[0], Migration("breaks", breaks)))
    assert pending(home, STEPS) == STEPS[1:]
    assert migrate(home, STEPS) == home.with_name("home.format-2")
    assert (home / "c").read_text() == "kept"


def test_nothing_is_changed_where_the_copy_cannot_be_made(home):
    home.with_name("home.format-1").mkdir()
    with pytest.raises(StorageFailed, match="nothing was changed"):
        migrate(home, STEPS)
    assert [path.name for path in home.iterdir()] == ["a"]


def test_a_home_of_another_format_is_refused_and_the_way_out_named(home):
    with pytest.raises(Refused, match=r"home_format: .* has format 1; allowed: 3: run conclave-party upgrade"):
        check_format(home, program="conclave-party", migrations=STEPS)
    (home / "format").write_text("4\n")
    for refused in (lambda: check_format(home, program="x", migrations=STEPS), lambda: migrate(home, STEPS)):
        with pytest.raises(Refused, match=r"format 4, of a later version; allowed: 3: install the version that wrote"):
            refused()


@pytest.mark.parametrize("written", ["", "two", "0", "-1", "²"])
def test_a_format_that_is_no_number_is_refused(home, written):
    (home / "format").write_text(written)
    with pytest.raises(InvalidInput, match="allowed: a number from 1"):
        home_format.home_format(home)


@PROGRAMS
def test_every_program_says_truthfully_that_there_is_nothing_to_migrate(program, run, home, capsys):
    for more in (["--check"], []):
        assert run(["upgrade", *more, "--home", str(home)]) == 0
        said = capsys.readouterr().out
        assert f"home     {home}: format 1; this version reads and writes format 1" in said
        assert "it speaks wire version 1" in said
        assert "nothing to migrate; nothing was changed, and no copy was made" in said
    assert [path.name for path in home.parent.iterdir()] == ["home"]
    assert run(["upgrade", "--home", str(home / "absent")]) == 3
    assert f"conclave-{program} init" in capsys.readouterr().err


@PROGRAMS
def test_upgrade_changes_a_home_that_nothing_runs_from(program, run, home, capsys, monkeypatch):
    monkeypatch.setattr(home_format.migrate, "__defaults__", (STEPS,))
    monkeypatch.setattr(home_format.pending, "__defaults__", (STEPS,))
    assert run(["upgrade", "--check", "--home", str(home), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["changes"], told["done"], told["wire_versions"]) == (["a is called b", "b is called c"], False, [1])
    lock = {"party": "run.lock", "coordinator": "serve.lock", "guardian": "serve.lock"}[program]
    with alone(home / lock, Refused("already_running", "here")):
        assert run(["upgrade", "--home", str(home)]) == 4
    assert "already_running" in capsys.readouterr().err
    assert (home / "a").exists()
    assert run(["upgrade", "--home", str(home)]) == 0
    assert f"the home as it was is {home}.format-1: never run from it" in capsys.readouterr().out
    assert (home / "c").exists()


@PROGRAMS
def test_no_other_command_opens_a_home_of_a_later_version(program, run, home, capsys):
    (home / "format").write_text("2\n")
    command = {"party": ["enrol"], "coordinator": ["status"], "guardian": ["status"]}[program]
    assert run([*command, "--home", str(home)]) == 4
    assert "error [home_format]: " in capsys.readouterr().err
    assert run(["upgrade", "--home", str(home)]) == 4
