"""An engine without workers: all parties run in this process, which has imported what their teachers need.

`here` has a run take it where it asks for the engine "in_process". The engines themselves, with processes of their own,
are tested in tests/system/test_engine_contract.py, and give the same replies to the same requests.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

import pytest

from coordinator.students import scikit
from simulations.engines import ENGINES
from simulations.engines.engine import (
    Engine,
    Exchange,
    HostSpec,
    OnReply,
    Replies,
    WorkerHost,
    check_asked,
    check_parties,
    check_workers,
)

T = TypeVar("T")


class EngineHere(Engine):
    """Opens the host at the first exchange, as a worker does; errors of a host are raised as they are."""

    def __init__(self, *, workers: int | None = None) -> None:
        check_workers(workers)

    def run(self, host: HostSpec, parties: Sequence[str], body: Callable[[Exchange], T]) -> T:
        names = check_parties(parties)
        opened: list[WorkerHost] = []

        def exchange(requests: Mapping[str, bytes], on_reply: OnReply | None = None) -> dict[str, bytes | None]:
            check_asked(requests, names)
            if not opened:
                opened.append(host.open())
            replies = Replies(requests, on_reply)
            for party, reply in opened[0].handle(requests):
                replies.add(party, reply)
            return replies.complete()

        return body(exchange)


@contextmanager
def running_here() -> Iterator[None]:
    """Runs on the engine "in_process" take this one: a worker imports scikit-learn or torch for seconds.

    Boosted trees are few: of a small run's ceiling, which tries them five times over, a hundred rounds were half of its
    time. What they reach is tested in test_student_contract.py and test_ceiling.py.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scikit, "STUDENT_ROUNDS", 5)
        patch.setitem(ENGINES, "in_process", "tests.harness.engine_here:EngineHere")
        yield


@pytest.fixture
def here() -> Iterator[None]:
    """`running_here` for one test."""
    with running_here():
        yield
