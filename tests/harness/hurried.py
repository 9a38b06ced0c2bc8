"""A program of ours at a host of a test: its times are shortened, its clock is set, and it stops where a test says.

    HURRIED='{"by": 20, "ahead_s": 60, "folder": "FOLDER"}' python -m tests.harness.hurried party run ...

A test asks for a stop by a file FOLDER/PLACE.wanted; the program renames it to PLACE.here, and waits until it is gone.
"""

import contextlib
import datetime
import importlib
import json
import os
import runpy
import sys
import time
from pathlib import Path

# Where programs wait for each other.
TIMED = """runtime.guardian_carrier party.connection.node party.connection.seat party.connection.dialling
    party.asking.asking coordinator.connection.hub coordinator.connection.sessions coordinator.labelling.jobs
    coordinator.labelling.late_seats guardian.port protocols.wire.guardian""".split()
_LONGEST_S, _LOOK_S = 300.0, 0.005


def hurry(by: float) -> None:
    """Every time in these files, and in gRPC's options there, is shorter by this factor; days stay."""
    for module in [importlib.import_module(name) for name in TIMED]:  # all, before one is changed
        for name, value in list(vars(module).items()):
            if name.endswith("_S") and name not in ("_DAY_S", "_LOOK_S"):
                setattr(module, name, value / by)
            elif isinstance(value, list | tuple) and '_ms"' in repr(value).replace("'", '"'):
                shorter = [(key, round(of / by) if key.endswith("_ms") else of) for key, of in value]
                setattr(module, name, type(value)(shorter))


def set_clock(ahead_s: float) -> None:
    """The time of day is ahead, for all Python of this process; TLS compares certificates with the true one."""
    now_s, now_ns, true = time.time, time.time_ns, datetime.datetime

    class Ahead(true):
        @classmethod
        def now(cls, tz=None):
            return true.now(tz) + datetime.timedelta(seconds=ahead_s)

    time.time, time.time_ns = lambda: now_s() + ahead_s, lambda: now_ns() + int(ahead_s * 1e9)
    datetime.datetime = Ahead


def stops(folder: Path) -> None:
    """Has this program stop before it sends or answers something, if the test wants that."""
    from coordinator.connection.sessions import Sessions
    from party.connection.node import Node
    from protocols.labelling.coordinator import Coordinator
    from protocols.wire.messages import Outcome, VoteRequest, decode
    from runtime import guardian_carrier

    def at(place: str, *, always: bool = False) -> None:
        wanted, here = folder / f"{place}.wanted", folder / f"{place}.here"
        until = time.monotonic() + _LONGEST_S
        with contextlib.suppress(FileNotFoundError):  # nothing is wanted here, or, without the folder, anywhere
            here.touch() if always else wanted.rename(here)
        while here.exists() and time.monotonic() < until:
            time.sleep(_LOOK_S)

    send, answer, batch, pieces = Sessions._send, Node._answer, Coordinator._batch, guardian_carrier._pieces
    names = {VoteRequest: ("request", "vote"), Outcome: ("outcome", "receipt")}

    async def sending(self, session, opened, seat, nonce, envelope, *more):
        at(f"{names.get(type(decode(envelope)), ('step',))[0]}-{seat}")
        return await send(self, session, opened, seat, nonce, envelope, *more)

    def answering(self, ask, *more):
        said = answer(self, ask, *more)
        at(f"{names.get(type(decode(ask.envelope)), ('step', 'stepped'))[1]}-{ask.seat}")
        return said

    def asking(self, *given, reserved):
        if not reserved:
            at("batch", always=True)
        return batch(self, *given, reserved=reserved)

    def from_guardian(call, address):
        for number, piece in enumerate(pieces(call, address)):
            at(f"piece{number}-guardian")
            yield piece

    Sessions._send, Node._answer, Coordinator._batch = sending, answering, asking
    guardian_carrier._pieces = from_guardian


if __name__ == "__main__":
    given = json.loads(os.environ["HURRIED"])
    if given["ahead_s"]:
        set_clock(given["ahead_s"])
    hurry(given["by"])
    stops(Path(given["folder"]))
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
