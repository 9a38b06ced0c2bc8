"""The answering party: a private model, and one batch of queries that it never sees.

Its messages are masked by the guardian's randomness, which serves one batch once. A step that is out of order or
malformed ends the batch: a second opening under the same masks would reveal differences.
"""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
from jaxtyping import UInt32
from numpy import ndarray

from protocols.crypto.field import minus, plus
from protocols.crypto.prg_aes import Stream
from protocols.crypto.randomness import RandomSource
from protocols.errors import MalformedMessage
from protocols.levels.hidden_queries.inference.architecture import PoolShape
from protocols.levels.hidden_queries.inference.fixed_point import QuantisedModel, Weights
from protocols.levels.hidden_queries.inference.material import Arrays, drawn, received
from protocols.levels.hidden_queries.inference.plan import SEED, InferencePlan, LinearGate
from protocols.levels.hidden_queries.inference.relu import ReLUSide
from protocols.levels.hidden_queries.inference.ring import by_small
from protocols.levels.hidden_queries.inference.vote import Vote, key_masks, keyed_at, votes_at
from protocols.levels.two_server.shares import GuardianShare, share_votes, vote_keys
from protocols.votes import ABSTAIN


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
        # Shares of zero, to which the vote, and its product with the key, are added on the querying party's side.
        self._zero, self._guardian_share = share_votes(
            np.full((1, queries), ABSTAIN), classes=model.architecture.classes, context=context, source=source
        )
        self._keys = vote_keys(self._zero, self._guardian_share, queries=queries, context=context)[0]
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

        vote = Vote(plan.vote, free[-1], (next(dealt), next(dealt), next(dealt)), leads=False)
        masked = vote.masked(share)
        lookups = vote.lookups(masked, next(opened))
        their_lookups, their_wins = yield masked, lookups
        wins = vote.wins(lookups, their_lookups)
        # The guardian knows the dealt tables, so this party's own share would tell it the vote. It gets a fresh share,
        # and the querying party the difference, which is uniform to it.
        votes = vote.shares(wins, their_wins)
        keyed = keyed_at(votes, self._keys, votes_at(next(dealt), wins, their_wins))
        zero, no_keyed, *rest = self._zero.arrays()
        masked = minus(self._keys, key_masks(self._dealt[0].tobytes(), plan.queries))
        yield wins, masked, plus(votes[None], zero), plus(keyed[None], no_keyed), *rest

    def _masked_weights(self, free: list[Arrays]) -> Arrays:
        return tuple(
            layer.matrix.astype(np.uint32) - masks[0]
            for layer, masks in zip(self._model.layers, free, strict=False)
            if isinstance(layer, Weights)
        )
