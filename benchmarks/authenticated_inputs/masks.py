"""One-time masks of a party's votes under the keys of its vote check, and the test that they were dealt as agreed.

For each repetition and query the party deals shares of a mask z and of k z, k the key under which it deals k v, and of
a spare mask y and of k y. z hides <r, v> in the input check. Wrong products would stop that check, and with it the
batch, after the labels' inputs are fixed; so they are found at the vote check's coin, when a party can still be left
out: for random g the servers open g z + y, and what shares of g k z + k y - (g z + y) k add up to must be zero (the
sacrifice of Damgard, Pastro, Smart & Zakarias 2012, "Multiparty computation from somewhat homomorphic encryption",
section 3.3).

A server that shifts what it opens here gets the voter left out, and sees one combination of its keys. So this test
comes after the vote check, whose keys must be secret until it has ended.

Masks and spare masks come from seeds of both servers. What the party sends on top of its votes is the coordinator's
share of k z and k y: 16 bytes a query for two repetitions. A hidden query's party does not know v, but knows k and
deals masks in the same way.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from hmac import compare_digest

import numpy as np
from jaxtyping import Bool, UInt8, UInt32
from numpy import ndarray

from protocols.crypto.field import minus, plus, times
from protocols.crypto.prg_chacha import derived_key, field_elements
from protocols.crypto.wire_arrays import elements
from protocols.errors import MalformedMessage
from protocols.levels.two_server.shares import (
    Blinds,
    CoordinatorShare,
    GuardianShare,
    coordinator_blinds,
    guardian_blinds,
    guardian_determined,
    guardian_votes,
)

REPETITIONS = 2
_SALT_BYTES = 32


@dataclass(frozen=True, eq=False)
class KeyedShares:
    """A server's shares of the votes, with what authenticates them.

    keyed: of k v; keys: of k; masks: of z; keyed_masks: of k z, of the first REPETITIONS of the vote check's.
    """

    votes: UInt32[ndarray, "voters queries classes"] = field(repr=False)
    keyed: UInt32[ndarray, "voters repetitions queries classes"] = field(repr=False)
    keys: UInt32[ndarray, "voters repetitions queries"] = field(repr=False)
    masks: UInt32[ndarray, "voters repetitions queries"] = field(repr=False)
    keyed_masks: UInt32[ndarray, "voters repetitions queries"] = field(repr=False)

    def counted(self, counts: Bool[ndarray, "voters queries"]) -> KeyedShares:
        """Zero where a vote does not count: where it takes no part, or failed a check."""
        factors = counts.astype(np.uint32)
        return KeyedShares(
            self.votes * factors[..., None],
            self.keyed * factors[:, None, :, None],
            *(each * factors[:, None] for each in (self.keys, self.masks, self.keyed_masks)),
        )


@dataclass(frozen=True, eq=False)
class MaskShares:
    """A server's shares of z and y, and of k z and k y: [2, voters, repetitions, queries] each."""

    masks: UInt32[ndarray, "2 voters repetitions queries"] = field(repr=False)
    keyed: UInt32[ndarray, "2 voters repetitions queries"] = field(repr=False)


def deal_masks(
    keys: UInt32[ndarray, "voters repetitions queries"],
    coordinators: UInt8[ndarray, "voters 16"],
    guardians: UInt8[ndarray, "voters 16"],
    context: bytes,
) -> UInt32[ndarray, "2 voters repetitions queries"]:
    """The coordinator's shares of k z and k y, which a party sends it; seeds: of either server, for each voter."""
    own = coordinator_masks(coordinators, keys.shape[2], context)
    other = guardian_masks(guardians, keys.shape[2], context)
    return minus(times(plus(own, other.masks), keys), other.keyed)


def coordinator_masks(
    seeds: UInt8[ndarray, "voters 16"], queries: int, context: bytes
) -> UInt32[ndarray, "2 voters repetitions queries"]:
    """The coordinator's shares of z and y."""
    return _expanded("coordinator's masks", seeds, queries, 1, context)[0]


def guardian_masks(seeds: UInt8[ndarray, "voters 16"], queries: int, context: bytes) -> MaskShares:
    """The guardian's shares."""
    return MaskShares(*_expanded("guardian's masks", seeds, queries, 2, context))


