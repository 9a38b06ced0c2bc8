"""Steps in which both servers say something of the same kind.

What a server says in a step may not depend on what the other says in it. What it says in the next one does; so what it
heard is pinned before: once and for all attempts at a batch, as in the vote check (sketch.py).

One-time masks of a party's votes under the keys of its vote check, and the test that they were dealt as agreed.

For each of INPUT_REPETITIONS and each query the party deals shares of a mask z and of k z, k the key under which it
deals k v, and of a spare mask y and of k y. z hides <r,v> in the check of the servers' inputs (circuit_inputs.py).
Wrong products would stop that check, and with it the batch, after the inputs are fixed; so they are found before, when
a party can still be left out: for random g the servers open g z + y, and what their shares of g k z + k y - (g z + y) k
add up to must be zero (the sacrifice of Damgard, Pastro, Smart & Zakarias 2012, "Multiparty computation from somewhat
homomorphic encryption", section 3.3).

g must be unknown to parties when they deal. A server may choose it: y hides z whatever g is, if there is one g, and
what the other server said is pinned (`PinnedExchange`). A server that shifts what it opens here gets the voter left
out, and sees one combination of its keys. So this test comes after the vote check, whose keys must be secret until it
has ended.

Masks and spare masks come from the seeds of both servers. What a party sends on top of its votes is the coordinator's
share of k z and k y: 16 bytes per query. A hidden query's party does not know v, but knows k, and deals the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hmac import compare_digest

import numpy as np
from jaxtyping import Bool, UInt8, UInt32
from numpy import ndarray

from protocols.crypto.channel import Channel, elements, receive
from protocols.crypto.field import minus, plus, reduced, times
from protocols.crypto.prg import derived_key, field_elements
from protocols.errors import Refused
from protocols.refusals.code import Code

# Stores what a step of a batch was done with; raises Refused for any other than the first.
Pin = Callable[[str, bytes], None]


class PinnedExchange:
    """One server's end. leads: whether it is the coordinator's."""

    def __init__(self, channel: Channel, *, leads: bool, pin: Pin) -> None:
        self.leads = leads
        self._channel, self._pin = channel, pin

    def of(self, step: str, message: bytes, size: int, *, guardian_first: bool = False) -> bytes:
        """Says the message; returns what the other server says in this step, `size` bytes, pinned before more is said.

        guardian_first: the guardian speaks first, as it spoke last in the step before. Raises MalformedMessage,
        ChannelClosed, and what `pin` raises.
        """
        first = self.leads != guardian_first
        if first:
            self._channel.send(message)
        theirs = receive(self._channel, size, f"the other server's {step}")
        self._pin(step, derived_key("heard", theirs))
        if not first:
            self._channel.send(message)
        return theirs

    def of_parts(self, step: str, messages: Iterator[bytes], sizes: list[int]) -> Iterator[bytes]:
        """As `of`, in parts, which are pinned together at the end: what is said after the last part follows from all.

        messages: made one by one, so that not all need be held; none may follow from the other server's parts.
        """
        heard = b""
        for message, size in zip(messages, sizes, strict=True):
            if self.leads:
                self._channel.send(message)
            theirs = receive(self._channel, size, f"the other server's {step}")
            if not self.leads:
                self._channel.send(message)
            heard = derived_key("heard", heard, theirs)
            yield theirs
        self._pin(step, heard)


INPUT_REPETITIONS = 2
_HASH_BYTES = 32


@dataclass(frozen=True, eq=False)
class MaskShares:
    """A server's shares of z and y, and of k z and k y."""

    masks: UInt32[ndarray, "voters 2 repetitions queries"] = field(repr=False)
    keyed: UInt32[ndarray, "voters 2 repetitions queries"] = field(repr=False)


def deal_masks(
    keys: UInt32[ndarray, "voters all_repetitions queries"],
    *,
    coordinators: UInt8[ndarray, "voters 16"],
    guardians: UInt8[ndarray, "voters 16"],
    context: bytes,
) -> UInt32[ndarray, "voters 2 repetitions queries"]:
    """The coordinator's shares of k z and k y, which a party sends it.

    keys: of the vote check, of which the first INPUT_REPETITIONS serve; coordinators, guardians: each server's seeds.
    """
    queries, keys = keys.shape[2], keys[:, None, :INPUT_REPETITIONS]
    other = guardian_masks(guardians, queries=queries, context=context)
    masks = plus(coordinator_masks(coordinators, queries=queries, context=context), other.masks)
    return minus(times(masks, keys), other.keyed)


