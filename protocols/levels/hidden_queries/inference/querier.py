"""The querying party: private inputs, and one batch that one other party answers without seeing them.

start() gives the first request; step(reply) gives the next one, or None when `share` is there. The querying party
relays requests as it likes, those of many parties at once.
"""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from protocols.crypto.field import plus
from protocols.crypto.prg_aes import Stream
from protocols.errors import MalformedMessage
from protocols.levels.hidden_queries.inference.architecture import Architecture, PoolShape
from protocols.levels.hidden_queries.inference.fixed_point import quantised_inputs
from protocols.levels.hidden_queries.inference.material import Arrays, drawn, received
from protocols.levels.hidden_queries.inference.plan import LAST_REQUEST, SEED, InferencePlan, LinearGate, last_reply
from protocols.levels.hidden_queries.inference.relu import ReLUSide
from protocols.levels.hidden_queries.inference.ring import by_uniform
from protocols.levels.hidden_queries.inference.vote import Vote, keyed_at, keyed_masks, keyed_seed, votes_at
from protocols.levels.two_server.shares import CoordinatorShare

Request = tuple[str, Arrays]


class Querier:
    """Asks one party for the labels of `inputs`."""

    def __init__(self, architecture: Architecture, inputs: Float[ndarray, "queries ..."], dealt: Arrays) -> None:
        """dealt: from the guardian. Raises InvalidInput for inputs that the architecture does not take."""
        self._inputs = quantised_inputs(architecture, inputs)
        self._plan = InferencePlan.of(architecture, len(inputs))
        (self._seed,) = received("the dealt randomness", dealt, (SEED,))
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

    def start(self) -> Request:
        """The first request; it is empty, and could be made before there are inputs."""
        return self._waiting[0].name, ()

    def step(self, reply: Arrays) -> Request | None:
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

        vote = Vote(plan.vote, dealt[-1][:3], dealt[-1][3:], leads=True)
        masked = vote.masked(share)
        their_masked, their_lookups = yield (*opening, masked)
        lookups = vote.lookups(masked, their_masked)
        wins = vote.wins(lookups, their_lookups)
        seed = np.frombuffer(keyed_seed(self._seed.tobytes()), dtype=np.uint8)
        self._unfinished = wins, vote.table, seed
        return finish(self._unfinished, (yield lookups, wins))


def finish(unfinished: Arrays, reply: Arrays) -> CoordinatorShare:
    """The querying party's share, from Querier.unfinished and the last reply. Raises MalformedMessage for a bad one."""
    wins, table, seed = unfinished
    their_wins, keys, zero, no_keyed, *rest = received(LAST_REQUEST, reply, last_reply(*wins.shape))
    votes = votes_at(table, wins, their_wins)
    dealt = keyed_masks(seed.tobytes(), (len(keys), *table.shape))
    keyed = keyed_at(votes, keys, votes_at(dealt, wins, their_wins))
    return CoordinatorShare(plus(votes[None], zero), plus(keyed[None], no_keyed), *rest)
