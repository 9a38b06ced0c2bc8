"""A server's shares of a batch's votes with what authenticates them, as the check of inputs takes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from jaxtyping import UInt32
from numpy import ndarray

from protocols.crypto.field import plus
from protocols.levels.two_server.one_time_masks import (
    INPUT_REPETITIONS,
    MaskShares,
    coordinator_masks,
    guardian_masks,
)
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
