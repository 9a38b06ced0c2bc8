"""Votes as additive shares over F_p, one for the coordinator and one for the guardian.

A vote in a query is a one-hot vector over the classes, unweighted; an abstention is the zero vector. The guardian's
share is expanded from a seed of 16 bytes, the coordinator's is the difference: either alone is uniform and says nothing
about the vote. Every vector comes with REPETITIONS shared squares (a, a^2) of random a, which the servers consume in
their check (sketch.py); the coordinator's shares of a come from a seed too.

Seeds are bound to `context`, which names the batch: shares of one batch are useless in another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Int64, UInt8, UInt32
from numpy import ndarray

from protocols.crypto.counting_ring import MAX_CLASSES
from protocols.crypto.field import minus, plus, times
from protocols.crypto.prg_chacha import SEED_BYTES, derived_key, field_elements
from protocols.crypto.randomness import RandomSource
from protocols.errors import InvalidInput, MalformedMessage
from protocols.ranges import in_range
from protocols.votes import ABSTAIN

# Independent repetitions of the check, each with an error of at most 2/p for a vector.
REPETITIONS = 3


@dataclass(frozen=True, eq=False)
class CoordinatorShare:
    """What the coordinator gets: shares of one-hot vectors, shares of a^2, and the seeds of its shares of a."""

    votes: UInt32[ndarray, "voters queries classes"] = field(repr=False)
    squares: UInt32[ndarray, "voters queries repetitions"] = field(repr=False)
    seeds: UInt8[ndarray, "voters 16"] = field(repr=False)

    def arrays(self) -> tuple[ndarray, ndarray, ndarray]:
        """As they travel."""
        return self.votes.astype("<u4", copy=False), self.squares.astype("<u4", copy=False), self.seeds

    @staticmethod
    def of_all(shares: Sequence[CoordinatorShare]) -> CoordinatorShare:
        """The shares of several parties, whose voters follow each other. Raises InvalidInput."""
        if not shares:
            raise InvalidInput("0 shares; allowed: 1 or more")
        return CoordinatorShare(
            np.concatenate([share.votes for share in shares]),
            np.concatenate([share.squares for share in shares]),
            np.concatenate([share.seeds for share in shares]),
        )


@dataclass(frozen=True, eq=False)
class GuardianShare:
    """What the guardian gets: one seed per voter, from which it expands shares of vectors, of a and of a^2."""

    seeds: UInt8[ndarray, "voters 16"] = field(repr=False)

    def arrays(self) -> tuple[ndarray]:
        """As they travel."""
        return (self.seeds,)

    @staticmethod
    def of_all(shares: Sequence[GuardianShare]) -> GuardianShare:
        """The shares of several parties, whose voters follow each other. Raises InvalidInput."""
        if not shares:
            raise InvalidInput("0 shares; allowed: 1 or more")
        return GuardianShare(np.concatenate([share.seeds for share in shares]))


def share_votes(
    votes: Int64[ndarray, "voters queries"], *, classes: int, context: bytes, source: RandomSource
) -> tuple[CoordinatorShare, GuardianShare]:
    """Shares of the votes of one party's teachers, class ids or ABSTAIN.

    source: fresh cryptographic randomness, 32 bytes per voter. Raises InvalidInput.
    """
    if not 2 <= classes <= MAX_CLASSES:
        raise InvalidInput(f"classes = {classes}; allowed: 2 to {MAX_CLASSES}")
    if votes.size and not ((votes >= ABSTAIN) & (votes < classes)).all():
        raise InvalidInput(f"a vote is outside the allowed range: class ids 0 to {classes - 1}, or {ABSTAIN}")
    voters, queries = votes.shape
    drawn = np.frombuffer(source(2 * SEED_BYTES * voters), dtype=np.uint8).reshape(2, voters, SEED_BYTES)
    guardian = GuardianShare(drawn[0].copy())
    masks, g_points, g_squares = expand_guardian(guardian.seeds, queries=queries, classes=classes, context=context)
    points = expand_coordinator(drawn[1], queries=queries, context=context)
    a = plus(points, g_points)
    squares = minus(times(a, a), g_squares)
    one_hot = (votes[:, :, None] == np.arange(classes)).astype(np.uint32)
    return CoordinatorShare(minus(one_hot, masks), squares, drawn[1].copy()), guardian


def expand_guardian(
    seeds: UInt8[ndarray, "voters 16"], *, queries: int, classes: int, context: bytes
) -> tuple[
    UInt32[ndarray, "voters queries classes"],
    UInt32[ndarray, "voters queries repetitions"],
    UInt32[ndarray, "voters queries repetitions"],
]:
    """The guardian's shares of the vectors, of a and of a^2."""
    cells, squares = queries * classes, queries * REPETITIONS
    stream = _expanded("guardian's share", seeds, cells + 2 * squares, context)
    return (
        stream[:, :cells].reshape(len(seeds), queries, classes),
        stream[:, cells : cells + squares].reshape(len(seeds), queries, REPETITIONS),
        stream[:, cells + squares :].reshape(len(seeds), queries, REPETITIONS),
    )


def expand_coordinator(
    seeds: UInt8[ndarray, "voters 16"], *, queries: int, context: bytes
) -> UInt32[ndarray, "voters queries repetitions"]:
    """The coordinator's shares of a."""
    stream = _expanded("coordinator's points", seeds, queries * REPETITIONS, context)
    return stream.reshape(len(seeds), queries, REPETITIONS)


def check_coordinator_share(
    arrays: tuple[ndarray, ...], *, voters: int, queries: int, classes: int
) -> CoordinatorShare:
    """The share that a party sent to the coordinator. Raises MalformedMessage."""
    _check_count(arrays, 3)
    votes, squares, seeds = arrays
    _check_array(votes, "votes", np.uint32, (voters, queries, classes))
    _check_array(squares, "squares", np.uint32, (voters, queries, REPETITIONS))
    _check_array(seeds, "seeds", np.uint8, (voters, SEED_BYTES))
    for values in (votes, squares):
        in_range("two servers", "field element", values)
    return CoordinatorShare(_native(votes), _native(squares), _native(seeds))


def check_guardian_share(arrays: tuple[ndarray, ...], *, voters: int) -> GuardianShare:
    """The share that a party sent to the guardian. Raises MalformedMessage."""
    _check_count(arrays, 1)
    _check_array(arrays[0], "seeds", np.uint8, (voters, SEED_BYTES))
    return GuardianShare(_native(arrays[0]))


def _expanded(label: str, seeds: UInt8[ndarray, "voters 16"], count: int, context: bytes) -> UInt32[ndarray, "..."]:
    # One cipher per voter, since each has its own key; the result is one array.
    rows = np.empty((len(seeds), count), dtype=np.uint32)
    for row, seed in zip(rows, seeds, strict=True):
        row[:] = field_elements(derived_key(label, context, seed.tobytes()), count)
    return rows


def _check_count(arrays: tuple[ndarray, ...], count: int) -> None:
    if len(arrays) != count:
        raise MalformedMessage(f"a share of {len(arrays)} arrays; expected: {count}")


def _check_array(values: ndarray, what: str, dtype: type, shape: tuple[int, ...]) -> None:
    if values.dtype.newbyteorder("=") != np.dtype(dtype):
        raise MalformedMessage(f"{what}: dtype {values.dtype}; expected: {np.dtype(dtype)}")
    if values.shape != shape:
        raise MalformedMessage(f"{what}: shape {values.shape}; expected: {shape}")


def _native(values: ndarray) -> ndarray:
    return np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("="))
