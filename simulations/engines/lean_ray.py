"""Ray without the processes that a run on one machine never speaks to, and with time to start on a busy machine.

Ray starts a dashboard's server (also where no dashboard is wanted, and waits until it answers), an autoscaler's monitor
and a reader of log files, each a Python process of its own. Nothing that Flower uses needs them. It gives its node
manager 30 s to register, and leaves the processes of a start that failed until the program ends. Ray (2.55) has no
setting for any of that.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final  # Any: Ray's own classes and modules, which it does not declare to be public

# How long a node manager may take to register. Ray's 30 s were too few where several processes shared each core.
START_WITHIN_S: Final = 300.0
_LOOK_S: Final = 0.1


def _no_server(node: Any, *, include_dashboard: bool | None, raise_on_failure: bool) -> None:
    """In place of start_api_server, which notes where its server listens; "": nowhere."""
    node._webui_url = ""


def _nothing(node: Any) -> None:
    """In place of what starts a process, and returns nothing."""


def _when_registered(get_node: Any, within_s: float, *about: Any) -> Any:
    """What get_node says of a node once it is registered. Raises TimeoutError, which Ray hands on."""
    ends = time.monotonic() + within_s
    while True:
        try:
            return get_node(*about)
        except RuntimeError as error:
            if time.monotonic() > ends:
                raise TimeoutError(f"its node manager did not register within {within_s:g} s") from error
        time.sleep(_LOOK_S)


@contextmanager
def lean(node: type[Any], services: Any, *, within_s: float = START_WITHIN_S) -> Iterator[None]:
    """While this is open, ray.init starts Ray's store of names, its node manager and that one's agents alone, and waits
    for them; if the body raises, what was started has ended when this does.

    node: ray._private.node.Node; services: ray._private.services. Raises AttributeError where these no longer have what
    is replaced.
    """
    started: list[Any] = []
    start, get_node = node.start_head_processes, services.get_node

    def noted(made: Any) -> None:
        started.append(made)
        start(made)

    instead = {
        (node, "start_api_server"): _no_server,
        (node, "start_monitor"): _nothing,
        (node, "start_log_monitor"): _nothing,
        (node, "start_head_processes"): noted,
        (services, "get_node"): partial(_when_registered, get_node, within_s),
    }
    before = {(owner, name): getattr(owner, name) for owner, name in instead}
    try:
        for (owner, name), function in instead.items():
            setattr(owner, name, function)
        yield
    except BaseException:
        for made in started:
            made.kill_all_processes(check_alive=False, wait=True)
        raise
    finally:
        for (owner, name), function in before.items():
            setattr(owner, name, function)
