"""What the two servers put into the circuit of a batch, the sizes on which they must agree, and the servers' check that
what each will put in is its share of the counts and its noise, nothing else.

The vote check leaves each voter i's vector v_i of a query with shares of a key k and of k v_i: shares of its MAC, as in
Damgard, Pastro, Smart & Zakarias 2012 (SPDZ), except that every query, voter and repetition has a key of its own, which
nobody knows but the party. This check carries that MAC over to the sums. By the time that it starts, who counts and
with which weight w_i is settled. For each repetition:

1. *Entered.* Each server enters its share x = sum_i w_i s_i of the counts, the sum Z = sum_i w_i z_i of its shares of
   one-time masks, and its pool of noise (noise_pool.py), with macs under the other's alpha (linear_macs.py). Only then
   is a coin drawn, once for the batch.
2. *Opened.* The coin gives r. Opened are, for each voter and query, U_i = <r, v_i> + z_i, and the noise that is not
   used.
3. *Tested.* (a) sum_i rho_i (<r, k v_i> + k z_i - U_i k) = 0, of which each server computes its share: so the U_i are
   those of the parties' vectors. (b) U = sum_i w_i U_i determines what the other server's <r, x> + Z must be, and its
   mac must fit that.

What a server learns: U_i is uniform, because z_i is; (a) is zero; (b) follows from U and from the server's own numbers.
What a server can do: shift U_i, and then (a) fails unless it guesses a combination of keys; enter another x, and then
<r, x> fits with probability 1/p, or (b) fails unless it guesses alpha. With two repetitions, each with keys and coins
of its own, it goes unnoticed with probability at most (5/p)^2, about 2^-57.

**One transcript.** Under two coins U_i would open <r - r', v_i>, and under other entries after the coin anything would
fit. So all that a server says follows from its shares, its seed of the batch, and what the other said before, which is
pinned: as in the vote check, nothing is drawn. docs/explanation/input-check.md is the specification.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from hmac import compare_digest

import numpy as np
from jaxtyping import Bool, Int64, UInt32
from numpy import ndarray

from protocols.crypto.channel import Channel, elements
from protocols.crypto.edwards import POINT_BYTES
from protocols.crypto.field import BITS, from_integers, matrix_product, minus, plus, reduced, times
from protocols.crypto.garbling import conjunctions_a_query
from protocols.crypto.linear_macs import Held, Holder, Keeper, Kept, message_bytes
from protocols.crypto.oblivious_transfer import BASE_ANSWER_BYTES, COLUMNS, BaseReceiver, BaseSender
from protocols.crypto.prg import derived_key, expanded_source, field_elements
from protocols.crypto.rings import LIMIT
from protocols.errors import InvalidInput, MalformedMessage, Refused
from protocols.levels.two_server.batch_notes import BatchNotes
from protocols.levels.two_server.conversation import own_weights
from protocols.levels.two_server.keyed_shares import KeyedShares, weighted_sums
from protocols.levels.two_server.noise_pool import (
    ROWS_A_QUERY,
    NoiseLaw,
    NoisePool,
    check_opening,
    coin_of,
    opening_bytes,
    row_order,
)
from protocols.levels.two_server.one_time_masks import INPUT_REPETITIONS, Pin, PinnedExchange, masks_hold, opened_sum
from protocols.levels.two_server.sketch import Ballots
from protocols.refusals.code import Code
from protocols.study.levels import guarded
from protocols.study.study import Study

_HASH_BYTES = 32
# Numbers that are entered at once: messages of 4 MB.
_CHUNK = 16_384


@dataclass(frozen=True, eq=False)
class Bound:
    """A server's noisy shares of the counts with macs, and its keys of the other's: key = alpha number + mac."""

    numbers: UInt32[ndarray, "queries classes"] = field(repr=False)
    macs: UInt32[ndarray, "repetitions queries classes"] = field(repr=False)
    alphas: UInt32[ndarray, " repetitions"] = field(repr=False)
    keys: UInt32[ndarray, "repetitions queries classes"] = field(repr=False)


@dataclass(frozen=True, eq=False)
class _Coin:
    """What the second coin gives."""

    r: UInt32[ndarray, "repetitions queries classes"] = field(repr=False)
    rho: UInt32[ndarray, "voters repetitions queries"] = field(repr=False)
    order: Int64[ndarray, " rows"] = field(repr=False)


class InputCheck:
    """One server's side. `run` once.

    weights: in units, zero where a vote does not count; seed: 32 secret bytes of this
    batch, the same in every attempt; digest: of what both servers know about the batch.
    """

    def __init__(
        self,
        shares: KeyedShares,
        weights: Int64[ndarray, "voters queries"],
        law: NoiseLaw,
        *,
        seed: bytes,
        digest: bytes,
    ) -> None:
        self._shares, self._weights, self._law = shares, weights.astype(np.uint32), law
        self._sums = weighted_sums(shares, weights)
        self._counted = (weights != 0).astype(np.uint32)[:, None]
        self._queries, self._rows = shares.queries, ROWS_A_QUERY * shares.queries
        self._counts = shares.queries * shares.classes
        self._cells = self._counts + INPUT_REPETITIONS + self._rows * law.width
        # Where all rows of noise are among the numbers that are entered.
        self._pooled = slice(self._counts + INPUT_REPETITIONS, None)
        self._seed, self._digest = seed, derived_key("inputs", digest, weights.astype("<i8").tobytes())
        self._pool = NoisePool.of(seed, queries=shares.queries)

    def run(self, exchange: PinnedExchange) -> Bound:
        """What enters the circuit, bound.

        Raises Refused("false_inputs") if the other server entered or opened something else than it should have,
        MalformedMessage, ChannelClosed, and what the exchange's pin raises. After that nothing more may be sent.
        """
        self._leads = exchange.leads
        source = expanded_source(self._seed, label="input transfers")
        sender, size = BaseSender(source), 4 * _HASH_BYTES + POINT_BYTES
        promised = [self._promise(self._leads, at, number) for at, number in enumerate(self._pool.numbers)]
        hello = exchange.of("promise", b"".join([self._digest, *promised, self._pool.commitment, sender.message]), size)
        digest, one, two, pool, offer = (hello[at : at + 32] for at in range(0, len(hello), 32))
        if digest != self._digest:
            raise MalformedMessage("the servers differ in the batch whose inputs they check")
        bits = np.unpackbits(np.frombuffer(source(COLUMNS // 8), dtype=np.uint8)).astype(np.bool_)
        receiver = BaseReceiver(offer, bits, source)
        answer = exchange.of("number", self._pool.numbers[0] + receiver.message, _HASH_BYTES + BASE_ANSWER_BYTES)
        first = self._coin(0, answer[:_HASH_BYTES], one)
        holder = Holder(sender.keys(answer[_HASH_BYTES:]), repetitions=INPUT_REPETITIONS)
        keeper = Keeper(bits, receiver.keys, repetitions=INPUT_REPETITIONS)
        held, kept = self._entered(exchange, holder, keeper, self._pool.rows(self._law, first))
        second = self._coin(1, exchange.of("second number", self._pool.numbers[1], _HASH_BYTES), two)
        coin = self._drawn(second)
        own, keyed = self._products(coin)
        sums = self._masked_sums(coin, held.macs)
        content = own.astype("<u4").tobytes() + sums.astype("<u4").tobytes()
        message = content + self._pool.opening(coin.order, self._queries, held[self._pooled])
        theirs = exchange.of("opened", message, len(content) + opening_bytes(self._rows, self._queries))
        check_opening(
            theirs[len(content) :],
            pool,
            order=coin.order,
            queries=self._queries,
            law=self._law,
            coin=first,
            kept=kept[self._pooled],
        )
        opened = plus(own, elements(theirs[: own.nbytes], own.shape)) * self._counted
        self._check_sums(coin, opened, held, kept, elements(theirs[own.nbytes : len(content)], sums.shape))
        result = self._result(coin, opened, keyed)
        if opened_sum(exchange, "input results", result, secret=self._seed, digest=self._digest).any():
            raise Refused(Code.FALSE_INPUTS, "the other server shifted what it opened of the votes")
        return self._bound(coin, held, kept)

    def _entered(
        self, exchange: PinnedExchange, holder: Holder, keeper: Keeper, noise: Int64[ndarray, "rows width"]
    ) -> tuple[Held, Kept]:
        """This server's numbers with macs, and the keys of the other's."""
        numbers = self._inputs(noise)
        starts = range(0, self._cells, _CHUNK)
        counts = [min(_CHUNK, self._cells - start) for start in starts]
        held: list[Held] = []

        def messages() -> Iterator[bytes]:
            for chunk, start in enumerate(starts):
                own, message = holder.authenticate(chunk, numbers[start : start + _CHUNK])
                held.append(own)
                yield message

        sizes = [message_bytes(count, repetitions=INPUT_REPETITIONS) for count in counts]
        heard = exchange.of_parts("entered", messages(), sizes)
        kept = [keeper.receive(chunk, each, counts[chunk]) for chunk, each in enumerate(heard)]
        return Held.of_all(held), Kept.of_all(kept)

    def _inputs(self, noise: Int64[ndarray, "rows width"]) -> UInt32[ndarray, " cells"]:
        """The counts, the sums of masks, and all rows of noise."""
        masks = _total(times(self._shares.masks.masks[:, 0], self._weights[:, None]))
        return np.concatenate([self._sums.reshape(-1), masks, from_integers(noise).reshape(-1)])

    def _drawn(self, coin: bytes) -> _Coin:
        voters = self._shares.voters
        r = field_elements(derived_key("input points", coin), INPUT_REPETITIONS * self._counts)
        rho = field_elements(derived_key("input factors", coin), voters * INPUT_REPETITIONS * self._queries)
        shape = (INPUT_REPETITIONS, self._queries, -1)
        order = row_order(coin, self._rows)
        return _Coin(r.reshape(shape), rho.reshape(voters, INPUT_REPETITIONS, self._queries), order)

    def _products(self, coin: _Coin) -> tuple[ndarray, ndarray]:
        """This server's shares of U, and of <r, k v> + k z: zero where a vote does not count."""
        shape = (self._shares.voters, INPUT_REPETITIONS, self._queries)
        opened, keyed = np.empty(shape, dtype=np.uint32), np.empty(shape, dtype=np.uint32)
        of_votes, of_keyed = np.ascontiguousarray(coin.r.transpose(1, 2, 0)), coin.r[..., None]
        for at in self._shares.blocks():
            opened[at] = matrix_product(self._shares.votes(at).transpose(1, 0, 2), of_votes).transpose(1, 2, 0)
            keyed[at] = matrix_product(self._shares.keyed(at).transpose(1, 2, 0, 3), of_keyed)[..., 0].transpose(
                2, 0, 1
            )
        masks = self._shares.masks
        return plus(opened, masks.masks[:, 0]) * self._counted, plus(keyed, masks.keyed[:, 0]) * self._counted

    def _masked_sums(self, coin: _Coin, rows: UInt32[ndarray, "repetitions cells"]) -> UInt32[ndarray, " repetitions"]:
        """<r, x> + Z of numbers, macs or keys, those of each repetition."""
        r = coin.r.reshape(INPUT_REPETITIONS, 1, self._counts)
        products = matrix_product(r, rows[:, : self._counts, None])[:, 0, 0]
        each = np.arange(INPUT_REPETITIONS)
        return plus(products, rows[each, self._counts + each])

    def _check_sums(
        self,
        coin: _Coin,
        opened: UInt32[ndarray, "voters repetitions queries"],
        held: Held,
        kept: Kept,
        macs: UInt32[ndarray, " repetitions"],
    ) -> None:
        own = self._masked_sums(coin, np.broadcast_to(held.numbers, held.macs.shape))
        theirs = minus(_total(times(opened, self._weights[:, None])), own)
        expected = minus(self._masked_sums(coin, kept.keys), times(kept.alphas, theirs))
        if not compare_digest(expected.tobytes(), macs.tobytes()):
            raise Refused(Code.FALSE_INPUTS, "the other server's sums are not those of the votes")

    def _result(self, coin: _Coin, opened: ndarray, keyed: ndarray) -> UInt32[ndarray, " repetitions"]:
        """This server's share of (a)."""
        return _total(times(minus(keyed, times(opened, self._shares.keys)), coin.rho))

    def _bound(self, coin: _Coin, held: Held, kept: Kept) -> Bound:
        """Counts and the noise that is used, added up."""
        pool = np.arange(self._rows * self._law.width).reshape(self._rows, -1)
        used = self._counts + INPUT_REPETITIONS + pool[coin.order[: self._queries]].reshape(-1)
        counts, noise = slice(0, self._counts), used
        shape = (self._queries, -1)
        return Bound(
            plus(held[counts].numbers, held[noise].numbers).reshape(shape),
            plus(held[counts].macs, held[noise].macs).reshape(INPUT_REPETITIONS, *shape),
            kept.alphas,
            plus(kept[counts].keys, kept[noise].keys).reshape(INPUT_REPETITIONS, *shape),
        )

    def _promise(self, leads: bool, at: int, number: bytes) -> bytes:
        """A commitment to a number for a coin, of 256 random bits: it needs no salt."""
        return derived_key("number promised", bytes([leads, at]), self._digest, number)

    def _coin(self, at: int, number: bytes, promised: bytes) -> bytes:
        if not compare_digest(self._promise(not self._leads, at, number), promised):
            raise Refused(Code.FALSE_INPUTS, "the other server opened another number than it had committed to")
        own = self._pool.numbers[at]
        return coin_of(own, number) if self._leads else coin_of(number, own)


