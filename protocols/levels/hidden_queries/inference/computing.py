"""Private inference: the dealer, the answering party and the querying party.

The guardian as dealer: correlated randomness for one batch and one answering party, from two fresh seeds.

It needs the architecture and the number of queries, and sees no input, weight or message of the computation.

The answering party: a private model, and one batch of queries that it never sees.

Its messages are masked by the guardian's randomness, which serves one batch once. A step that is out of order or
malformed ends the batch: a second opening under the same masks would reveal differences.

The querying party: private inputs, and one batch that one other party answers without seeing them.

start() gives the first request; step(reply) gives the next one, or None when `share` is there. The querying party
relays requests as it likes, those of many parties at once.
"""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
from jaxtyping import Float, UInt32
from numpy import ndarray

from protocols.crypto.prg import SEED_BYTES, Stream
from protocols.crypto.randomness import RandomSource
from protocols.errors import MalformedMessage
from protocols.levels.hidden_queries.inference.architecture import Architecture, PoolShape, by_small, by_uniform
from protocols.levels.hidden_queries.inference.comparison import Piece, ReLUSide, corrections, drawn, joined, received
from protocols.levels.hidden_queries.inference.model import QuantisedModel, Weights, quantised_inputs
from protocols.levels.hidden_queries.inference.plan import LAST_REQUEST, SEED, InferencePlan, LinearGate, last_reply
from protocols.levels.hidden_queries.inference.vote import Vote, choosable, chosen_messages, padded_messages
from protocols.levels.two_server.shares import CoordinatorShare, GuardianShare, share_votes, vote_keys
from protocols.votes import ABSTAIN
from protocols.wire.messages import Arrays


def deal(architecture: Architecture, queries: int, *, source: RandomSource) -> tuple[Arrays, Arrays]:
    """The randomness for one batch: (the querying party's seed and pads, the answering party's seed and corrections).

    Raises InvalidInput for a number of queries outside the limits.
    """
    plan = InferencePlan.of(architecture, queries)
    seeds = source(SEED_BYTES), source(SEED_BYTES)
    asking, answering = (Stream(seed) for seed in seeds)
    sent: list[np.ndarray] = []
    for step in (*plan.steps, plan.vote):
        if isinstance(step, PoolShape):
            continue
        if isinstance(step, LinearGate):
            pieces: tuple[Piece, ...] = (step.result,)
            (weight_mask,), (value_mask,) = drawn(answering, (step.weights,)), drawn(asking, (step.values,))
            secrets: Arrays = (step.applied(value_mask, by_uniform(weight_mask)),)
        else:
            pieces = step.derived
            secrets = step.secrets(joined(step.free, drawn(asking, step.free), drawn(answering, step.free)))
        own = drawn(asking, pieces)
        sent += corrections(pieces, secrets, own)
    (choices,), (pads,) = drawn(asking, (plan.vote.index,)), drawn(answering, (plan.vote.pads,))
    pad = chosen_messages(pads, plan.vote.modulo(choices), np.zeros(plan.vote.pad.shape, dtype=np.uint32))
    first, second = (np.frombuffer(seed, dtype=np.uint8) for seed in seeds)
    return (first, pad), (second, *sent)


