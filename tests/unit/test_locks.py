"""requirements/*.txt say every version and hash of what pyproject.toml asks for, and nothing of where it came from."""

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
_SPEC = importlib.util.spec_from_file_location("lock", ROOT / "deploy" / "lock.py")
LOCK = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(LOCK)
FILES = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "requirements").glob("*.txt")}


def locked(name: str) -> dict[str, list[str]]:
    """The versions of each package in a file; several for several platforms."""
    found: dict[str, list[str]] = {}
    for package, version in re.findall(r"^([\w.-]+)==([\w.+!]+)", FILES[name], re.MULTILINE):
        found.setdefault(canonicalize_name(package), []).append(version)
    return found


def test_there_is_a_file_for_every_set_of_extras_and_one_for_the_build():
    assert set(FILES) == {*LOCK.LOCKS, LOCK.BUILD}


@pytest.mark.parametrize("name", list(LOCK.LOCKS))
def test_every_requirement_of_the_project_is_locked_at_a_version_that_it_allows(name):
    wanted = list(PROJECT["dependencies"])
    for extra in LOCK.LOCKS[name]:
        wanted += PROJECT["optional-dependencies"][extra]
    versions = locked(name)
    for requirement in map(Requirement, wanted):
        found = versions.get(canonicalize_name(requirement.name), [])
        assert any(requirement.specifier.contains(version) for version in found), f"{requirement}: {found}"
        assert all(requirement.specifier.contains(version) for version in found), f"{requirement}: {found}"


@pytest.mark.parametrize("name", list(FILES))
def test_every_package_has_hashes_and_no_address(name):
    for entry in re.split(r"\n(?=\S)", FILES[name].strip()):
        if entry.startswith("#"):
            continue
        assert re.match(r"[\w.-]+==[\w.+!]+( ; [^\\]+)? \\\n", entry), entry.splitlines()[0]
        assert re.fullmatch(r"(\s+--hash=sha256:[0-9a-f]{64}( \\)?)+", entry.partition("\\")[2]), entry[:80]
    assert "://" not in FILES[name]


@pytest.mark.parametrize("kind", ["party", "coordinator"])
def test_an_image_installs_only_what_is_locked(kind):
    text = (ROOT / "deploy" / f"Containerfile.{kind}").read_text(encoding="utf-8")
    locks = re.findall(r"^ARG LOCK=(\S+)$|^# LOCK: (\S+) ", text, re.MULTILINE)
    assert {name for pair in locks for name in pair if name} <= set(LOCK.LOCKS)
    installs = re.findall(r"pip (?:--python \S+ )?(?:install|wheel) (.*?)(?=&&|\n\n|$)", text, re.DOTALL)
    assert len(installs) == 4
    assert all("--require-hashes" in each or "--no-deps" in each for each in installs)
