"""What the engine contract wants to know of one run: exchanges with the parties of echo_host, errors among them."""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from protocols.errors import ConclaveError, EngineFailed
from simulations.engines.engine import ONE_THREAD, Exchange, HostSpec

PARTIES = [f"party-{i}" for i in range(50)]
ECHO = HostSpec("tests.harness.echo_host:open_host", {"greeting": "good day", "backwards": True})


def observe(exchange: Exchange, *, bug: bytes) -> dict[str, Any]:
    """The observations; all but a death, which ends a run. bug: the order to a host that fails."""

    def error_of(order: bytes) -> ConclaveError:
        with pytest.raises(ConclaveError) as caught:
            exchange({party: order if party == "party-3" else b"quick" for party in PARTIES})
        return caught.value

    progress: list[tuple[int, int]] = []
    seen: dict[str, Any] = {
        "one": exchange({"party-7": b"x"}),
        "three": exchange({party: b"y" for party in ("party-9", "party-2", "party-0")}),
        "fifty": exchange(dict.fromkeys(PARTIES, b"z"), lambda done, total: progress.append((done, total))),
        "none": exchange({}),
        "silent": exchange({"party-1": b"silent:", "party-2": b"x"}),
        "large reply": exchange({"party-4": b"repeat:" + b"abcdefghij" * 2}),
        "large request": exchange({"party-4": b"size:" + b"x" * 20_000_000}),
        "empty": exchange({"party-4": b""}),
        "processes": exchange(dict.fromkeys(PARTIES, b"process:")),
        "progress": progress,
    }
    for name, value in ONE_THREAD.items():
        seen[name] = (exchange({"party-0": f"environment:{name}".encode()})["party-0"], value.encode())
    for order in ("refuse", "refuse-specially", "overspend", "invalid", "as:party-5", "as:nobody"):
        seen[order] = error_of(order.encode())
        seen[f"after {order}"] = exchange({party: b"again" for party in PARTIES[:5]})
    with pytest.raises(ConclaveError) as stranger:
        exchange({"nobody": b"x"})
    with pytest.raises(EngineFailed) as failed:
        exchange({"party-0": bug})
    return seen | {"stranger": stranger.value, "bug": str(failed.value)}


def die(exchange: Exchange) -> None:
    """The death of a worker at work."""
    exchange({"party-1": b"die", "party-0": b"x"})


@contextmanager
def printed(file: Path) -> Iterator[list[str]]:
    """What this process and its children print meanwhile, which is known afterwards. file: for what they write."""
    found: list[str] = []
    kept = [os.dup(each) for each in (1, 2)]
    own = io.StringIO()
    with file.open("wb") as out, redirect_stdout(own), redirect_stderr(own):
        for each in (1, 2):
            os.dup2(out.fileno(), each)
        try:
            yield found
        finally:
            for each, before in zip((1, 2), kept, strict=True):
                os.dup2(before, each)
                os.close(before)
    found += [own.getvalue(), file.read_text()]
