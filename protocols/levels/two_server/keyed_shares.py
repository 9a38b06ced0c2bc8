"""A server's shares of a batch's votes with what authenticates them, as the check of inputs takes them.

Each server's share of the weighted vote counts, computed only from its shares of the votes: no message is needed.

Weights are public whole numbers of lattice units, so that the sum of weighted shares is a share of the weighted sum. A
voter that failed the check, and entries that do not take part, have weight zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Int64, UInt32
from numpy import ndarray

from protocols.crypto.field import matrix_product, plus
from protocols.crypto.rings import LIMIT
from protocols.errors import InvalidInput
from protocols.levels.two_server.one_time_masks import INPUT_REPETITIONS, MaskShares, coordinator_masks, guardian_masks
from protocols.levels.two_server.shares import (
    Blinds,
    CoordinatorShare,
    GuardianShare,
    coordinator_blinds,
    guardian_blinds,
    guardian_determined,
    guardian_votes,
)
from protocols.levels.two_server.sketch import Ballots, voter_blocks


@dataclass(frozen=True, eq=False)
class KeyedShares:
    """Shares of votes v, and, of INPUT_REPETITIONS each, of keys k, of masks z and k z, and of k v.

    votes, keyed: of some voters, [voters, queries, classes] and [voters, repetitions, queries, classes].
    """

    voters: int
    queries: int
    classes: int
    keys: UInt32[ndarray, "voters repetitions queries"] = field(repr=False)
    masks: MaskShares = field(repr=False)
    votes: Callable[[slice], UInt32[ndarray, "..."]] = field(repr=False)
    keyed: Callable[[slice], UInt32[ndarray, "..."]] = field(repr=False)

    @classmethod
    def of_coordinator(cls, share: CoordinatorShare, ballots: Ballots) -> KeyedShares:
        """The coordinator's."""
        queries, context = ballots.queries, ballots.context
        masks = MaskShares(coordinator_masks(share.seeds, queries=queries, context=context), share.masks)
        keys = _keys(coordinator_blinds(share.seeds, queries=queries, context=context))

        return cls(
            len(share.seeds),
            queries,
            ballots.classes,
            keys,
            masks,
            lambda at: share.votes[at],
            lambda at: share.keyed[at][:, :INPUT_REPETITIONS],
        )

    @classmethod
    def of_guardian(cls, share: GuardianShare, ballots: Ballots) -> KeyedShares:
        """The guardian's."""
        queries, classes, context = ballots.queries, ballots.classes, ballots.context
        masks = guardian_masks(share.seeds, queries=queries, context=context)
        keys = _keys(guardian_blinds(share.seeds, queries=queries, context=context))

        def votes(at: slice) -> UInt32[ndarray, "..."]:
            return guardian_votes(share.seeds[at], queries=queries, classes=classes, context=context)

        def keyed(at: slice) -> UInt32[ndarray, "..."]:
            determined = guardian_determined(share.seeds[at], queries=queries, classes=classes, context=context)
            return determined.keyed[:, :INPUT_REPETITIONS]

        return cls(len(share.seeds), queries, classes, keys, masks, votes, keyed)

    def blocks(self) -> Iterator[slice]:
        """All voters, so many at once that memory stays bounded."""
        return voter_blocks(self.voters, self.queries * self.classes)


def _keys(blinds: Blinds) -> UInt32[ndarray, "voters repetitions queries"]:
    """A server's shares of k = A + 2 a."""
    points = blinds.points[:, :INPUT_REPETITIONS]
    return plus(blinds.slopes[:, :INPUT_REPETITIONS], plus(points, points))


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
