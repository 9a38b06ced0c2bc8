"""How many workers a machine carries, and the environment that keeps each of them to one thread.

Teachers are small: with one BLAS thread per core in each of several workers, the threads fight for the cores
(a logistic regression fit was measured 14 times slower). So there is one worker per core and one thread per
worker. On a host with a CUDA device there is one worker, which trains stacked teachers on it; a user whose teachers do
not use the device should give the number of workers.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from protocols.errors import InvalidInput

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
