from pathlib import Path

import pytest

from party.voting.trained import Manifest, read_teachers_manifest, write_teachers
from protocols.errors import DataUnavailable, StorageFailed
from tests.harness.refusals import refuses


class Saved:
    """A teacher that writes one byte."""

    def save(self, path: Path) -> None:
        path.write_bytes(b"t")
        path.chmod(0o644)


class DiskIsFull:
    """A teacher for which there is no space."""

    def save(self, path: Path) -> None:
        raise OSError(28, "No space left on device")


def manifest(records):
    return Manifest("study", "seat", records, "mlp", 2)


def test_teachers_and_their_manifest_are_for_their_owner_alone(tmp_path):
    folder = tmp_path / "teachers" / "seat"
    write_teachers(folder, [Saved(), Saved()], manifest("a"), None)
    assert read_teachers_manifest(folder) == manifest("a")
    assert sorted(each.name for each in folder.iterdir()) == ["manifest.json", "teacher-0000", "teacher-0001"]
    assert {each.stat().st_mode & 0o077 for each in (folder, *folder.iterdir())} == {0}


def test_a_full_disk_leaves_the_earlier_teachers_whole(tmp_path):
    folder = tmp_path / "seat"
    write_teachers(folder, [Saved(), Saved()], manifest("a"), None)
    with refuses(StorageFailed, "No space left on device"):
        write_teachers(folder, [Saved(), DiskIsFull()], manifest("b"), None)
    assert read_teachers_manifest(folder) == manifest("a")
    assert [each.name for each in tmp_path.iterdir()] == ["seat"]
    assert (folder / "teacher-0001").read_bytes() == b"t"


def test_a_full_disk_leaves_no_folder_where_there_was_none(tmp_path):
    with pytest.raises(StorageFailed):
        write_teachers(tmp_path / "seat", [Saved(), DiskIsFull()], manifest("a"), None)
    assert list(tmp_path.iterdir()) == []
    with refuses(DataUnavailable, "teachers"):
        read_teachers_manifest(tmp_path / "seat")
