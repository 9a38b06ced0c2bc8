"""What a public architecture and a number of queries determine: gates, seeds in order, shapes and sizes of messages.

Dealer, querying and answering party walk through the same plan, so that their streams stay in step.

The sizes of a private inference's messages, checked against the hub's limits before anything is computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
from jaxtyping import UInt32
from numpy import ndarray

from protocols.crypto.prg import SEED_BYTES
from protocols.errors import InvalidInput
from protocols.levels.hidden_queries.inference.architecture import (
    Architecture,
    LinearShape,
    Multiply,
    PoolShape,
    ReLUShape,
)
from protocols.levels.hidden_queries.inference.comparison import Digits, Piece, ReLUGate
from protocols.levels.hidden_queries.inference.vote import VoteGate
from protocols.levels.two_server.one_time_masks import INPUT_REPETITIONS
from protocols.levels.two_server.shares import REPETITIONS
from protocols.wire.relay import REQUEST_BYTES

MAX_QUERIES = 2**16
# The most randomness dealt for one batch, so that it fits a message; the guardian needs a few times as much memory.
MAX_DEALT_BYTES = 250 * 2**20
SEED = Piece("xor", "<u1", (SEED_BYTES,))
# The request whose reply brings the votes: they are charged before it is answered.
LAST_REQUEST = "vote: choice"


@dataclass(frozen=True)
class LinearGate:
    """A layer with weights on `queries` rows: a matrix triple (Beaver 1991; Mohassel & Zhang 2017, "SecureML", IV.A).

    Dealt: a for the weights W, b for the values x, shares of a b. Since one party knows W and a, the other b, only
    W - a and x - b are sent, each one way: W x = W (x - b) + (W - a) b + a b.
    """

    shape: LinearShape
    queries: int

    @property
    def weights(self) -> Piece:
        """a, of the answering party's seed; the opening of weights - a."""
        return Piece("ring", "<u4", self.shape.matrix)

    @property
    def values(self) -> Piece:
        """b, of the querying party's seed; the opening of values - b."""
        return Piece("ring", "<u4", (self.queries, self.shape.inputs))

    @property
    def result(self) -> Piece:
        """Shares of the layer applied to b with weights a."""
        return Piece("ring", "<u4", (self.queries, self.shape.outputs))

    def applied(
        self, values: UInt32[ndarray, "queries inputs"], multiply: Multiply
    ) -> UInt32[ndarray, "queries outputs"]:
        """The layer without bias, chunk by chunk, modulo 2^32."""
        outputs = np.empty((len(values), self.shape.outputs), dtype=np.uint32)
        for start in range(0, len(values), self.shape.chunk):
            chunk = slice(start, start + self.shape.chunk)
            outputs[chunk] = self.shape.gathered(multiply(self.shape.columns(values[chunk])))
        return outputs


_Step = LinearGate | ReLUGate | PoolShape


@dataclass(frozen=True)
class RoundTrip:
    """One request of the querying party and its reply."""

    name: str
    request: tuple[Piece, ...]
    reply: tuple[Piece, ...]


