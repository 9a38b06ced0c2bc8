"""The wheel and the source distribution: the same bytes wherever they are built, with all that an install needs."""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.harness.pages import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
ROLES = ("hospital", "operator", "guardian", "researcher", "officer", "physician")


def _script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "deploy" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


BUILD, BUNDLE, LOCK = _script("build"), _script("bundle"), _script("lock")
EPOCH = 1_700_000_000
PROJECT_WHEEL = "tiny_project-1.0-py3-none-any.whl"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Two builds, in different folders, under different masks and in different time zones."""
    made = []
    for mask, zone in ((0o022, "UTC"), (0o077, "Asia/Kathmandu")):
        place = tmp_path_factory.mktemp("build")
        before = os.umask(mask)
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("TZ", zone)
                patch.setattr(BUILD.tempfile, "tempdir", str(place))
                made.append(BUILD.build(place / "dist", epoch=EPOCH))
        finally:
            os.umask(before)
    return made


@pytest.mark.slow
def test_two_builds_are_the_same_bytes(built):
    first, second = built
    assert [path.name for path in first] == ["conclave_pate-0.1.0.tar.gz", "conclave_pate-0.1.0-py3-none-any.whl"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


@pytest.mark.slow
def test_the_wheel_holds_every_module_and_data_file_and_nothing_else(built):
    with zipfile.ZipFile(built[0][1]) as wheel:
        packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
        times = {each.date_time for each in wheel.infolist()}
    packages = ("conclave", "party", "coordinator", "guardian", "runtime", "protocols", "simulations")
    listed = subprocess.run(["git", "ls-files", "-z", *packages], cwd=ROOT, check=True, capture_output=True, text=True)
    held = listed.stdout.split("\0")
    assert packed == {name for name in held if name}
    assert len(times) == 1


@pytest.mark.slow
def test_the_metadata_say_what_an_index_shows(built):
    with zipfile.ZipFile(built[0][1]) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith("/METADATA"))
        shown = HeaderParser().parsestr(wheel.read(name).decode())
    assert (shown["Name"], shown["Version"], shown["License-Expression"]) == ("conclave-pate", "0.1.0", "Apache-2.0")
    assert shown["Description-Content-Type"] == "text/markdown"
    assert str(shown.get_payload()).startswith("# Conclave")
    assert set(shown.get_all("Provides-Extra")) == set(PROJECT["optional-dependencies"])
    assert "Programming Language :: Python :: 3.11" in shown.get_all("Classifier")


@pytest.mark.slow
def test_the_programs_of_the_wheel_run_from_it_alone(built, tmp_path):
    """Every data file is found, too: a phrase needs the words, a bound its table."""
    with zipfile.ZipFile(built[0][1]) as wheel:
        wheel.extractall(tmp_path)
    tried = (
        "import protocols.crypto.identity as f, protocols, sys;"
        "assert protocols.__file__.startswith(sys.argv[1]), protocols.__file__;"
        "print(f.phrase('00' * 32));"
        "from party.commands.group import run_command; sys.exit(run_command(['doctor', '--help']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", tried, str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "abandon-abandon" in done.stdout


def test_every_role_has_an_extra_made_of_extras_that_exist():
    extras = PROJECT["optional-dependencies"]
    for role in ROLES:
        (only,) = map(Requirement, extras[role])
        assert only.name == PROJECT["name"]
        assert only.extras <= set(extras) - set(ROLES)


@pytest.mark.slow
def test_the_source_distribution_names_no_owner(built):
    with tarfile.open(built[0][0]) as packed:
        members = packed.getmembers()
    assert {(each.uid, each.gid, each.uname, each.gname, each.mtime) for each in members} == {(0, 0, "", "", EPOCH)}
    assert {each.mode for each in members} <= {0o644, 0o755}
    assert not any(Path(each.name).is_absolute() or each.issym() or each.islnk() for each in members)


def _tiny_wheel(folder, name, *requires):
    wheel, about = folder / f"{name}-1.0-py3-none-any.whl", f"{name}-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr(f"{name}.py", "VALUE = 7\n")
        needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
        packed.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{needs}")
        packed.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        packed.writestr(f"{about}/RECORD", "")
    return wheel


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """A bundle of two small packages; a folder is in the place of an index."""
    place = tmp_path_factory.mktemp("bundle")
    part, project = _tiny_wheel(place, "tiny_part"), _tiny_wheel(place, "tiny_project", "tiny_part==1.0")
    lock = place / "lock.txt"
    lock.write_text(f"tiny_part==1.0 --hash=sha256:{hashlib.sha256(part.read_bytes()).hexdigest()}\n")
    options = ["--no-index", "--find-links", str(place)]
    digest = BUNDLE.bundle(place / "out", lock=lock, wheel=project, options=options)
    part.unlink()
    return place / "out", digest


def _install(folder, target):
    environment = {**os.environ, "PYTHON": sys.executable, "PIP_INDEX_URL": "http://127.0.0.1:1"}
    environment.pop("PYTHONPATH", None)
    return subprocess.run([folder / "install.sh", target], env=environment, capture_output=True, text=True)


@pytest.mark.slow
def test_a_bundle_is_installed_from_its_folder_alone(bundle, tmp_path):
    folder, digest = bundle
    assert hashlib.sha256((folder / BUNDLE.SUMS).read_bytes()).hexdigest() == digest
    done = _install(folder, tmp_path / "env")
    assert done.returncode == 0, done.stderr
    assert "No broken requirements" in done.stdout
    tried = "import tiny_part, tiny_project; print(tiny_part.VALUE + tiny_project.VALUE)"
    shown = subprocess.run([tmp_path / "env/bin/python", "-I", "-c", tried], capture_output=True, text=True)
    assert shown.stdout == "14\n", shown.stderr
    again = _install(folder, tmp_path / "env")
    assert again.returncode == 3
    assert "exists; allowed: a new folder" in again.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["requirements.txt", "wheels/tiny_part-1.0-py3-none-any.whl"])
def test_a_bundle_of_which_a_byte_changed_installs_nothing(bundle, tmp_path, name):
    copy = shutil.copytree(bundle[0], tmp_path / "copy")
    data = bytearray((copy / name).read_bytes())
    data[-1] ^= 1
    (copy / name).write_bytes(data)
    done = _install(copy, tmp_path / "env")
    assert done.returncode == 8
    assert "nothing was installed" in done.stderr
    assert not (tmp_path / "env").exists()


@pytest.mark.slow
def test_a_package_with_another_hash_is_not_bundled(bundle, tmp_path):
    lock = tmp_path / "lock.txt"
    lock.write_text(f"tiny_part==1.0 --hash=sha256:{'0' * 64}\n")
    options = ["--no-index", "--find-links", str(bundle[0] / "wheels")]
    with pytest.raises(subprocess.CalledProcessError):
        BUNDLE.bundle(tmp_path / "out", lock=lock, wheel=bundle[0] / "wheels" / PROJECT_WHEEL, options=options)


def test_every_role_has_a_bundle_from_a_lock_of_what_its_extra_installs():
    assert set(ROLES) <= set(BUNDLE.ROLES)
    assert set(BUNDLE.ROLES.values()) <= set(LOCK.LOCKS)
    for role in ROLES:
        (only,) = map(Requirement, PROJECT["optional-dependencies"][role])
        assert only.extras <= set(LOCK.LOCKS[BUNDLE.ROLES[role]]), role
