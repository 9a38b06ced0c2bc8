"""Where random bytes come from: the operating system on a node, a seeded stream in a simulation.

Randomness is always an argument. A RandomSource returns n fresh bytes at every call; all noise is made from it, so
its caller decides whether the noise protects anyone.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np

RandomSource = Callable[[int], bytes]


def system_source(count: int) -> bytes:
    """`count` bytes of the operating system's cryptographic generator: the only source fit for a release."""
    return os.urandom(count)


def simulation_rng(seed: int, stage: str, *path: int) -> np.random.Generator:
    """The generator of one stage of a simulation, a function of (seed, stage, path) alone.

    Streams never depend on the order in which parties arrive or on an engine's node ids
    (docs/ARCHITECTURE.md, One run).
    """
    key = (seed, int.from_bytes(stage.encode(), "big"), *path)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(key)))