class Answerer:
    """Answers one batch, as one voter. At the end, only `guardian_share` is sent to the guardian."""

    def __init__(
        self, model: QuantisedModel, queries: int, dealt: Arrays, *, context: bytes, source: RandomSource
    ) -> None:
        """dealt: from the guardian; context: names the batch, as for `share_votes`.

        Raises MalformedMessage if what was dealt is not for this architecture and batch.
        """
        self._plan = InferencePlan.of(model.architecture, queries)
        self._model = model
        self._dealt = received("the dealt randomness", dealt, (SEED, *self._plan.corrections))
        # Shares of zero: the vote, and its product with the key, is added to those of the querying party.
        self._zero, self._guardian_share = share_votes(
            np.full((1, queries), ABSTAIN), classes=model.architecture.classes, context=context, source=source
        )
        self._keys = vote_keys(self._zero, self._guardian_share, queries=queries, context=context)[0]
        self._rotation = self._plan.vote.modulo(np.frombuffer(source(queries), dtype=np.uint8))
        self._waiting = list(self._plan.exchanges)
        self._over = False
        self._replies = self._answers()
        next(self._replies)

    @property
    def finished(self) -> bool:
        """Whether the last reply has been given."""
        return not self._waiting

    @property
    def guardian_share(self) -> GuardianShare:
        """The guardian's share of the votes and of their check: a fresh seed, independent of all else."""
        if not self.finished:
            raise MalformedMessage(f"the batch waits for {self._waiting[0].name!r}; there is no vote yet")
        return self._guardian_share

    def step(self, name: str, arrays: Arrays) -> Arrays:
        """The reply to one request. Raises MalformedMessage for one that is not next, which ends the batch."""
        if self._over or self.finished:
            raise MalformedMessage(f"step {name!r} came after the batch was over; allowed: nothing more")
        exchange = self._waiting[0]
        self._over = True
        if name != exchange.name:
            raise MalformedMessage(f"step {name!r} is out of order; expected {exchange.name!r}")
        reply = self._replies.send(received(name, arrays, exchange.request))
        self._over = False
        self._waiting.pop(0)
        return reply

    def _answers(self) -> Generator[Arrays, Arrays, None]:
        """Replies, each for the request that is sent in; primed by one `next`."""
        plan, stream = self._plan, Stream(self._dealt[0].tobytes())
        free = [drawn(stream, plan.answerers(step)) for step in (*plan.steps, plan.vote)]
        dealt = iter(self._dealt[1:])
        linear = [(layer, by_small(layer.matrix)) for layer in self._model.layers if isinstance(layer, Weights)]
        yield ()
        opened, following = iter((yield self._masked_weights(free))), iter(linear)

        # The querying party's input: all of it is its own share.
        share: UInt32[ndarray, "queries values"] = np.zeros(
            (plan.queries, self._model.architecture.features), np.uint32
        )
        for step, masks in zip(plan.steps, free, strict=False):
            if isinstance(step, PoolShape):
                share = step.sums(share)
            elif isinstance(step, LinearGate):
                weights, product = next(following)
                bias = np.repeat(weights.bias.astype(np.uint32), step.shape.bias_copies)
                share = step.applied(next(opened) + share, product) + next(dealt) + bias
            else:
                relu = ReLUSide(step, masks, (next(dealt), next(dealt), next(dealt)), leads=False)
                masked = relu.masked(share.reshape(-1))
                lookups = relu.lookups(masked, next(opened))
                their_lookups, their_bits = yield masked, lookups
                bits = relu.bits(lookups, their_lookups)
                opened = iter((yield (bits,)))
                share = relu.output(bits, their_bits).reshape(share.shape)

        vote = Vote(plan.vote, free[-1][:3], (next(dealt), next(dealt), next(dealt)), leads=False)
        masked = vote.masked(share)
        lookups = vote.lookups(masked, next(opened))
        their_lookups, their_wins = yield masked, lookups
        wins = vote.wins(lookups, their_lookups)
        (moved,) = yield wins, plan.vote.modulo(vote.index(wins, their_wins) + self._rotation)
        zero, no_keyed, *rest = self._zero.arrays()
        messages = choosable(plan.vote, self._rotation, self._keys, np.concatenate([zero, no_keyed[0]]))
        yield padded_messages(plan.vote, messages, free[-1][-1], plan.vote.modulo(moved)), *rest

    def _masked_weights(self, free: list[Arrays]) -> Arrays:
        return tuple(
            layer.matrix.astype(np.uint32) - masks[0]
            for layer, masks in zip(self._model.layers, free, strict=False)
            if isinstance(layer, Weights)
        )


_Request = tuple[str, Arrays]


