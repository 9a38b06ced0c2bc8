"""Randomness that tests can repeat."""

import numpy as np

from protocols.crypto.randomness import RandomSource


def seeded_source(*key: int) -> RandomSource:
    """A reproducible source; it protects nobody. `key`: integers >= 0."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(key))).bytes
