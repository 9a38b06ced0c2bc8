import stat

import pytest

from coordinator.home import CoordinatorHome, CoordinatorSettings, settings_toml
from protocols.errors import DataUnavailable, InvalidInput, StorageFailed
from runtime.files import write_atomically
from tests.harness.operators import SETTINGS
from tests.harness.refusals import refuses


def test_settings_are_read_as_they_were_written(tmp_path):
    home = CoordinatorHome(tmp_path)
    write_atomically(home.settings_file, settings_toml(SETTINGS))
    assert home.settings() == SETTINGS


def test_every_setting_is_explained_in_the_file():
    lines = settings_toml(SETTINGS).splitlines()
    for key in CoordinatorSettings.__dataclass_fields__:
        at = next(number for number, line in enumerate(lines) if line.startswith(f"{key} ="))
        assert lines[at - 1].startswith("# ")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('colour = "red"', ("colour",)),
        ("metrics_port = 70000", (0, 65535)),
        ("metrics_port = true", ("metrics_port", "True")),
        ("certificate_days = 0", (1, 825)),
        ('listen = "nowhere"', ("HOST", "PORT")),
        ('coordinator = "../x"', ("is not allowed",)),
        ("= 1", ("TOML",)),
    ],
)
def test_a_wrong_setting_is_named(tmp_path, line, said):
    home = CoordinatorHome(tmp_path)
    key = line.partition(" ")[0]
    kept = [each for each in settings_toml(SETTINGS).splitlines() if not each.startswith(f"{key} =")]
    write_atomically(home.settings_file, "\n".join([*kept, line]))
    with refuses(InvalidInput, *said):
        home.settings()


def test_a_missing_setting_and_a_missing_home_are_told_apart(tmp_path):
    home = CoordinatorHome(tmp_path)
    with refuses(DataUnavailable, "init"):
        home.settings()
    write_atomically(home.settings_file, 'consortium = "heart"')
    with refuses(InvalidInput, "coordinator"):
        home.settings()


def test_a_private_file_is_its_owners_alone_and_its_folder_too(tmp_path):
    write_atomically(tmp_path / "new" / "key.pem", b"secret")
    assert stat.S_IMODE((tmp_path / "new" / "key.pem").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


def test_a_file_that_cannot_be_written_leaves_what_was_there(tmp_path):
    (tmp_path / "file").mkdir()
    (tmp_path / "file" / "inside").write_text("kept")
    with pytest.raises(StorageFailed, match="cannot write"):
        write_atomically(tmp_path / "file", b"other")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
