import ast
import os
import re
from pathlib import Path
from types import ModuleType, SimpleNamespace

import psutil
import pytest

import simulations
from protocols.errors import EngineFailed, InvalidInput, StorageFailed
from simulations.engines.engine import HostSpec, lean
from tests.harness.refusals import refuses

ROOT = Path(simulations.__file__).parent.parent


@pytest.fixture(scope="module")
def flower() -> ModuleType:
    """Takes seconds to import, which every worker would pay when it collects tests."""
    from simulations.engines import flower

    return flower


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


def test_flower_and_ray_send_nothing_about_their_use(flower: ModuleType) -> None:
    assert os.environ["FLWR_TELEMETRY_ENABLED"] == "0"
    assert os.environ["FLWR_DISABLE_UPDATE_CHECK"] == "1"
    assert os.environ["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1"
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"


def test_a_cluster_decides_how_many_workers_there_are(flower: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "192.0.2.1:6379")
    with refuses(InvalidInput, "workers", 3, "RAY_ADDRESS"):
        flower.Flower(workers=3)


def test_a_log_that_cannot_be_written_is_said_before_anything_starts(flower: ModuleType, tmp_path: Path) -> None:
    engine = flower.Flower(workers=1, log=tmp_path / "absent" / "ray.log")
    with refuses(StorageFailed, "absent/ray.log"):
        engine.run(HostSpec("tests.harness.echo_host:open_host"), ["a"], lambda exchange: None)


def test_ray_starts_no_process_of_its_own_that_a_run_does_not_speak_to(flower: ModuleType) -> None:
    node, services = flower.ray._private.node.Node, flower.ray._private.services
    names = ("start_api_server", "start_monitor", "start_log_monitor", "start_head_processes")
    before = {name: getattr(node, name) for name in names}
    made, get_node = SimpleNamespace(all_processes={}), services.get_node
    with lean(node, services):
        node.start_monitor(made)
        node.start_log_monitor(made)
        node.start_api_server(made, include_dashboard=False, raise_on_failure=False)
    assert made.all_processes == {}
    assert {name: getattr(node, name) for name in before} == before
    assert services.get_node is get_node
    with pytest.raises(AttributeError), lean(SimpleNamespace, services):
        raise AssertionError


def test_a_start_of_ray_that_fails_is_an_engines_error_and_leaves_no_process(
    flower: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_yet(*_: object) -> None:
        raise RuntimeError("no node has this id")

    ours = {each.pid for each in psutil.Process().children(recursive=True)}
    monkeypatch.setattr(flower.ray._private.services, "get_node", not_yet)
    monkeypatch.setattr("simulations.engines.engine.START_WITHIN_S", 0.0)
    with refuses(EngineFailed, "Ray", "0 s"):
        flower.Flower(workers=1).run(HostSpec("tests.harness.echo_host:open_host"), ["a"], lambda exchange: None)
    left = [each for each in psutil.Process().children(recursive=True) if each.pid not in ours]
    assert [each.name() for each in left if each.status() != psutil.STATUS_ZOMBIE] == []
    assert not flower.ray.is_initialized()


def test_what_a_lost_host_was_asked_is_asked_of_those_that_are_left_until_none_is(
    flower: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts, asked = [], []

    class Losing:
        """Two nodes; in the first two simulations, the second is on a host that is lost before it answers."""

        def __init__(self) -> None:
            starts.append(self)

        def nodes(self) -> list[int]:
            return [1, 2]

        def replies(self, messages):
            for content, node in messages:
                if node == 2 and len(starts) < 3:
                    lost = SimpleNamespace(code=0, reason="<class 'ray.exceptions.ActorDiedError'>:<'gone'>")
                    yield SimpleNamespace(has_error=lambda: True, error=lost)
                requests = dict(content["requests"])
                asked.extend(requests)
                answers = {"parties": list(requests), "replies": list(requests.values())}
                yield SimpleNamespace(has_error=lambda: False, content={"answers": answers})

    monkeypatch.setattr(flower, "Message", lambda content, dst_node_id, **_: (content, dst_node_id))
    requests, host = {"a": b"1", "b": b"2"}, HostSpec("tests.harness.echo_host:open_host")
    for hosts, lost in ((3, False), (2, True)):
        monkeypatch.setattr(flower, "_hosts", lambda hosts=hosts: hosts)
        starts.clear()
        ask = flower._FlowerExchange(Losing, host, list(requests))
        if lost:
            with refuses(EngineFailed, "run the same command again"):
                ask(requests)
        else:
            assert ask(requests) == requests
            assert asked == ["a", "b"]
        assert len(starts) == hosts
