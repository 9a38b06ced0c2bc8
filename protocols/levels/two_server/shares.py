"""Votes as additive shares over F_p, one for the coordinator and one for the guardian, with what their check needs.

A vote in a query is a one-hot vector v over the classes, unweighted; an abstention is the zero vector. For each query
and each of the check's REPETITIONS the party draws a key k and a point a, uniform in F_p and used nowhere else, and
shares v, k v, and the polynomial Z^2 + A Z + B whose value at Z = s + a is s^2 + k s: A = k - 2 a, B = a^2 - a k
(sketch.py). For each voter it shares the product of two random factors, elements of the field of p^3 elements, by
which the servers blind the results of the three repetitions.

Uniform numbers are shared by two seeds of 16 bytes, one a server: a, A (and with it k = A + 2 a) and the factors. What
is determined by others is v, k v, B and the product: the guardian's share of it comes from its seed, the coordinator's
is the difference. So either server's share alone is uniform, and says nothing about vote or key.

For the check of the servers' inputs it also deals one-time masks under two of the keys (one_time_masks.py).

Seeds are bound to `context`, which names the batch: shares of one batch are useless in another.
docs/explanation/vote-check.md and input-check.md specify all of it byte by byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Int64, UInt8, UInt32
from numpy import ndarray

from protocols.crypto.field import cubic_times, minus, plus, times
from protocols.crypto.prg import SEED_BYTES, derived_key, field_elements
from protocols.crypto.randomness import RandomSource
from protocols.crypto.rings import MAX_CLASSES
from protocols.errors import InvalidInput, MalformedMessage
from protocols.levels.two_server.one_time_masks import INPUT_REPETITIONS, deal_masks
from protocols.ranges import in_range
from protocols.votes import ABSTAIN

# Independent repetitions of the check, each with an error of at most 3/p for a voter: as many as coefficients of the
# cubic field's elements.
REPETITIONS = 3


@dataclass(frozen=True, eq=False)
class CoordinatorShare:
    """What the coordinator gets: shares of v, of k v, of B, of the factors' product and of masks under keys, and seeds
    of the rest."""

    votes: UInt32[ndarray, "voters queries classes"] = field(repr=False)
    keyed: UInt32[ndarray, "voters repetitions queries classes"] = field(repr=False)
    constants: UInt32[ndarray, "voters repetitions queries"] = field(repr=False)
    products: UInt32[ndarray, "voters repetitions"] = field(repr=False)
    masks: UInt32[ndarray, "voters 2 input_repetitions queries"] = field(repr=False)
    seeds: UInt8[ndarray, "voters 16"] = field(repr=False)

    def arrays(self) -> tuple[ndarray, ...]:
        """As they travel."""
        elements = (self.votes, self.keyed, self.constants, self.products, self.masks)
        return (*(each.astype("<u4", copy=False) for each in elements), self.seeds)

    @staticmethod
    def of_all(shares: Sequence[CoordinatorShare]) -> CoordinatorShare:
        """The shares of several parties, whose voters follow each other. Raises InvalidInput."""
        if not shares:
            raise InvalidInput("0 shares; allowed: 1 or more")
        arrays = zip(*(share.arrays() for share in shares), strict=True)
        return CoordinatorShare(*(np.concatenate(each) for each in arrays))


@dataclass(frozen=True, eq=False)
class GuardianShare:
    """What the guardian gets: one seed per voter, from which it expands its share of everything."""

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


@dataclass(frozen=True, eq=False)
class Blinds:
    """A server's shares of what is uniform: of a, of A, and of the two factors."""

    points: UInt32[ndarray, "voters repetitions queries"] = field(repr=False)
    slopes: UInt32[ndarray, "voters repetitions queries"] = field(repr=False)
    factors: UInt32[ndarray, "2 voters repetitions"] = field(repr=False)


@dataclass(frozen=True, eq=False)
class Determined:
    """A server's shares of what follows from vote and blinds: of k v, of B, and of the product of the factors."""

    keyed: UInt32[ndarray, "voters repetitions queries classes"] = field(repr=False)
    constants: UInt32[ndarray, "voters repetitions queries"] = field(repr=False)
    products: UInt32[ndarray, "voters repetitions"] = field(repr=False)


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
    guardian, seeds = GuardianShare(drawn[0].copy()), drawn[1].copy()
    a, slopes, factors = _joint(guardian.seeds, seeds, queries=queries, context=context)
    keys = plus(slopes, plus(a, a))
    one_hot = (votes[:, :, None] == np.arange(classes)).astype(np.uint32)
    masks = guardian_votes(guardian.seeds, queries=queries, classes=classes, context=context)
    other = guardian_determined(guardian.seeds, queries=queries, classes=classes, context=context)
    coordinator = CoordinatorShare(
        minus(one_hot, masks),
        minus(one_hot[:, None] * keys[..., None], other.keyed),
        minus(minus(times(a, a), times(a, keys)), other.constants),
        minus(cubic_times(factors[0], factors[1]), other.products),
        deal_masks(keys, coordinators=seeds, guardians=guardian.seeds, context=context),
        seeds,
    )
    return coordinator, guardian


