"""Ray without the processes that a run on one machine never speaks to.

Ray starts a dashboard's server (also where no dashboard is wanted, and waits until it answers), an autoscaler's monitor
and a reader of log files, each a Python process of its own. Nothing that Flower uses needs them, and Ray (2.55) has no
setting for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any  # Ray's own class, which it does not declare to be public


def _no_server(node: Any, *, include_dashboard: bool | None, raise_on_failure: bool) -> None:
    """In place of start_api_server, which notes where its server listens; "": nowhere."""
    node._webui_url = ""


def _nothing(node: Any) -> None:
    """In place of what starts a process, and returns nothing."""


@contextmanager
def lean(node: type[Any]) -> Iterator[None]:
    """While this is open, ray.init starts Ray's store of names, its node manager and that one's agents alone.

    node: ray._private.node.Node. Raises AttributeError where that class no longer has what is left out.
    """
    instead = {"start_api_server": _no_server, "start_monitor": _nothing, "start_log_monitor": _nothing}
    before = {name: getattr(node, name) for name in instead}
    try:
        for name, function in instead.items():
            setattr(node, name, function)
        yield
    finally:
        for name, function in before.items():
            setattr(node, name, function)
