"""Which teacher learns which record: the records of one patient go to one teacher.

The assignment depends only on positions and the stored seed, never on a record's content. So replacing one patient's
records by another's, at the same place in the file, changes one shard: one unit can change one teacher's vote, as unit
"record" claims. (An assignment by a hash of the patient's name could change two.)
"""

from __future__ import annotations

import hashlib

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from protocols.errors import InvalidInput


def deal(
    places: Int64[ndarray, " records"], units: Int64[ndarray, " records"], *, teachers: int, key: bytes
) -> Int64[ndarray, " records"]:
    """The teacher of each record, in [0, teachers): places are dealt in an order drawn from `key`, equally up to one.

    places: each record's, numbered from 0; units: the place at which its unit stands, which is its own unless it is
    joined with an earlier one (party.data.names). Raises InvalidInput if there are fewer units than teachers.
    """
    held = len(np.unique(units))
    if held < teachers:
        raise InvalidInput(
            f"{held} records (of different patients) for {teachers} teachers; allowed: at least one per teacher"
        )
    count = int(places.max()) + 1
    order = np.random.Generator(np.random.PCG64(int.from_bytes(key, "big"))).permutation(count)
    dealt = np.empty(count, np.int64)
    dealt[order] = np.arange(count) % teachers
    return dealt[units]


def key_of(seed: int, *parts: str) -> bytes:
    """32 bytes derived from the node's seed for one purpose."""
    text = "\x1f".join(["conclave node 1", str(seed), *parts])
    return hashlib.sha256(text.encode()).digest()
