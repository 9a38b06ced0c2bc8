"""Settings of all tests: hypothesis without a deadline (time is for benchmarks, and CI machines are slow), and which
calls have their arrays' types and shapes checked, and the garbage collector's.
"""

import functools
import gc
import itertools
import os
from typing import Any

import jaxtyping
from hypothesis import settings

# As simulations/engines/flower.py sets it. gRPC reads it when it is first imported, which here may be by another test.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

settings.register_profile("conclave", deadline=None)
settings.load_profile("conclave")

_jaxtyped = jaxtyping.jaxtyped


# Checking a call binds its arguments anew: without these limits it is most of the time of the whole suite.
_FIRST_CALLS, _EVERY = 200, 50


def _checked(what: Any = None, *, typechecker: Any) -> Any:
    """jaxtyped, for what has arrays among its annotations: the first calls of each function, then every fiftieth."""
    if what is None:
        return functools.partial(_checked, typechecker=typechecker)
    if not any("ndarray" in str(each) for each in getattr(what, "__annotations__", {}).values()):
        return what
    checked = _jaxtyped(what, typechecker=typechecker)
    if isinstance(what, type):
        return checked
    calls = itertools.count()

    @functools.wraps(what)
    def sampled(*positional: Any, **named: Any) -> Any:
        number = next(calls)
        return (what if number >= _FIRST_CALLS and number % _EVERY else checked)(*positional, **named)

    return sampled


jaxtyping.jaxtyped = _checked


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: the collector need not look through it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
