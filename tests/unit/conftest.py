"""A unit test opens no socket, starts no process and needs neither torch nor Flower: others may, elsewhere."""

import sys
import threading
from collections.abc import Iterator

import pytest

_REFUSED = frozenset(("socket.connect", "socket.bind", "subprocess.Popen", "os.fork", "os.exec", "os.posix_spawn"))
_HEAVY = {"torch", "flwr", "ray"}
# The thread that runs a test of this folder now: threads that another test left behind are not its own.
_testing: list[int] = []


def _refuse(event: str, _: tuple[object, ...], refused: frozenset[str] = _REFUSED) -> None:
    if event in refused and threading.get_ident() in _testing:
        raise AssertionError(f"a unit test caused {event}; allowed: in tests/contract and tests/system")


sys.addaudithook(_refuse)


@pytest.fixture(autouse=True)
def no_socket_and_no_process() -> Iterator[None]:
    """Refuses them while a test of this folder runs."""
    _testing.append(threading.get_ident())
    yield
    _testing.clear()


@pytest.fixture(autouse=True, scope="session")
def nothing_heavy(request: pytest.FixtureRequest) -> Iterator[None]:
    """Refuses what takes seconds to import, where nothing but unit tests was asked for."""
    yield
    if all("/tests/unit/" in item.path.as_posix() for item in request.session.items):
        loaded = sorted(_HEAVY & sys.modules.keys())
        assert not loaded, f"unit tests imported {loaded}; allowed: in tests/contract and tests/system"
