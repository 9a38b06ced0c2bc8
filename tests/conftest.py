"""Settings of all tests: hypothesis without a deadline (time is for benchmarks, and CI machines are slow) and with the
same examples in every run, which calls have their arrays' types and shapes checked, which tests one worker runs, where
temporary folders are, and the garbage collector's.
"""

import collections
import dataclasses
import fcntl
import functools
import gc
import itertools
import os
import shutil
import signal
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jaxtyping
import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

# As simulations/engines/flower.py sets it. gRPC reads it when it is first imported, which here may be by another test.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
# A shell's background job is started with SIGINT ignored, and so would be every program that a test in one starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Where it is not set, scikit-learn starts a program that counts the cores, and a unit test may start none.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The benchmarks' breaks, as if they were installed.
sys.path.append(str(Path(__file__).parent / "installed"))

settings.register_profile("conclave", deadline=None, derandomize=True, max_examples=30)
# `pytest --hypothesis-profile explore`: other examples in every run, and more of them where a test does not limit them.
settings.register_profile("explore", deadline=None, max_examples=300)
settings.load_profile("conclave")

_jaxtyped = jaxtyping.jaxtyped
# How often each function that stands inside another was defined.
_defined: collections.Counter[types.CodeType] = collections.Counter()

# Checking a call binds its arguments anew: without these limits it is most of the time of the whole suite.
_FIRST_CALLS, _EVERY = 10, 500
# Temporary folders are in memory where it has room for those of three runs.
_MEMORY, _ROOM_BYTES = Path("/dev/shm"), 2**31


def _in_memory() -> bool:
    """Whether temporary folders can be there, programs in them included."""
    if not os.access(_MEMORY, os.W_OK):
        return False
    return shutil.disk_usage(_MEMORY).free > _ROOM_BYTES and not os.statvfs(_MEMORY).f_flag & os.ST_NOEXEC


# Ledgers sync every entry: on a disk thousands of tests would wait for it. No test is of the disk itself.
if _in_memory():
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))


def _checked(what: Any = None, *, typechecker: Any) -> Any:
    """jaxtyped, for what has arrays among its annotations: the first calls of each function or class, then some.

    A function's checks are compiled when it is first called, as most functions are in no one test. A function inside
    another is defined, and so would be compiled, in each call of that one: it is checked the first times.
    """
    if what is None:
        return functools.partial(_checked, typechecker=typechecker)
    if not any("ndarray" in str(each) for each in getattr(what, "__annotations__", {}).values()):
        return what
    if isinstance(what, type):
        if dataclasses.is_dataclass(what) and "__init__" in vars(what):
            what.__init__ = _checked(what.__init__, typechecker=typechecker)  # as jaxtyped does
        return what
    if "<locals>" in what.__qualname__:
        _defined[what.__code__] += 1
        if _defined[what.__code__] > _FIRST_CALLS:
            return what
    checked = functools.cache(functools.partial(_jaxtyped, what, typechecker=typechecker))
    calls = itertools.count()

    @functools.wraps(what)
    def sampled(*positional: Any, **named: Any) -> Any:
        number = next(calls)
        return (what if number >= _FIRST_CALLS and number % _EVERY else checked())(*positional, **named)

    return sampled


jaxtyping.jaxtyped = _checked


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    """With several workers, the tests of a folder are one worker's: what they share is made once.

    Pages of documentation that go on from each other, runs of an engine and points of a curve take minutes to make
    twice. Not by pytest-xdist's own groups: version 3.8 loses them with pytest 9.2, and hands out test by test.
    """
    return _ByFolder(config, log) if config.getvalue("dist") == "loadgroup" else None


class _ByFolder(LoadScopeScheduling):
    """Hands out one folder after the other."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.partition("::")[0].rpartition("/")[0]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """In a clean clone, one worker compiles what all collect, which is half of collecting, and the others read it."""
    gc.disable()  # what is collected stays
    with open(__file__) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if sys.dont_write_bytecode or any(Path(__file__).parent.glob("unit/__pycache__/test_*.pyc")):  # the last ones
            fcntl.flock(lock, fcntl.LOCK_UN)
        yield
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The pages, of all folders the longest, before most others: near the end a worker would be alone with them."""
    before = ("tests/contract/", "tests/system/docs/")
    items.sort(key=lambda item: next((at for at, folder in enumerate(before) if item.nodeid.startswith(folder)), 2))


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: the collector need not look through it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
