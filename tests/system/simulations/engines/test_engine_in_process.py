import os
import sys
import threading
from pathlib import Path

import pytest

from protocols.errors import EngineFailed
from simulations.engines.engine import Exchange, HostSpec
from simulations.engines.in_process import InProcessEngine, beside
from tests.harness.refusals import refuses

HOST = """
import os, pathlib, signal, sys, time

class Host:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.handled = 0

    def handle(self, requests):
        for party, request in requests.items():
            if request == b"exit":
                os._exit(7)
            if request == b"wait":
                time.sleep(60)
            self.handled += 1
            yield party, f"{os.getpid()} {self.handled} {sorted(requests)}".encode()

def open_host(folder):
    return Host(folder)

def open_broken(folder):
    raise RuntimeError("this factory is broken")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the import path with the module counting_host."""
    (tmp_path / "counting_host.py").write_text(HOST)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_a_party_stays_with_its_worker_and_the_host_keeps_its_memory(folder: Path) -> None:
    def body(exchange: Exchange) -> list[dict[str, bytes | None]]:
        return [exchange(dict.fromkeys("abc", b"x")) for _ in range(2)]

    spec = HostSpec("counting_host:open_host", {"folder": str(folder)})
    first, second = InProcessEngine(workers=2).run(spec, ["a", "b", "c"], body)
    process_of = {party: (reply or b"").split()[0] for party, reply in first.items()}
    assert process_of["a"] == process_of["c"] != process_of["b"]
    assert second == {
        "a": process_of["a"] + b" 3 ['a', 'c']",
        "b": process_of["b"] + b" 2 ['b']",
        "c": process_of["c"] + b" 4 ['a', 'c']",
    }


def test_a_worker_that_ends_says_which_and_with_what_code(folder: Path) -> None:
    spec = HostSpec("counting_host:open_host", {"folder": str(folder)})
    with refuses(EngineFailed, "worker 2 of 2", "exit code 7"):
        InProcessEngine(workers=2).run(spec, ["a", "b"], lambda exchange: exchange({"a": b"x", "b": b"exit"}))


def test_an_exchange_after_a_worker_died_fails_as_well(folder: Path) -> None:
    def body(exchange: Exchange) -> dict[str, bytes | None]:
        with pytest.raises(EngineFailed):
            exchange({"a": b"exit"})
        with refuses(EngineFailed, 1, 2, 7):
            exchange({"a": b"x", "b": b"x" * 5_000_000})
        return exchange({"b": b"x"})

    spec = HostSpec("counting_host:open_host", {"folder": str(folder)})
    assert (InProcessEngine(workers=2).run(spec, ["a", "b"], body)["b"] or b"").endswith(b"['b']")


def test_one_worker_that_dies_does_not_wait_for_the_others(folder: Path) -> None:
    spec = HostSpec("counting_host:open_host", {"folder": str(folder)})
    with refuses(EngineFailed, 1, 2):
        InProcessEngine(workers=2).run(spec, ["a", "b"], lambda exchange: exchange({"a": b"exit", "b": b"wait"}))


def test_a_worker_beside_answers_while_the_caller_goes_on_and_is_gone_afterwards(folder: Path) -> None:
    spec = HostSpec("counting_host:open_host", {"folder": str(folder)})
    with beside(spec, b"x") as wait:
        (reply,) = wait().values()
        assert wait() == {"": reply}
    process = int((reply or b"").split()[0])
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    with refuses(EngineFailed, 7), beside(spec, b"exit") as wait:
        wait()


def test_a_factory_that_fails_is_told_with_its_traceback(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    spec = HostSpec("counting_host:open_broken", {"folder": str(folder)})
    with pytest.raises(EngineFailed, match=r"(?s)worker 1 of 1.*RuntimeError: this factory is broken"):
        InProcessEngine(workers=1).run(spec, ["a"], lambda exchange: exchange({"a": b"x"}))
    assert capfd.readouterr() == ("", "")


def test_the_body_runs_in_the_callers_thread_and_its_result_comes_back() -> None:
    spec = HostSpec("tests.harness.echo_host:open_host")
    assert InProcessEngine(workers=1).run(spec, ["a"], lambda exchange: threading.get_ident()) == threading.get_ident()


def test_an_exception_of_the_body_is_the_callers() -> None:
    class Own(Exception):
        pass

    def body(exchange: Exchange) -> None:
        raise Own("mine")

    with refuses(Own, "mine"):
        InProcessEngine(workers=2).run(HostSpec("tests.harness.echo_host:open_host"), ["a", "b"], body)


def test_the_folder_of_the_caller_is_no_part_of_a_workers_import_path(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "protocols").mkdir()
    (elsewhere / "protocols" / "__init__.py").write_text("raise RuntimeError('the wrong package')")
    monkeypatch.chdir(elsewhere)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    spec = HostSpec("counting_host:open_host", {"folder": str(folder)})
    assert InProcessEngine(workers=1).run(spec, ["a"], lambda exchange: exchange({"a": b"x"}))["a"]