def coordinator_masks(
    seeds: UInt8[ndarray, "voters 16"], *, queries: int, context: bytes
) -> UInt32[ndarray, "voters 2 repetitions queries"]:
    """The coordinator's shares of z and y."""
    return _expanded("coordinator's masks", seeds, queries, 1, context)[:, 0]


def guardian_masks(seeds: UInt8[ndarray, "voters 16"], *, queries: int, context: bytes) -> MaskShares:
    """The guardian's shares."""
    both = _expanded("guardian's masks", seeds, queries, 2, context)
    return MaskShares(both[:, 0], both[:, 1])


def masks_hold(
    exchange: PinnedExchange,
    shares: MaskShares,
    keys: UInt32[ndarray, "voters repetitions queries"],
    *,
    secret: bytes,
    digest: bytes,
) -> Bool[ndarray, " voters"]:
    """Which voters' masks are as agreed, for both servers the same: of the others nothing may be counted.

    keys: this server's shares of them; secret: this server's of the batch, the same in every attempt; digest: of what
    both know about the batch. Raises MalformedMessage, ChannelClosed, and what the exchange's `pin` raises.
    """
    number = derived_key("mask number", secret, digest)
    theirs = exchange.of("mask number", number, _HASH_BYTES)
    coin = derived_key("masks tested", digest, *((number, theirs) if exchange.leads else (theirs, number)))
    factors = field_elements(coin, 2 * keys[0].size).reshape(2, *keys.shape[1:])
    g, rho = factors
    own = plus(times(shares.masks[:, 0], g), shares.masks[:, 1])
    opened = plus(own, elements(exchange.of("masks", own.astype("<u4").tobytes(), own.nbytes), own.shape))
    left = minus(plus(times(shares.keyed[:, 0], g), shares.keyed[:, 1]), times(opened, keys))
    result = reduced(times(left, rho).sum(axis=2, dtype=np.uint64))
    return np.asarray(~opened_sum(exchange, "mask results", result, secret=secret, digest=digest).any(axis=1))


def opened_sum(
    exchange: PinnedExchange, step: str, own: UInt32[ndarray, "*sizes"], *, secret: bytes, digest: bytes
) -> UInt32[ndarray, "*sizes"]:
    """The sum of both servers' numbers, which neither could choose by the other's: both commit to them before.

    Raises Refused("false_inputs") for another opening.
    """
    content, salt = own.astype("<u4").tobytes(), derived_key("salt", secret, step.encode(), digest)
    promised = exchange.of(f"{step} promised", _commitment(step, exchange.leads, digest, salt, content), _HASH_BYTES)
    theirs = exchange.of(step, content + salt, len(content) + _HASH_BYTES)
    content, salt = theirs[: len(content)], theirs[len(content) :]
    if not compare_digest(_commitment(step, not exchange.leads, digest, salt, content), promised):
        raise Refused(Code.FALSE_INPUTS, f"the other server opened other {step} than it had committed to")
    return plus(own, elements(content, own.shape))


def _commitment(step: str, leads: bool, digest: bytes, salt: bytes, content: bytes) -> bytes:
    return derived_key("promised", step.encode(), bytes([leads]), digest, salt, content)


def _expanded(
    label: str, seeds: UInt8[ndarray, "voters 16"], queries: int, parts: int, context: bytes
) -> UInt32[ndarray, "voters parts 2 repetitions queries"]:
    shape = (len(seeds), parts, 2, INPUT_REPETITIONS, queries)
    rows = np.empty((len(seeds), int(np.prod(shape[1:]))), dtype=np.uint32)
    for row, seed in zip(rows, seeds, strict=True):
        row[:] = field_elements(derived_key(label, context, seed.tobytes()), rows.shape[1])
    return rows.reshape(shape)
