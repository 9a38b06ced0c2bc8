"""What a server enters into the circuit of a batch: bound before, by a check with the other server."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int64
from numpy import ndarray

from protocols.crypto.channel import Channel
from protocols.levels.two_server.batch_notes import BatchNotes
from protocols.levels.two_server.circuit_inputs import CircuitInputs, Sizes, circuit_inputs
from protocols.levels.two_server.conversation import own_weights
from protocols.levels.two_server.input_check import InputCheck
from protocols.levels.two_server.keyed_shares import KeyedShares
from protocols.levels.two_server.noise_pool import NoiseLaw
from protocols.levels.two_server.one_time_masks import masks_hold
from protocols.levels.two_server.pinned_exchange import Pin, PinnedExchange
from protocols.levels.two_server.sketch import Ballots
from protocols.study.levels import guarded
from protocols.study.study import Study


def sizes_of(study: Study, *, queries: int) -> Sizes:
    """The sizes of a batch's circuit."""
    level = guarded(study.confidentiality)
    threshold = study.threshold_units(level.units) is not None
    return Sizes(queries=queries, classes=study.classes, threshold=threshold, masked=level.hides_queries)


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
    # A server that enters falsely and is noticed has tried once: see opened_batches.py.
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
        masked=level.hides_queries,
    )
