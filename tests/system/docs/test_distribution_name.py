"""The distribution is installed under its own name everywhere: the Python index has another project called conclave."""

import re
import tomllib
from pathlib import Path

from protocols.installing import DISTRIBUTION
from runtime.distribution import installed_version
from tests.harness.pages import ROOT

_ENDINGS = (".py", ".md", ".toml", ".yaml", ".ipynb", ".service", ".coordinator", ".party", "")
_OLD = re.compile(
    r"""conclave\[                                # conclave[party]
    |(?:version|distribution|requires)\(\s*["']conclave["']
    |package_name\s*=\s*["']conclave["']
    |pip\ (?:install|download)\ (?:[^\n]*\s)?["']?conclave(?![\w/.-])""",
    re.VERBOSE,
)


def test_no_file_names_the_other_project_as_what_to_install() -> None:
    rooms = "conclave party coordinator guardian runtime protocols simulations tests benchmarks docs deploy .ci".split()
    paths = [path for room in rooms for path in (ROOT / room).rglob("*") if path.suffix in _ENDINGS and path.is_file()]
    paths += [path for path in ROOT.glob("*") if path.suffix in _ENDINGS and path.is_file()]
    assert len(paths) > 500
    found = []
    for path in paths:
        if path != Path(__file__).resolve():
            text = path.read_text(encoding="utf-8", errors="replace")
            found += [f"{path.relative_to(ROOT)}: {match[0]}" for match in _OLD.finditer(text)]
    assert found == []


def test_what_is_installed_is_the_distribution_of_this_repository() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == DISTRIBUTION
    assert project["version"] == installed_version()
    assert {"party", "coordinator", "sim", "sklearn", "onnx"} <= set(project["optional-dependencies"])


def test_every_package_says_to_type_checkers_that_it_is_typed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "py.typed" in project["tool"]["setuptools"]["package-data"]["*"]
    for package in project["tool"]["mypy"]["packages"]:
        if not package.startswith("benchmarks"):  # which no distribution holds
            assert (ROOT / package / "py.typed").is_file(), package
