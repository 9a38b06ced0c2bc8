import base64
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from party.data.files import CsvFile
from party.home import PartyHome, file_name, make_home
from party.settings import read_invitation, read_settings
from protocols.errors import DataUnavailable, InvalidInput
from runtime.files import write_atomically
from tests.harness.refusals import refused_for, refuses
from tests.harness.studies import deployed_study

GOOD = """
[data]
name = "ward"
path = "records.csv"
loader = "csv"
patient = "id"
[teachers]
kind = "random_forest"
seed = 5
[lifetime.record]
epsilon = 3
delta = 1e-6
[node]
settle = false
"""
TOKEN = base64.urlsafe_b64encode(bytes(32)).decode()
INVITATION = (
    'consortium = "c"\nparty = "a"\ncoordinator = "b"\naddress = "h:1"\nenrol_address = "[::1]:2"\n'
    f'token = "{TOKEN}"\nauthority = "PEM"\n'
)


def written(tmp_path, text, name="node.toml"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_settings_are_read_with_paths_relative_to_the_file(tmp_path):
    found = read_settings(written(tmp_path, GOOD))
    assert found.data.source == CsvFile(tmp_path / "records.csv")
    assert found.lifetime["record"].epsilon == 3.0
    assert not found.settle
    assert found.policy == tmp_path / "policy.sqlite"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('name = "ward"', "", ("data.name",)),
        ('name = "ward"\npath = "records.csv"\nloader = "csv"', "", ("data.name", "data.loader")),
        ("[lifetime.record]\nepsilon = 3\ndelta = 1e-6", "", ("[lifetime.record]",)),
        ('loader = "csv"', "loader = 3", ("loader", "data.loader", 3)),
        ("seed = 5", "seed = -1", ("teachers.seed", -1, 0)),
        ("epsilon = 3", "epsilon = 0", ("epsilon", 0)),
        ("[lifetime.record]", "[lifetime.ward]", ("lifetime.ward",)),
        ("settle = false", "settle = 1", ("settle", "node.settle", 1)),
        ("settle = false", "settle = false\nmore = 1", ("node.more",)),
        ('loader = "csv"', 'loader = "pickle"', ("allowed: csv, parquet, npz, images",)),
        ("seed = 5", "seed = 5\nidle_s = 0", (1, 86400)),
        ("[data]", "[data", ("TOML",)),
    ],
)
def test_a_setting_that_is_wrong_is_named(tmp_path, old, new, words):
    with refuses(InvalidInput, *words):
        read_settings(written(tmp_path, GOOD.replace(old, new, 1)))


def test_a_lifetime_cap_of_patients_needs_the_patient_of_each_record(tmp_path):
    text = GOOD.replace("lifetime.record", "lifetime.patient")
    assert set(read_settings(written(tmp_path, text)).lifetime) == {"patient"}
    for unnamed in ("", 'patient = ""'):
        path = written(tmp_path, text.replace('patient = "id"', unnamed))
        with refuses(InvalidInput, "patient", "data.patient", "[lifetime.patient]"):
            read_settings(path)


def test_an_invitation_is_read_and_its_faults_are_named(tmp_path):
    found = read_invitation(written(tmp_path, INVITATION))
    assert (found.party, found.address, found.token) == ("a", "h:1", bytes(32))
    for old, new, words in (
        ('"h:1"', '"h"', "HOST:PORT"),
        ('"h:1"', '"h:70000"', "HOST:PORT"),
        (TOKEN, TOKEN[4:], "32 bytes"),
        (TOKEN, "!!!!", "32 bytes"),
        ('party = "a"', 'party = "a/b"', "not allowed"),
        ('"PEM"', '"PEM"\nextra = 1', "unknown key 'extra'"),
    ):
        with pytest.raises(InvalidInput, match=words):
            read_invitation(written(tmp_path, INVITATION.replace(old, new)))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_change_of_a_file_is_read_or_refused_with_file_and_key(tmp_path, data):
    reader, good = data.draw(st.sampled_from([(read_settings, GOOD), (read_invitation, INVITATION)]))
    at = data.draw(st.integers(0, len(good)))
    text = good[:at] + data.draw(st.text(max_size=8)) + good[at + data.draw(st.integers(0, 8)) :]
    path = tmp_path / "fuzz.toml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        reader(path)
    except InvalidInput as error:
        said = str(error)
    else:
        said = "fine"
    assert said


def test_a_home_is_its_owner_s_alone_and_answers_once(tmp_path):
    home = make_home(tmp_path / "home")
    assert home.path.stat().st_mode & 0o777 == 0o700
    write_atomically(home.key, b"secret")
    assert home.key.stat().st_mode & 0o777 == 0o600
    with home.running(), refused_for("already_running"), home.running():
        pass
    home.path.chmod(0o755)
    with refused_for("home_open"):
        make_home(home.path)


def test_a_study_is_found_by_name_or_digest_and_a_changed_file_is_refused(tmp_path):
    home, study = PartyHome(tmp_path), deployed_study(1)
    home.keep_study(study)
    assert home.find_study("test") == home.find_study(study.digest.hex()[:8]) == home.study(study.digest) == study
    with refuses(InvalidInput, 0, "other"):
        home.find_study("other")
    for absent in ("nowhere/study.toml", "study.toml", f"{tmp_path}/study"):
        with refuses(DataUnavailable, absent):
            home.find_study(absent)
    file = home.study_folder(study.digest) / "study.toml"
    file.write_text(file.read_text().replace("quorum = 1", "quorum = 1\nreinforce_confidence = 0.5", 1))
    with pytest.raises(InvalidInput):
        home.study(study.digest)


@given(st.text(max_size=20), st.text(max_size=20))
def test_two_seats_never_share_a_file(one, other):
    assert (file_name(one) == file_name(other)) == (one == other)
    assert "/" not in file_name(one)
    assert json.dumps(file_name(one))
