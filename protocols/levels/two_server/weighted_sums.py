"""Each server's share of the weighted vote counts, computed only from its shares of the votes: no message is needed.

Weights are public whole numbers of lattice units, so that the sum of weighted shares is a share of the weighted sum. A
voter that failed the check, and entries that do not take part, have weight zero.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64, UInt32
from numpy import ndarray

from protocols.crypto.counting_ring import LIMIT
from protocols.crypto.field import matrix_product, plus
from protocols.errors import InvalidInput
from protocols.levels.two_server.keyed_shares import KeyedShares


def weighted_sums(shares: KeyedShares, weights: Int64[ndarray, "voters queries"]) -> UInt32[ndarray, "queries classes"]:
    """A server's share of the counts in units. Raises InvalidInput."""
    sums = weights.sum(axis=0)
    if weights.size and not ((weights >= 0).all() and int(sums.max()) < LIMIT):
        raise InvalidInput(f"weights: minimum {weights.min()}, sum {sums.max()}; allowed: from 0, sum below {LIMIT}")
    counted = weights.astype(np.uint32)
    total = np.zeros((shares.queries, shares.classes), dtype=np.uint32)
    for at in shares.blocks():
        # Of each query: one row of weights times a matrix of voters by classes.
        total = plus(total, matrix_product(counted[at].T[:, None, :], shares.votes(at).transpose(1, 0, 2))[:, 0])
    return total
