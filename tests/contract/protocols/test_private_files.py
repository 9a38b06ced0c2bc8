import contextlib
import os
import sqlite3
import stat

import pytest

from party.budget.policy import Policy
from party.home import PartyHome
from protocols.errors import StorageFailed
from protocols.ledger.database import Database
from protocols.ledger.ledger import Ledger
from protocols.private_files import open_private, open_to_others, private_database, private_folder, tighten
from runtime.cli import mend_home
from runtime.files import write_atomically
from tests.harness.refusals import refused_for

SECRETS = ("key.pem",)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@contextlib.contextmanager
def umask(value):
    before = os.umask(value)
    try:
        yield
    finally:
        os.umask(before)


def database(path):
    return contextlib.closing(Database(path, "CREATE TABLE IF NOT EXISTS a (b);"))


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o277])
@pytest.mark.parametrize("opened", [Ledger, Policy, database], ids=["ledger", "policy", "store"])
def test_a_database_and_the_files_beside_it_are_their_owners_alone_whatever_the_umask(tmp_path, opened, mask):
    path = tmp_path / "kept.sqlite"
    with umask(mask), opened(path):
        found = sorted(tmp_path.iterdir())
        assert [each.name for each in found] == ["kept.sqlite", "kept.sqlite-shm", "kept.sqlite-wal"]
        assert {mode(each) for each in found} == {0o600}


@pytest.mark.parametrize("opened", [Ledger, Policy, database], ids=["ledger", "policy", "store"])
def test_a_database_that_others_could_read_is_tightened_when_it_is_opened(tmp_path, opened):
    path = tmp_path / "kept.sqlite"
    with opened(path):
        for each in tmp_path.iterdir():
            each.chmod(0o644)
        with opened(path):
            assert {mode(each) for each in tmp_path.iterdir()} == {0o600}


def test_opening_a_database_again_does_not_drop_the_locks_of_this_process(tmp_path):
    """POSIX locks are lost when any descriptor of the file is closed."""
    path = tmp_path / "kept.sqlite"
    held = sqlite3.connect(path, isolation_level=None)
    held.execute("CREATE TABLE a (b)")
    held.execute("BEGIN EXCLUSIVE")
    private_database(path)
    child = os.fork()
    if child == 0:
        code = 1
        with contextlib.suppress(sqlite3.OperationalError):
            sqlite3.connect(path, isolation_level=None, timeout=0).execute("BEGIN IMMEDIATE")
            code = 0
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    held.close()


def test_what_is_no_file_is_no_database(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", tmp_path / "nowhere" / "kept.sqlite"):
        with pytest.raises(StorageFailed):
            private_database(path)
    assert private_database(":memory:") == ":memory:"


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o277])
def test_files_locks_and_folders_are_their_owners_alone_whatever_the_umask(tmp_path, mask):
    with umask(mask):
        private_folder(tmp_path / "a" / "b")
        write_atomically(tmp_path / "a" / "b" / "c", "text")
        write_atomically(tmp_path / "a" / "b" / "d", b"text")
        (tmp_path / "a" / "b" / "lock").touch()
        (tmp_path / "a" / "b" / "lock").chmod(0o644)
        with open_private(tmp_path / "a" / "b" / "lock", "ab"), open_private(tmp_path / "a" / "b" / "new", "wb"):
            pass
    assert {mode(each) for each in (tmp_path / "a", tmp_path / "a" / "b")} == {0o700}
    assert {mode(each) for each in (tmp_path / "a" / "b").iterdir()} == {0o600}


def test_writing_into_a_folder_of_somebodys_choice_does_not_change_the_folder(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o755)
    write_atomically(shared / "certificate.pem", b"x")
    write_atomically(shared / "other", b"x")
    private_folder(shared)
    assert mode(shared) == 0o755


def opened_home(tmp_path):
    home = PartyHome(tmp_path / "home")
    for name in ("key.pem", "policy.sqlite", "studies/ab/teachers/p0/teacher-0000"):
        path = home.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
    (home.path / "policy.sqlite").chmod(0o644)
    (tmp_path / "outside").touch()
    (tmp_path / "outside").chmod(0o644)
    (home.path / "link").symlink_to(tmp_path / "outside")
    for folder in (home.path, home.path / "studies"):
        folder.chmod(0o755)
    return home


def test_an_open_home_is_mended_whole_and_what_it_links_to_is_left(tmp_path):
    home = opened_home(tmp_path)
    found = open_to_others(home.path)
    assert home.path in found
    assert home.path / "policy.sqlite" in found
    assert mend_home(home.path, SECRETS) == found
    assert open_to_others(home.path) == []
    assert tighten(home.path) == []
    assert mode(tmp_path / "outside") == 0o644
    assert mend_home(home.path, SECRETS) == []


def test_a_home_whose_key_others_could_have_read_is_refused(tmp_path):
    home = opened_home(tmp_path)
    home.key.chmod(0o644)
    with refused_for("home_open"):
        mend_home(home.path, SECRETS)
    home.path.chmod(0o700)  # nobody came so far
    assert mend_home(home.path, SECRETS)
