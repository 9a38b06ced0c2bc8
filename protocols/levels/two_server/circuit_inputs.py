"""What the two servers put into the circuit of a batch, and the sizes on which they must agree.

What a server enters into the circuit of a batch: bound before, by a check with the other server.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Int64, UInt32
from numpy import ndarray

from protocols.crypto.channel import Channel
from protocols.crypto.field import BITS, from_integers, plus, times
from protocols.crypto.garbling import conjunctions_a_query
from protocols.crypto.prg import derived_key
from protocols.crypto.rings import LIMIT
from protocols.errors import InvalidInput
from protocols.levels.two_server.batch_notes import BatchNotes
from protocols.levels.two_server.conversation import own_weights
from protocols.levels.two_server.input_check import Bound, InputCheck
from protocols.levels.two_server.keyed_shares import KeyedShares
from protocols.levels.two_server.noise_pool import NoiseLaw
from protocols.levels.two_server.one_time_masks import Pin, PinnedExchange, masks_hold
from protocols.levels.two_server.sketch import Ballots
from protocols.study.levels import guarded
from protocols.study.study import Study

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

    macs: of its own numbers; alphas, keys: of the other's: key = alpha number + mac (input_check.py).
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