@dataclass(frozen=True)
class InferencePlan:
    """The steps of one batch, and the vote at its end."""

    steps: tuple[_Step, ...]
    vote: VoteGate
    queries: int

    @classmethod
    def of(cls, architecture: Architecture, queries: int) -> InferencePlan:
        """The plan of a batch. Raises InvalidInput if it is empty or too large, before anything large is allocated."""
        if not 1 <= queries <= MAX_QUERIES:
            raise InvalidInput(f"a batch has {queries} queries; allowed: 1 to {MAX_QUERIES}")
        bits = architecture.precision.accumulator_bits
        steps: list[_Step] = []
        for layer in architecture.layers:
            if isinstance(layer, ReLUShape):
                steps.append(ReLUGate(queries * layer.inputs, layer.shift, Digits.of(bits, layer.shift)))
            elif isinstance(layer, PoolShape):
                steps.append(layer)
            else:
                steps.append(LinearGate(layer, queries))
        plan = cls(tuple(steps), VoteGate(queries, architecture.classes, Digits.of(bits, 0)), queries)
        if plan.dealt_bytes > MAX_DEALT_BYTES:
            raise InvalidInput(
                f"{queries} queries need {plan.dealt_bytes / 2**20:.0f} MiB of dealt randomness; allowed: "
                f"{MAX_DEALT_BYTES // 2**20} MiB: ask fewer at once"
            )
        return plan

    @property
    def linear(self) -> tuple[LinearGate, ...]:
        """The layers with weights."""
        return tuple(step for step in self.steps if isinstance(step, LinearGate))

    @property
    def dealt_bytes(self) -> int:
        """Bytes of all corrections and of the masks of one layer's values."""
        pieces = (*self.corrections, *(gate.values for gate in self.linear))
        return sum(prod(piece.shape) * int(piece.dtype[-1]) for piece in pieces)

    @property
    def exchanges(self) -> tuple[RoundTrip, ...]:
        """All requests and replies, in order.

        The first asks for masked weights and may be made before there are queries. Where the querying party opens a
        value, the answering party's reply brings its own part and, already, its part of the opening that follows.
        """
        found = [RoundTrip("weights", (), tuple(gate.weights for gate in self.linear))]
        values: tuple[Piece, ...] = ()
        for number, step in enumerate(self.steps, 1):
            if isinstance(step, LinearGate):
                values += (step.values,)
            elif isinstance(step, ReLUGate):
                masked, lookups, bits = step.free
                found.append(RoundTrip(f"layer {number}: signs", (*values, masked), (masked, lookups)))
                found.append(RoundTrip(f"layer {number}: choices", (lookups, bits), (bits,)))
                values = ()
        masked, lookups, wins = self.vote.free
        found.append(RoundTrip("vote: signs", (*values, masked), (masked, lookups)))
        found.append(RoundTrip("vote: wins", (lookups, wins), (wins, self.vote.index)))
        found.append(RoundTrip(LAST_REQUEST, (self.vote.index,), last_reply(*wins.shape)))
        return tuple(found)

    @staticmethod
    def answerers(step: _Step | VoteGate) -> tuple[Piece, ...]:
        """What the answering party's seed gives for a step."""
        if isinstance(step, PoolShape):
            return ()
        if isinstance(step, VoteGate):
            return (*step.free, step.pads)
        return (step.weights,) if isinstance(step, LinearGate) else step.free

    @staticmethod
    def queriers(step: _Step | VoteGate) -> tuple[Piece, ...]:
        """What the querying party's seed gives for a step."""
        if isinstance(step, PoolShape):
            return ()
        if isinstance(step, VoteGate):
            return (*step.free, *step.derived, step.index)
        return (step.values, step.result) if isinstance(step, LinearGate) else (*step.free, *step.derived)

    @property
    def corrections(self) -> tuple[Piece, ...]:
        """What the dealer sends the answering party besides its seed."""
        pieces: list[Piece] = []
        for step in (*self.steps, self.vote):
            if isinstance(step, LinearGate):
                pieces.append(step.result)
            elif not isinstance(step, PoolShape):
                pieces += step.derived
        return tuple(pieces)


def last_reply(queries: int, classes: int) -> tuple[Piece, ...]:
    """The arrays of the reply: the votes to choose from, padded, and the rest of the querying party's share."""
    entries = 1 << (classes - 1).bit_length()
    return (
        Piece("field", "<u4", (1 + REPETITIONS, entries, queries, classes)),
        Piece("field", "<u4", (1, REPETITIONS, queries)),
        Piece("field", "<u4", (1, REPETITIONS)),
        Piece("field", "<u4", (1, 2, INPUT_REPETITIONS, queries)),
        Piece("xor", "<u1", (1, SEED_BYTES)),
    )


# A hub accepts and relays no larger frame: it holds several in memory at once.
REPLY_BYTES = 7 * 2**20


def check_sizes(architecture: Architecture, queries: int) -> None:
    """Raises InvalidInput unless all messages of a batch of `queries` queries are within the limits."""
    plan = InferencePlan.of(architecture, queries)
    reply = max(_bytes(exchange.reply) for exchange in plan.exchanges)
    request = max(_bytes(plan.corrections), *(_bytes(exchange.request) for exchange in plan.exchanges))
    for what, size, limit in (
        ("a reply of the answering party", reply, REPLY_BYTES),
        ("a message to the answering party", request, REQUEST_BYTES),
    ):
        if size > limit:
            raise InvalidInput(
                f"{what} about {queries} queries has {size} bytes; allowed: {limit}: use a smaller model, or a study "
                "with a lower batch_limit"
            )


def _bytes(pieces: tuple[Piece, ...]) -> int:
    return sum(prod(piece.shape) * np.dtype(piece.dtype).itemsize for piece in pieces)
