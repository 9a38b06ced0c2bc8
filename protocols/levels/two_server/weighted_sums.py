"""Each server's share of the weighted vote counts, computed only from its shares of the votes: no message is needed.

Weights are public whole numbers of lattice units, so that the sum of weighted shares is a share of the weighted sum. A
voter that failed the check, and entries that do not take part, count as zero.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Int64, UInt32
from numpy import ndarray

from protocols.crypto.counting_ring import LIMIT
from protocols.crypto.field import matrix_product, plus
from protocols.errors import InvalidInput
from protocols.levels.two_server.shares import CoordinatorShare, GuardianShare, guardian_votes
from protocols.levels.two_server.sketch import Ballots, voter_blocks


def coordinator_sums(
    share: CoordinatorShare, ballots: Ballots, *, weights: Int64[ndarray, " voters"], valid: Bool[ndarray, " voters"]
) -> UInt32[ndarray, "queries classes"]:
    """The coordinator's share of the counts in units. Raises InvalidInput."""

    def blocks() -> Iterator[tuple[slice, UInt32[ndarray, "some queries classes"]]]:
        for at in voter_blocks(len(share.votes), ballots.queries * ballots.classes):
            yield at, share.votes[at]

    return _sums(blocks(), ballots, weights, valid)


def guardian_sums(
    share: GuardianShare, ballots: Ballots, *, weights: Int64[ndarray, " voters"], valid: Bool[ndarray, " voters"]
) -> UInt32[ndarray, "queries classes"]:
    """The guardian's share of the counts in units. Raises InvalidInput."""
    sizes = {"queries": ballots.queries, "classes": ballots.classes}

    def blocks() -> Iterator[tuple[slice, UInt32[ndarray, "some queries classes"]]]:
        for at in voter_blocks(len(share.seeds), ballots.queries * ballots.classes):
            yield at, guardian_votes(share.seeds[at], **sizes, context=ballots.context)

    return _sums(blocks(), ballots, weights, valid)


def _sums(
    blocks: Iterator[tuple[slice, UInt32[ndarray, "some queries classes"]]],
    ballots: Ballots,
    weights: Int64[ndarray, " voters"],
    valid: Bool[ndarray, " voters"],
) -> UInt32[ndarray, "queries classes"]:
    if weights.size and not ((weights >= 0).all() and int(weights.sum()) < LIMIT):
        raise InvalidInput(f"weights: minimum {weights.min()}, sum {weights.sum()}; allowed: from 0, sum below {LIMIT}")
    counted = (weights[:, None] * (ballots.takes_part & valid[:, None])).astype(np.uint32)
    total = np.zeros((ballots.queries, ballots.classes), dtype=np.uint32)
    for at, votes in blocks:
        # Of each query: one row of weights times a matrix of voters by classes.
        total = plus(total, matrix_product(counted[at].T[:, None, :], votes.transpose(1, 0, 2))[:, 0])
    return total