def vote_keys(
    coordinator: CoordinatorShare, guardian: GuardianShare, *, queries: int, context: bytes
) -> UInt32[ndarray, "voters repetitions queries"]:
    """The keys k of shares that were made by `share_votes`: only who has both shares knows them."""
    a, slopes, _ = _joint(guardian.seeds, coordinator.seeds, queries=queries, context=context)
    return plus(slopes, plus(a, a))


def guardian_votes(
    seeds: UInt8[ndarray, "voters 16"], *, queries: int, classes: int, context: bytes
) -> UInt32[ndarray, "voters queries classes"]:
    """The guardian's shares of the vectors."""
    return _expanded("guardian's votes", seeds, queries * classes, context).reshape(len(seeds), queries, classes)


def guardian_determined(
    seeds: UInt8[ndarray, "voters 16"], *, queries: int, classes: int, context: bytes
) -> Determined:
    """The guardian's shares of k v, of B and of the product."""
    voters, keyed, constants = len(seeds), REPETITIONS * queries * classes, REPETITIONS * queries
    stream = _expanded("guardian's check", seeds, keyed + constants + REPETITIONS, context)
    return Determined(
        stream[:, :keyed].reshape(voters, REPETITIONS, queries, classes),
        stream[:, keyed : keyed + constants].reshape(voters, REPETITIONS, queries),
        stream[:, keyed + constants :],
    )


def guardian_blinds(seeds: UInt8[ndarray, "voters 16"], *, queries: int, context: bytes) -> Blinds:
    """The guardian's shares of what is uniform."""
    return _blinds("guardian's blinds", seeds, queries, context)


def coordinator_blinds(seeds: UInt8[ndarray, "voters 16"], *, queries: int, context: bytes) -> Blinds:
    """The coordinator's shares of what is uniform."""
    return _blinds("coordinator's blinds", seeds, queries, context)


def check_coordinator_share(
    arrays: tuple[ndarray, ...], *, voters: int, queries: int, classes: int
) -> CoordinatorShare:
    """The share that a party sent to the coordinator. Raises MalformedMessage."""
    _check_count(arrays, 6)
    votes, keyed, constants, products, masks, seeds = arrays
    _check_array(votes, "votes", np.uint32, (voters, queries, classes))
    _check_array(keyed, "keyed votes", np.uint32, (voters, REPETITIONS, queries, classes))
    _check_array(constants, "constants", np.uint32, (voters, REPETITIONS, queries))
    _check_array(products, "products", np.uint32, (voters, REPETITIONS))
    _check_array(masks, "keyed masks", np.uint32, (voters, 2, INPUT_REPETITIONS, queries))
    _check_array(seeds, "seeds", np.uint8, (voters, SEED_BYTES))
    for values in arrays[:-1]:
        in_range("two servers", "field element", values)
    return CoordinatorShare(*(_native(each) for each in arrays))


def check_guardian_share(arrays: tuple[ndarray, ...], *, voters: int) -> GuardianShare:
    """The share that a party sent to the guardian. Raises MalformedMessage."""
    _check_count(arrays, 1)
    _check_array(arrays[0], "seeds", np.uint8, (voters, SEED_BYTES))
    return GuardianShare(_native(arrays[0]))


def _joint(
    guardians: UInt8[ndarray, "voters 16"], coordinators: UInt8[ndarray, "voters 16"], *, queries: int, context: bytes
) -> tuple[ndarray, ndarray, ndarray]:
    """(a, A, the factors) of both servers' seeds."""
    one = guardian_blinds(guardians, queries=queries, context=context)
    other = coordinator_blinds(coordinators, queries=queries, context=context)
    return plus(one.points, other.points), plus(one.slopes, other.slopes), plus(one.factors, other.factors)


def _blinds(label: str, seeds: UInt8[ndarray, "voters 16"], queries: int, context: bytes) -> Blinds:
    size, shape = REPETITIONS * queries, (len(seeds), REPETITIONS, queries)
    stream = _expanded(label, seeds, 2 * size + 2 * REPETITIONS, context)
    factors = stream[:, 2 * size :].reshape(len(seeds), 2, REPETITIONS).transpose(1, 0, 2)
    return Blinds(stream[:, :size].reshape(shape), stream[:, size : 2 * size].reshape(shape), factors)


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