class Querier:
    """Asks one party for the labels of `inputs`."""

    def __init__(self, architecture: Architecture, inputs: Float[ndarray, "queries ..."], dealt: Arrays) -> None:
        """dealt: from the guardian. Raises InvalidInput for inputs that the architecture does not take."""
        self._inputs = quantised_inputs(architecture, inputs)
        self._plan = InferencePlan.of(architecture, len(inputs))
        self._seed, self._pad = received("the dealt randomness", dealt, (SEED, self._plan.vote.pad))
        self._waiting = list(self._plan.exchanges)
        self._share: CoordinatorShare | None = None
        self._unfinished: Arrays | None = None
        self._over = False
        self._requests = self._asks()
        next(self._requests)

    @property
    def share(self) -> CoordinatorShare:
        """This party's share of one voter's votes and of their check, as a coordinator has it in `two_server`."""
        if self._share is None:
            raise MalformedMessage(f"the batch waits for the reply to {self._waiting[0].name!r}; there is no vote yet")
        return self._share

    @property
    def unfinished(self) -> Arrays:
        """After the last request: all that `finish` needs besides its reply, to be stored in case of a crash."""
        if self._unfinished is None:
            raise MalformedMessage(f"the batch waits for the reply to {self._waiting[0].name!r}; more requests follow")
        return self._unfinished

    def start(self) -> _Request:
        """The first request; it is empty, and could be made before there are inputs."""
        return self._waiting[0].name, ()

    def step(self, reply: Arrays) -> _Request | None:
        """The next request, or None at the end. Raises MalformedMessage for a bad reply; the batch is over then."""
        if self._over:
            raise MalformedMessage("a reply came after the batch was over; allowed: nothing more")
        exchange = self._waiting[0]
        self._over = True
        try:
            arrays = self._requests.send(received(exchange.name, reply, exchange.reply))
        except StopIteration as end:
            self._share = end.value
            return None
        self._over = False
        self._waiting.pop(0)
        return self._waiting[0].name, arrays

    def _asks(self) -> Generator[Arrays, Arrays, CoordinatorShare]:
        """Requests, each answered by what is sent in; returns the share of the votes."""
        plan, stream = self._plan, Stream(self._seed.tobytes())
        dealt = [drawn(stream, plan.queriers(step)) for step in (*plan.steps, plan.vote)]
        masked_weights = iter((yield ()))
        # Shares of all products with weights are known before any input is.
        products = [
            step.applied(arrays[0], by_uniform(next(masked_weights))) + arrays[1]
            for step, arrays in zip(plan.steps, dealt, strict=False)
            if isinstance(step, LinearGate)
        ]

        share, known = self._inputs.astype(np.uint32), iter(products)
        opening: Arrays = ()
        for step, arrays in zip(plan.steps, dealt, strict=False):
            if isinstance(step, PoolShape):
                share = step.sums(share)
            elif isinstance(step, LinearGate):
                opening, share = (*opening, share - arrays[0]), next(known)
            else:
                relu = ReLUSide(step, arrays[:3], arrays[3:], leads=True)
                masked = relu.masked(share.reshape(-1))
                their_masked, their_lookups = yield (*opening, masked)
                lookups = relu.lookups(masked, their_masked)
                bits = relu.bits(lookups, their_lookups)
                (their_bits,) = yield lookups, bits
                opening, share = (), relu.output(bits, their_bits).reshape(share.shape)

        *shares, choices = dealt[-1]
        vote = Vote(plan.vote, tuple(shares[:3]), tuple(shares[3:]), leads=True)
        masked = vote.masked(share)
        their_masked, their_lookups = yield (*opening, masked)
        lookups = vote.lookups(masked, their_masked)
        wins = vote.wins(lookups, their_lookups)
        their_wins, their_index = yield lookups, wins
        choice = plan.vote.modulo(vote.index(wins, their_wins) + their_index)
        self._unfinished = choice, self._pad
        return finish(self._unfinished, (yield (plan.vote.modulo(choice - choices),)))


def finish(unfinished: Arrays, reply: Arrays) -> CoordinatorShare:
    """The querying party's share, from Querier.unfinished and the last reply. Raises MalformedMessage for a bad one."""
    choice, pad = unfinished
    votes, *rest = received(LAST_REQUEST, reply, last_reply(*pad.shape[1:]))
    taken = chosen_messages(votes, choice, pad)
    return CoordinatorShare(taken[:1], taken[None, 1:], *rest)