def coordinator_keyed_shares(
    share: CoordinatorShare, sent: UInt32[ndarray, "2 voters repetitions queries"], *, context: bytes
) -> tuple[KeyedShares, MaskShares]:
    """The coordinator's shares of a batch's votes and masks; sent: what `deal_masks` gave."""
    queries = share.votes.shape[1]
    blinds = coordinator_blinds(share.seeds, queries=queries, context=context)
    masks = MaskShares(coordinator_masks(share.seeds, queries, context), sent)
    return _keyed(share.votes, share.keyed, blinds, masks), masks


def guardian_keyed_shares(
    share: GuardianShare, *, queries: int, classes: int, context: bytes
) -> tuple[KeyedShares, MaskShares]:
    """The guardian's."""
    sizes = {"queries": queries, "classes": classes}
    votes = guardian_votes(share.seeds, **sizes, context=context)
    keyed = guardian_determined(share.seeds, **sizes, context=context).keyed
    masks = guardian_masks(share.seeds, queries, context)
    return _keyed(votes, keyed, guardian_blinds(share.seeds, queries=queries, context=context), masks), masks


class MaskTest:
    """One server's side of the test; each method takes the other's message of the step before.

    coin: of the vote check, drawn after every share was fixed; first: whether this is the coordinator; salt: 32 secret
    bytes. Raises MalformedMessage.
    """

    def __init__(
        self, shares: MaskShares, keys: UInt32[ndarray, "voters repetitions queries"], *, coin: bytes, first: bool,
        salt: bytes,
    ) -> None:  # fmt: skip
        self._shares, self._keys, self._first, self._salt = shares, keys, first, salt
        size = keys.shape[1] * keys.shape[2]
        factors = field_elements(derived_key("masks tested", coin), 2 * size).reshape(2, *keys.shape[1:])
        self._g, self._factors = factors
        self._opened = plus(times(shares.masks[0], self._g), shares.masks[1])

    def open(self) -> bytes:
        """This side's shares of g z + y."""
        return self._opened.astype("<u4").tobytes()

    def promise(self, theirs: bytes) -> bytes:
        """A commitment to this side's results, one for each voter and repetition."""
        opened = plus(self._opened, elements(theirs, self._opened.shape))
        left = plus(times(self._shares.keyed[0], self._g), self._shares.keyed[1])
        each = times(minus(left, times(opened, self._keys)), self._factors)
        self._result = (each.astype(np.uint64).sum(axis=2) % np.uint64(2**31 - 1)).astype(np.uint32)
        return self._sealed(self._first, self._result.astype("<u4").tobytes(), self._salt)

    def result(self, theirs: bytes) -> bytes:
        """This side's results."""
        self._promised = theirs
        return self._result.astype("<u4").tobytes() + self._salt

    def finish(self, theirs: bytes) -> Bool[ndarray, " voters"]:
        """Which voters' masks are as agreed: of the others nothing is counted."""
        results, salt = theirs[:-_SALT_BYTES], theirs[-_SALT_BYTES:]
        if not compare_digest(self._sealed(not self._first, results, salt), self._promised):
            raise MalformedMessage("the other server opened another result than it had committed to")
        return np.asarray(~plus(self._result, elements(results, self._result.shape)).any(axis=1))

    @staticmethod
    def _sealed(first: bool, content: bytes, salt: bytes) -> bytes:
        return hashlib.sha256(b"conclave masks" + bytes([first]) + salt + content).digest()


def _keyed(votes: ndarray, keyed: ndarray, blinds: Blinds, masks: MaskShares) -> KeyedShares:
    keys = plus(blinds.slopes, plus(blinds.points, blinds.points))
    return KeyedShares(votes, keyed[:, :REPETITIONS], keys[:, :REPETITIONS], masks.masks[0], masks.keyed[0])


def _expanded(
    label: str, seeds: UInt8[ndarray, "voters 16"], queries: int, parts: int, context: bytes
) -> UInt32[ndarray, "parts 2 voters repetitions queries"]:
    shape = (parts, 2, REPETITIONS, queries)
    rows = [field_elements(derived_key(label, context, seed.tobytes()), int(np.prod(shape))) for seed in seeds]
    return np.stack(rows, axis=0).reshape(len(seeds), *shape).transpose(1, 2, 0, 3, 4)
