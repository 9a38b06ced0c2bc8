"""Ray without the processes that a run on one machine never speaks to, and with time to start on a busy machine.

Ray starts a dashboard's server (also where no dashboard is wanted, and waits until it answers), an autoscaler's monitor
and a reader of log files, each a Python process of its own. Nothing that Flower uses needs them. It gives its node
manager 30 s to register, and leaves the processes of a start that failed until the program ends. Ray (2.55) has no
setting for any of that.

How many workers a machine carries, and the environment that keeps each of them to one thread.

Teachers are small: with one BLAS thread per core in each of several workers, the threads fight for the cores
(a logistic regression fit was measured 14 times slower). So there is one worker per core and one thread per
worker. On a host with a CUDA device there is one worker, which trains stacked teachers on it; a user whose teachers do
not use the device should give the number of workers.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import (
    Any,  # Any: Ray's own classes and modules, which it does not declare to be public
    Final,
)

from protocols.errors import InvalidInput

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


# Read by OpenMP (so by torch and scikit-learn), OpenBLAS, MKL, numexpr and Accelerate when they are loaded.
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
}

_QUOTA_FILE = Path("/sys/fs/cgroup/cpu.max")


def worker_environment() -> dict[str, str]:
    """Environment variables for a worker: one thread, and this process's import path."""
    paths = [str(Path(entry).absolute()) if entry else os.getcwd() for entry in sys.path]
    return {**ONE_THREAD, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}


@contextmanager
def in_worker_environment() -> Iterator[None]:
    """Processes that are started within have `worker_environment`; afterwards os.environ is as it was."""
    before = dict(os.environ)
    os.environ.update(variables := worker_environment())
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]
        os.environ.update(before)


def check_workers(workers: int | None) -> int | None:
    """`workers` itself. Raises InvalidInput unless it is None or at least 1."""
    if workers is not None and workers < 1:
        raise InvalidInput(f"workers is {workers}; allowed: 1 or more")
    return workers


def check_parties(parties: Sequence[str]) -> list[str]:
    """The parties as a list. Raises InvalidInput if there is none, or if a name is empty or occurs twice."""
    names = list(parties)
    if not names:
        raise InvalidInput("parties is empty; allowed: 1 or more names")
    name, times = Counter(names).most_common(1)[0]
    if times > 1:
        raise InvalidInput(f"parties holds {name!r} {times} times; allowed: distinct names")
    if "" in names:
        raise InvalidInput("parties holds an empty name; allowed: names of 1 or more characters")
    return names


def count_workers(workers: int | None, parties: int) -> int:
    """How many workers to start for so many parties: `workers`, else one on a GPU host, else one per core."""
    wanted = workers or (1 if gpu_present() else count_cores())
    return min(wanted, parties)


def gpu_present() -> bool:
    """Whether a CUDA device is at hand: a device file, and CUDA_VISIBLE_DEVICES does not hide it.

    Torch is not asked, because importing it takes seconds and this process may never need it.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip() in ("", "-1"):
        return False
    return any(Path("/dev").glob("nvidia[0-9]*"))


def count_cores() -> int:
    """Cores that this process may use: its CPU affinity, cut to a container's quota (control groups v2)."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:  # macOS and Windows have no affinity to ask for
        cores = os.cpu_count() or 1
    if _QUOTA_FILE.is_file():
        quota, period = _QUOTA_FILE.read_text().split()
        if quota != "max":
            cores = min(cores, int(quota) // int(period))
    return max(cores, 1)
