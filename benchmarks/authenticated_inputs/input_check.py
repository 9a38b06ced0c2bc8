"""The servers' check that what each will put into the circuit is its share of the counts and its noise, nothing else.

The vote check leaves each voter i's vector v_i of a query with shares of a key k and of k v_i: shares of its MAC, as in
Damgard, Pastro, Smart & Zakarias 2012 (SPDZ), except that every query, voter and repetition has a key of its own, which
nobody knows but the party. This check carries that MAC over to the sums. By the time that it starts, who counts and
with which weight w_i is settled. For each repetition:

1. *Entered.* Each server enters its share x = sum_i w_i s_i of the counts, the sum Z = sum_i w_i z_i of its shares of
   one-time masks, and its pool of noise (noise_pool.py), with macs under the other's alpha (linear_macs.py). Both note
   everything. Only then is a coin drawn, once for the batch.
2. *Opened.* The coin gives r. Opened are, for each voter and query, U_i = <r, v_i> + z_i, and the noise that is not
   used.
3. *Tested.* (a) sum_i rho_i (<r, k v_i> + k z_i - U_i k) = 0, of which each server computes its share: so the U_i are
   those of the parties' vectors. (b) U = sum_i w_i U_i determines what the other server's <r, x> + Z must be, and its
   mac must fit that.

What a server learns: U_i is uniform, because z_i is; (a) is zero; (b) follows from U and from the server's own numbers.
What a server can do: shift U_i, and then (a) fails unless it guesses a combination of keys; enter another x, and then
<r, x> fits with probability 1/p, or (b) fails unless it guesses alpha. With REPETITIONS = 2, each with keys and coins
of its own, it goes unnoticed with probability at most (5/p)^2, about 2^-57.

One-time masks. Under two coins U_i would open <r - r', v_i>. So everything up to the coin is noted, and a second
attempt sends the same bytes again.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from hmac import compare_digest

import numpy as np
from jaxtyping import Bool, Int64, UInt32
from numpy import ndarray

from benchmarks.authenticated_inputs.linear_macs import Held, Holder, Keeper, Kept, message_bytes
from benchmarks.authenticated_inputs.masks import REPETITIONS, KeyedShares
from benchmarks.authenticated_inputs.noise_pool import (
    ROWS_A_QUERY,
    NoiseLaw,
    NoisePool,
    check_opening,
    opening_bytes,
    row_order,
)
from protocols.crypto.base_transfers import ANSWER_BYTES, COLUMNS, POINT_BYTES, BaseReceiver, BaseSender
from protocols.crypto.field import from_integers, matrix_product, minus, plus, times
from protocols.crypto.prg_chacha import derived_key, field_elements
from protocols.crypto.randomness import RandomSource
from protocols.crypto.wire_arrays import elements
from protocols.errors import MalformedMessage

_HASH_BYTES = 32
_NUMBER_BYTES = 32


@dataclass(frozen=True, eq=False)
class Bound:
    """What both servers end with: own counts and noise with macs, and the keys of the other's.

    Cells: the counts of each query and class, and then the noise of each query, in the order of the queries.
    """

    held: Held
    kept: Kept


@dataclass(frozen=True, eq=False)
class _Coin:
    """What the second coin gives."""

    r: UInt32[ndarray, "repetitions queries classes"] = field(repr=False)
    rho: UInt32[ndarray, "voters repetitions queries"] = field(repr=False)
    order: Int64[ndarray, " rows"] = field(repr=False)


class Transfers:
    """This side's part in COLUMNS base transfers in either direction."""

    def __init__(self, source: RandomSource) -> None:
        self._source = source
        self._sender = BaseSender(source)
        self.offer = self._sender.message

    def pairs(self, answer: bytes) -> list[tuple[bytes, bytes]]:
        """Both seeds of every transfer in which this side offers."""
        return self._sender.keys(answer)

    def chosen(self, offer: bytes) -> tuple[Bool[ndarray, "128"], list[bytes], bytes]:
        """Random bits, the seeds that they chose of the other's, and the answer to the other."""
        bits = np.unpackbits(np.frombuffer(self._source(COLUMNS // 8), dtype=np.uint8)).astype(np.bool_)
        receiver = BaseReceiver(offer, bits, self._source)
        return bits, receiver.keys, receiver.message


class InputCheck:
    """One server's side, step by step: each method takes the other's message of the step before.

    weights: in units, zero where a vote does not count; first: whether this is the coordinator; secret: 32 secret bytes
    of this batch, the same in every attempt; digest: of what both know about the batch; transfers: fresh ones. Any
    method raises MalformedMessage, after which nothing more may be sent.
    """

    def __init__(
        self, shares: KeyedShares, weights: Int64[ndarray, "voters queries"], law: NoiseLaw, *, first: bool,
        secret: bytes, digest: bytes, transfers: Transfers,
    ) -> None:  # fmt: skip
        self._shares, self._weights = shares.counted(weights != 0), weights
        self._law, self._first, self._digest, self._transfers = law, first, digest, transfers
        self._queries, self._classes = shares.votes.shape[1:]
        self._rows = ROWS_A_QUERY * self._queries
        self._numbers = [derived_key(f"input coin {number}", secret, digest) for number in (1, 2)]
        self._salt = derived_key("input salt", secret, digest)
        self._pool = NoisePool.of(secret, self._rows)

    @property
    def _cells(self) -> int:
        return self._queries * self._classes + REPETITIONS + self._rows * self._law.width

    def commitment(self) -> bytes:
        """Digest of the batch; commitments to both numbers, apart, and to the pool; the offer of base transfers."""
        promised = [self._promise(each) for each in (0, 1)]
        return b"".join([self._digest, *promised, self._pool.commitment, self._transfers.offer])

    def agree(self, theirs: bytes) -> bytes:
        """This side's number of the first coin, and its answer to the base transfers."""
        self._check(theirs, 4 * _HASH_BYTES + POINT_BYTES, "commitment to inputs")
        digest, one, two, self._their_pool, offer = (theirs[at : at + 32] for at in range(0, len(theirs), 32))
        if digest != self._digest:
            raise MalformedMessage("the servers differ in the batch whose inputs they check")
        self._promised = (one, two)
        bits, seeds, answer = self._transfers.chosen(offer)
        self._keeper = Keeper(bits, seeds, repetitions=REPETITIONS)
        return self._numbers[0] + self._salt_of(0) + answer

    def enter(self, theirs: bytes) -> bytes:
        """This side's counts, masks and noise, entered."""
        self._check(theirs, 2 * _NUMBER_BYTES + ANSWER_BYTES, "number")
        self._coin_one = self._coin(0, theirs[:64])
        holder = Holder(self._transfers.pairs(theirs[64:]), repetitions=REPETITIONS)
        self._held, message = holder.authenticate(self._inputs(self._law.rows(self._pool.seeds, self._coin_one)))
        return message

    def draw(self, theirs: bytes) -> bytes:
        """This side's number of the second coin. What `noted` gives must have been noted before this is sent."""
        self._check(theirs, message_bytes(self._cells, repetitions=REPETITIONS), "inputs")
        self._kept = self._keeper.receive(theirs, self._cells)
        return self._numbers[1] + self._salt_of(1)

    def open(self, theirs: bytes) -> bytes:
        """Masked results of all votes; the noise that is not used; the macs of this side's sums; a commitment."""
        self._check(theirs, 2 * _NUMBER_BYTES, "number")
        coin = self._coin(1, theirs)
        voters = len(self._shares.votes)
        r = field_elements(derived_key("input points", coin), REPETITIONS * self._queries * self._classes)
        rho = field_elements(derived_key("input factors", coin), voters * REPETITIONS * self._queries)
        self._drawn = _Coin(
            r.reshape(REPETITIONS, self._queries, self._classes),
            rho.reshape(voters, REPETITIONS, self._queries),
            row_order(coin, self._rows),
        )
        self._opened = plus(_products(self._shares.votes[:, None], self._drawn.r), self._shares.masks)
        sums = self._sums(self._held.macs)
        opening = self._pool.opening(self._drawn.order, self._queries, self._pooled(self._held))
        return self._opened.astype("<u4").tobytes() + sums.astype("<u4").tobytes() + opening

    def promise(self, theirs: bytes) -> bytes:
        """A commitment to this side's result; everything else of the other's was checked."""
        size, tail = 4 * self._opened.size, 4 * REPETITIONS
        self._check(theirs, size + tail + opening_bytes(self._rows, self._queries), "opened inputs")
        opened = plus(self._opened, elements(theirs[:size], self._opened.shape))
        opened *= self._counted()
        check_opening(
            theirs[size + tail :], self._their_pool, order=self._drawn.order, queries=self._queries, law=self._law,
            coin=self._coin_one, kept=self._pooled(self._kept),
        )  # fmt: skip
        self._check_sums(opened, elements(theirs[size : size + tail], (REPETITIONS,)))
        shares = self._shares
        keyed = plus(_products(shares.keyed, self._drawn.r), shares.keyed_masks)
        result = minus(keyed, times(opened, shares.keys))
        self._result = _total(times(result, self._drawn.rho))
        return self._sealed(self._first, 2, self._result.astype("<u4").tobytes(), self._salt_of(2))

    def result(self, theirs: bytes) -> bytes:
        """This side's result, opened."""
        self._check(theirs, _HASH_BYTES, "commitment to a result")
        self._their_promise = theirs
        return self._result.astype("<u4").tobytes() + self._salt_of(2)

    def finish(self, theirs: bytes) -> Bound:
        """Counts and noise, authenticated."""
        size = 4 * REPETITIONS
        self._check(theirs, size + _NUMBER_BYTES, "result")
        if not compare_digest(self._sealed(not self._first, 2, theirs[:size], theirs[size:]), self._their_promise):
            raise MalformedMessage("the other server opened another result than it had committed to")
        if plus(self._result, elements(theirs[:size], (REPETITIONS,))).any():
            raise MalformedMessage("the other server shifted what it opened of the votes")
        return Bound(self._used(self._held), self._used(self._kept))

    def _inputs(self, noise: Int64[ndarray, "rows width"]) -> UInt32[ndarray, " cells"]:
        sums = _weighted(self._shares.votes, self._weights)
        masks = _total(times(self._shares.masks, _field(self._weights)[:, None]))
        return np.concatenate([sums.reshape(-1), masks, from_integers(noise).reshape(-1)])

    def _counted(self) -> UInt32[ndarray, "voters 1 queries"]:
        return (self._weights != 0).astype(np.uint32)[:, None]

    def _sums(self, rows: UInt32[ndarray, "repetitions cells"]) -> UInt32[ndarray, " repetitions"]:
        """<r, x> + Z of numbers, macs or keys, those of each repetition."""
        counts = self._queries * self._classes
        r = self._drawn.r.reshape(REPETITIONS, 1, counts)
        products = matrix_product(r, rows[:, :counts, None])[:, 0, 0]
        return plus(products, rows[np.arange(REPETITIONS), counts + np.arange(REPETITIONS)])

    def _check_sums(
        self, opened: UInt32[ndarray, "voters repetitions queries"], macs: UInt32[ndarray, " repetitions"]
    ) -> None:
        weighted = _total(times(opened, _field(self._weights)[:, None]))
        own = self._sums(np.broadcast_to(self._held.numbers, self._held.macs.shape))
        theirs = minus(weighted, own)
        expected = minus(self._sums(self._kept.keys), times(self._kept.alphas, theirs))
        if not compare_digest(expected.tobytes(), macs.tobytes()):
            raise MalformedMessage("the other server's sums are not those of the votes")

    def _pooled(self, entered: Held | Kept) -> Held | Kept:
        return entered[slice(self._queries * self._classes + REPETITIONS, None)]

    def _used(self, entered: Held | Kept) -> Held | Kept:
        counts = self._queries * self._classes
        pool = np.arange(self._rows * self._law.width).reshape(self._rows, -1)[self._drawn.order[: self._queries]]
        return entered[np.concatenate([np.arange(counts), counts + REPETITIONS + pool.reshape(-1)])]

    def _promise(self, at: int) -> bytes:
        return self._sealed(self._first, at, self._numbers[at], self._salt_of(at))

    def _salt_of(self, at: int) -> bytes:
        return derived_key(f"salt {at}", self._salt)

    def _coin(self, at: int, opened: bytes) -> bytes:
        number, salt = opened[:_NUMBER_BYTES], opened[_NUMBER_BYTES:]
        if not compare_digest(self._sealed(not self._first, at, number, salt), self._promised[at]):
            raise MalformedMessage("the other server opened another number than it had committed to")
        both = (self._numbers[at], number) if self._first else (number, self._numbers[at])
        return derived_key(f"coin {at}", self._digest, *both)

    def _sealed(self, first: bool, at: int, content: bytes, salt: bytes) -> bytes:
        return hashlib.sha256(b"conclave input check" + bytes([first, at]) + salt + content).digest()

    @staticmethod
    def _check(message: bytes, size: int, what: str) -> None:
        if len(message) != size:
            raise MalformedMessage(f"the other server's {what} has {len(message)} bytes; expected: {size}")


def _products(
    votes: UInt32[ndarray, "voters some queries classes"], r: UInt32[ndarray, "repetitions queries classes"]
) -> UInt32[ndarray, "voters repetitions queries"]:
    """<r, s> of each voter, repetition and query."""
    votes = np.broadcast_to(votes, (len(votes), *r.shape))
    return matrix_product(votes.transpose(1, 2, 0, 3), r[..., None])[..., 0].transpose(2, 0, 1)


def _weighted(
    votes: UInt32[ndarray, "voters queries classes"], weights: Int64[ndarray, "voters queries"]
) -> UInt32[ndarray, "queries classes"]:
    return matrix_product(_field(weights).T[:, None], votes.transpose(1, 0, 2))[:, 0]


def _field(weights: Int64[ndarray, "voters queries"]) -> UInt32[ndarray, "voters queries"]:
    return weights.astype(np.uint32)


def _total(values: UInt32[ndarray, "voters repetitions queries"]) -> UInt32[ndarray, " repetitions"]:
    """The sum over voters and queries."""
    flat = values.transpose(1, 0, 2).reshape(values.shape[1], -1)
    return (flat.astype(np.uint64).sum(axis=1) % np.uint64(2**31 - 1)).astype(np.uint32)
