"""Who can read a home, what its key's passphrase does, and what a disk that cannot be used says."""

import errno
import io
import os
import subprocess
import zipfile

import click
import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from hypothesis import given
from hypothesis import strategies as st

from party.commands.group import run_command
from party.keeping import ABOUT, Archive, read_archive, write_archive
from protocols.errors import ConclaveError, DataCorrupt, DataUnavailable, InvalidInput
from protocols.private_files import open_to_others
from runtime.cli import run_group
from runtime.exits import Exit
from runtime.key_files import read_key
from tests.harness.certifying import Certifying
from tests.harness.homes import make_member, study_file, tabled
from tests.harness.refusals import refused_for, refuses
from tests.harness.studies import deployed_study

STUDY = tabled(deployed_study(1, mechanism="thresholded_gnmax", sigma_threshold=None, teachers=2))


@pytest.fixture
def home(tmp_path):
    authority = Certifying()
    authority.make_authority()
    authority.address, authority.enrol_port = "127.0.0.1:1", 2
    return make_member(tmp_path / "a", authority, settle="", epsilon=20.0)


def call(*arguments, home):
    return run_command([*map(str, arguments), "--home", str(home.path)])


def test_everything_in_a_home_is_its_owners_alone_whatever_the_umask(home, tmp_path):
    home.certificate.chmod(0o600)  # the harness wrote it
    before = os.umask(0)
    try:
        assert call("approve", study_file(tmp_path, STUDY), "--yes", home=home) == 0
        assert call("train", "test", home=home) == 0
        assert call("home", "backup", tmp_path / "b.conclave", home=home) == 0
        assert call("withdraw", "test", "--yes", home=home) == 0
    finally:
        os.umask(before)
    assert open_to_others(home.path) == []
    assert (tmp_path / "b.conclave").stat().st_mode & 0o077 == 0


def test_every_command_notices_a_home_that_others_can_read(home, capsys):
    home.path.chmod(0o755)
    home.settings_file.chmod(0o644)
    assert call("budget", "show", home=home) == 0
    assert "warning: others could read 3 files or folders" in capsys.readouterr().err
    assert open_to_others(home.path) == []
    home.path.chmod(0o755)
    home.key.chmod(0o640)
    assert call("budget", "show", home=home) == Exit.REFUSED
    assert "error [home_open]" in capsys.readouterr().err
    assert home.key.stat().st_mode & 0o777 == 0o640  # a person decides


def test_a_key_with_a_passphrase_is_standard_and_opens_with_it_alone(home, capsys, monkeypatch, tmp_path):
    plain = read_key(home.key).private_numbers()
    monkeypatch.setenv("CONCLAVE_PASSPHRASE", "correct horse")
    assert call("home", "passphrase", home=home) == 0
    assert load_pem_private_key(home.key.read_bytes(), b"correct horse").private_numbers() == plain
    monkeypatch.setenv("CONCLAVE_PASSPHRASE", "wrong")
    with refused_for("key_locked"):
        home.open_key()
    monkeypatch.delenv("CONCLAVE_PASSPHRASE")
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert call("enrol", home=home) == Exit.REFUSED
    assert "there is no terminal; allowed: CONCLAVE_PASSPHRASE_COMMAND" in capsys.readouterr().err
    (tmp_path / "conclave-passphrase").write_text("correct horse\n")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert home.open_key().private_numbers() == plain
    assert call("home", "passphrase", "--remove", home=home) == 0
    assert load_pem_private_key(home.key.read_bytes(), None).private_numbers() == plain


def test_a_key_that_openssl_locked_is_opened_too(home, monkeypatch):
    plain = read_key(home.key).private_numbers()
    locking = ["openssl", "pkcs8", "-topk8", "-in", str(home.key), "-passout", "pass:staple", "-out", f"{home.key}.new"]
    subprocess.run(locking, check=True)
    os.replace(f"{home.key}.new", home.key)
    monkeypatch.setenv("CONCLAVE_PASSPHRASE_COMMAND", "echo staple")
    assert home.open_key().private_numbers() == plain


@pytest.mark.parametrize("fault", [errno.EROFS, errno.ENOSPC, errno.EACCES])
def test_a_disk_that_cannot_be_used_is_one_message_and_an_exit_code(fault, capsys):
    @click.group()
    def group():
        pass

    @group.command()
    def work():
        raise OSError(fault, os.strerror(fault), "/home/of/somebody")

    assert run_group(group, ["work"], program="test", extra="party") == Exit.STORAGE
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("error [storage_failed]: /home/of/somebody: ")
    assert said[1].startswith("next: ")
    assert len(said) == 2


def zipped(parts):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, data in parts.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return content.getvalue()


WHOLE = zipped({ABOUT: b'{"kind": "backup", "made": "now", "party": "a", "consortium": "b"}', "node.toml": b"x"})


def test_an_archive_gives_back_what_was_written_and_never_leaves_the_home(tmp_path):
    made = Archive("move", "now", "a", "b", {"home.id": b"1", "studies/0123456789abcdef/ledger-a+b.sqlite": b"2"})
    write_archive(tmp_path / "m", made, passphrase=None)
    assert read_archive(tmp_path / "m", passphrase=bytes) == made
    with refuses(InvalidInput, "exists"):
        write_archive(tmp_path / "m", made, passphrase=None)
    for name in ("../key.pem", "/etc/passwd", "studies/../../x", "studies/0123456789abcdef/ledger-..%2f.sqlite"):
        (tmp_path / "z").write_bytes(zipped({ABOUT: b"{}", name: b""}))
        with refuses(DataCorrupt, "the files of a home"):
            read_archive(tmp_path / "z", passphrase=bytes)
    with pytest.raises(DataUnavailable):
        read_archive(tmp_path / "none", passphrase=bytes)


@given(st.one_of(st.binary(max_size=300), st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(1, 255))))
def test_any_bytes_are_an_archive_or_one_clear_error(tmp_path_factory, bytes_or_flip):
    data = bytes_or_flip
    if isinstance(data, tuple):
        at, flip = data
        data = WHOLE[:at] + bytes([WHOLE[at] ^ flip]) + WHOLE[at + 1 :]
    file = tmp_path_factory.getbasetemp() / "fuzzed"
    file.write_bytes(data)
    try:
        assert read_archive(file, passphrase=lambda: b"x").kind in ("backup", "move")
    except ConclaveError:
        pass
