from __future__ import annotations

import ast
import os
import re
from pathlib import Path

import pytest

import simulations
from protocols.errors import InvalidInput, StorageFailed
from simulations.engines.engine import HostSpec
from simulations.engines.flower import Flower

ROOT = Path(simulations.__file__).parent.parent


def test_flower_and_ray_are_imported_in_one_file() -> None:
    importers = set()
    for room in ("protocols", "party", "coordinator", "simulations"):
        for file in (ROOT / room).rglob("*.py"):
            text = file.read_text(encoding="utf-8")
            for node in ast.walk(ast.parse(text)) if re.search(r"\b(flwr|ray)\b", text) else ():
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom):
                    names = [node.module or ""]
                if any(name.split(".")[0] in ("flwr", "ray") for name in names):
                    importers.add(file.relative_to(ROOT).as_posix())
    assert importers == {"simulations/engines/flower.py"}


def test_flower_and_ray_send_nothing_about_their_use() -> None:
    assert os.environ["FLWR_TELEMETRY_ENABLED"] == "0"
    assert os.environ["FLWR_DISABLE_UPDATE_CHECK"] == "1"
    assert os.environ["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1"
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"


def test_a_cluster_decides_how_many_workers_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "192.0.2.1:6379")
    with pytest.raises(InvalidInput, match="workers is 3; allowed with RAY_ADDRESS: none"):
        Flower(workers=3)


def test_a_log_that_cannot_be_written_is_said_before_anything_starts(tmp_path: Path) -> None:
    engine = Flower(workers=1, log=tmp_path / "absent" / "ray.log")
    with pytest.raises(StorageFailed, match=r"absent/ray\.log"):
        engine.run(HostSpec("tests.harness.echo_host:open_host"), ["a"], lambda exchange: None)