def _total(values: UInt32[ndarray, "voters repetitions queries"]) -> UInt32[ndarray, " repetitions"]:
    """The sum over voters and queries."""
    flat = values.transpose(1, 0, 2).reshape(values.shape[1], -1)
    return reduced(flat.sum(axis=1, dtype=np.uint64))


# Classes times queries of a chunk: about 60 MB of labels.
_CHUNK_CELLS = 16_384


class Sizes:
    """The sizes that both servers must agree on, and what follows from them.

    threshold: whether a query passes only if its winner reaches one; masked: whether the coordinator hides the label
    from the guardian (hidden queries).
    """

    def __init__(self, *, queries: int, classes: int, threshold: bool, masked: bool) -> None:
        if classes < 2:
            raise InvalidInput(f"classes = {classes}; allowed: 2 or more")
        self.queries, self.classes, self.threshold, self.masked = queries, classes, threshold, masked
        self.conjunctions = conjunctions_a_query(classes=classes, threshold=threshold)
        self.label_bits = (classes - 1).bit_length()
        self.outputs = self.label_bits + threshold
        self.digest = derived_key(
            "noisy argmax", np.array([queries, classes, threshold, masked], dtype="<i8").tobytes()
        )

    def chunks(self) -> Iterator[slice]:
        step = max(1, _CHUNK_CELLS // self.classes)
        for start in range(0, self.queries, step):
            yield slice(start, min(start + step, self.queries))

    @property
    def mask_bytes(self) -> int:
        """The size of the masks of all outputs."""
        return (self.outputs * self.queries + 7) // 8


@dataclass(frozen=True, eq=False)
class CircuitInputs:
    """One server's numbers, doubled for the argmax, and what binds both servers' numbers.

    macs: of its own numbers; alphas, keys: of the other's: key = alpha number + mac.
    """

    sizes: Sizes
    numbers: UInt32[ndarray, "classes queries"] = field(repr=False)
    macs: UInt32[ndarray, "repetitions classes queries"] = field(repr=False)
    alphas: UInt32[ndarray, " repetitions"] = field(repr=False)
    keys: UInt32[ndarray, "repetitions classes queries"] = field(repr=False)

    def bits(self, at: slice) -> Bool[ndarray, "31 classes queries"]:
        """The numbers' bits, lowest first, of a chunk of queries."""
        shifts = np.arange(BITS, dtype=np.uint32)[:, None, None]
        return ((self.numbers[:, at] >> shifts) & np.uint32(1)).astype(np.bool_)


def circuit_inputs(
    bound: Bound, *, leads: bool, threshold: int | None, total_units: int, masked: bool
) -> CircuitInputs:
    """A server's inputs. leads: whether it is the coordinator; masked: whether that hides labels from the guardian.

    bound: its shares of the counts in units with its noise; threshold: T S, which the noisy counts whose argmax is
    taken must reach, or None for plain GNMax, where every query passes; total_units: as given to
    `check_counting_ring`, which must have passed. Raises InvalidInput.
    """
    if not 0 <= total_units < LIMIT:
        raise InvalidInput(f"total_units = {total_units}; allowed: 0 to {LIMIT - 1}")
    # Centred by the coordinator, so that counts with noise lie in [0, 2^30) modulo p, and a threshold at 2^29.
    centre = total_units // 2 if threshold is None else threshold
    added = from_integers(np.array([2 * (2**29 - centre)]))
    numbers, macs, keys = (plus(each, each) for each in (bound.numbers, bound.macs, bound.keys))
    if leads:
        numbers = plus(numbers, added)
    else:
        keys = plus(keys, times(bound.alphas, added)[:, None, None])
    queries, classes = numbers.shape
    sizes = Sizes(queries=queries, classes=classes, threshold=threshold is not None, masked=masked)
    by_class = (each.transpose(0, 2, 1) for each in (macs, keys))
    return CircuitInputs(sizes, numbers.T, next(by_class), bound.alphas, next(by_class))


def sizes_of(study: Study, *, queries: int) -> Sizes:
    """The sizes of a batch's circuit."""
    level = guarded(study.confidentiality)
    threshold = study.threshold_units(level.units) is not None
    return Sizes(queries=queries, classes=study.classes, threshold=threshold, masked=level.masked)


def checked_masks(
    channel: Channel, keyed: KeyedShares, ballots: Ballots, *, leads: bool, secret: bytes, pin: Pin
) -> Bool[ndarray, " voters"]:
    """Which voters' masks are as agreed: the end of the vote check, whose secret and pins this takes."""
    exchange = PinnedExchange(channel, leads=leads, pin=pin)
    return masks_hold(exchange, keyed.masks, keyed.keys, secret=secret, digest=ballots.digest)


def bound_inputs(
    channel: Channel,
    study: Study,
    keyed: KeyedShares,
    ballots: Ballots,
    *,
    seats: Int64[ndarray, " seats"],
    valid: Bool[ndarray, " seats"],
    seed: bytes,
    leads: bool,
    notes: BatchNotes,
) -> CircuitInputs:
    """This server's noisy shares of the counts, bound, and what binds the other's. The batch is then an opened one.

    valid: which seats' votes count; seed: noted, from which its noise follows; leads: whether it is
    the coordinator. Raises Refused("too_many_opened"), ("other_check") or ("false_inputs"), MalformedMessage,
    ChannelClosed.
    """
    # A server that enters falsely and is noticed has tried once: see batch_notes.py.
    notes.opened.count(notes.request)
    voters = np.repeat(valid, study.votes.voters)[:, None]
    weights = np.asarray(own_weights(study, seats)[:, None] * (ballots.takes_part & voters), dtype=np.int64)
    check = InputCheck(keyed, weights, NoiseLaw.of(study), seed=seed, digest=ballots.digest)
    bound = check.run(PinnedExchange(channel, leads=leads, pin=notes.pin_input))
    level = guarded(study.confidentiality)
    return circuit_inputs(
        bound,
        leads=leads,
        threshold=study.threshold_units(level.units),
        total_units=study.total_units(level.units),
        masked=level.masked,
    )
