import pytest

from protocols.errors import StorageFailed
from runtime.files import folder_beside, put_in_place
from tests.harness.refusals import refuses


def names(folder):
    return sorted(each.name for each in folder.iterdir())


def test_a_filled_folder_takes_its_name_and_nothing_else_is_left(tmp_path):
    with folder_beside(tmp_path / "kept") as part:
        (part / "below").mkdir()
        (part / "below" / "file").write_text("new")
        assert not (tmp_path / "kept").exists()
        put_in_place(part, tmp_path / "kept")
    assert names(tmp_path) == ["kept"]
    assert (tmp_path / "kept" / "below" / "file").read_text() == "new"
    assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o700


def test_a_folder_that_could_not_be_filled_leaves_nothing_and_says_why(tmp_path):
    with refuses(StorageFailed, "free space"), folder_beside(tmp_path / "kept"):
        raise OSError(28, "No space left")
    assert names(tmp_path) == []


@pytest.fixture
def earlier(tmp_path):
    folder = tmp_path / "kept"
    folder.mkdir()
    (folder / "old").write_text("old")
    return folder


def test_an_earlier_folder_is_replaced_as_a_whole(earlier):
    with folder_beside(earlier) as part:
        (part / "new").write_text("new")
        put_in_place(part, earlier, replace=True)
    assert names(earlier) == ["new"]
    assert names(earlier.parent) == ["kept"]


def test_an_earlier_folder_stays_until_the_new_one_is_whole(earlier):
    with pytest.raises(StorageFailed), folder_beside(earlier):
        raise OSError(28, "No space left")
    assert names(earlier) == ["old"]
