"""The coordinator: asks in batches that every budget can bear, adds up votes with noise, publishes labels.

It charges its own ledger (one account a party) before it asks, releases after the noise was added and stored, and
tells the parties which queries were answered so that they settle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Bool, Float32, Int64
from numpy import ndarray

from protocols.accounting.ledger import Ledger
from protocols.errors import InvalidInput, MalformedMessage
from protocols.mechanisms import check_view
from protocols.messages import Outcome, Refusal, Reply, Settled, VoteReply, VoteRequest
from protocols.noise import StandardNormal
from protocols.queries import QueryBatch
from protocols.schedule import Batch, Stop, check_stop, next_batch
from protocols.study import Study
from protocols.transport import Transport
from protocols.votes import ABSTAIN, NOT_ASKED, check_votes, count_votes

# Stands in a Labelling that is being made.
_UNFINISHED = Stop("pool_exhausted", np.zeros(0, dtype=bool))


@dataclass(frozen=True, eq=False)
class Labelling:
    """What a study released, and how it ended.

    labels: class ids, ABSTAIN (asked, not answered) or NOT_ASKED, one a query of the pool; batches: size and
    answered queries of each; spent: nano-units, with reservations that stand; refusals: why each party whose votes
    were last left out was; ledger_differences: parties whose own ledger stands, or may stand, higher than the
    coordinator's by so much at the batch at fault (their reservation of it stands).
    """

    labels: Int64[ndarray, " queries"]
    batches: list[tuple[int, int]]
    stop: Stop
    spent: Int64[ndarray, " parties"]
    refusals: dict[str, str] = field(default_factory=dict)
    ledger_differences: dict[str, int] = field(default_factory=dict)


class Coordinator:
    """Runs one study over a transport. `noise` must be cryptographic where the labels are released for real.

    run: 16 fresh random bytes, which name this coordinator's run if the ledger is new. A ledger that was used goes
    on where it stopped: batches that were settled are released again as they were stored, and one that was
    reserved and never released is asked again, which costs nobody anything more.
    """

    def __init__(self, study: Study, *, ledger: Ledger, noise: StandardNormal, exchange: Transport, run: bytes) -> None:
        self._study = study
        self._ledger = ledger
        self._noise = noise
        self._exchange = exchange
        self._parties = [seat.party for seat in study.roster]
        self.run = ledger.bind(study=study.digest, run=run)
        caps = study.budgets.cap
        ledger.open_accounts({party: int(cap) for party, cap in zip(self._parties, caps, strict=True)})

    def label(
        self, inputs: Float32[ndarray, "queries ..."], *, on_batch: Callable[[int, int], None] | None = None
    ) -> Labelling:
        """Asks the pool in order until budgets or pool run out. on_batch(queries asked, queries in the pool).

        Stops with "quorum_lost" when too few parties answer a batch: nothing of that batch is released, its
        reservations stand, and calling again asks it again. Raises InvalidInput for a pool above the query limit.
        """
        study = self._study
        if len(inputs) > study.query_limit:
            raise InvalidInput(f"the pool has {len(inputs)} queries; allowed: at most {study.query_limit}")
        released = Labelling(np.full(len(inputs), NOT_ASKED, dtype=np.int64), [], _UNFINISHED, self._spent())
        asked = 0
        while True:
            number = len(released.batches)
            stored = self._ledger.stored(number)
            if stored is not None and stored.settled:
                labels: Int64[ndarray, " queries"] | None = np.frombuffer(stored.payload, dtype="<i8")
                size = stored.queries
            else:
                if stored is not None:
                    size, charged = stored.queries, self._ledger.charged(number)
                    active = np.array([party in charged for party in self._parties])
                elif isinstance(step := self._next(len(inputs) - asked), Batch):
                    size, active = step.size, step.active
                else:
                    return replace(released, stop=step, spent=self._spent())
                ids = np.arange(asked, asked + size)
                batch = QueryBatch(number, ids, inputs[ids])
                labels = self._batch(batch, active, released, reserved=stored is not None)
            if labels is None:
                return replace(released, stop=Stop("quorum_lost", np.zeros(len(active), bool)), spent=self._spent())
            released.labels[asked : asked + size] = labels
            asked += size
            released.batches.append((size, int((labels >= 0).sum())))
            if on_batch:
                on_batch(asked, len(inputs))

    def _next(self, left: int) -> Batch | Stop:
        study = self._study
        return next_batch(
            study.budgets,
            self._spent(),
            left=left,
            batch_limit=study.batch_limit,
            stop=check_stop(study.stop),
            quorum=study.quorum,
        )

    def _batch(
        self, batch: QueryBatch, members: Bool[ndarray, " parties"], released: Labelling, *, reserved: bool
    ) -> Int64[ndarray, " queries"] | None:
        """The labels of one batch: reserve, ask, add up with noise, settle, tell the parties. None without quorum."""
        study = self._study
        size = len(batch.ids)
        request = VoteRequest(study.digest, self.run, batch)
        active = [party for party, member in zip(self._parties, members, strict=True) if member]
        worst = dict(zip(self._parties, study.budgets.amount(size, size).tolist(), strict=True))
        if not reserved:
            amounts = {party: worst[party] for party in active}
            self._ledger.reserve(batch.number, request.digest, amounts, b"", queries=batch.ids.tolist())
        replies = self._exchange(dict.fromkeys(active, request))
        votes = {}
        for party in active:
            try:
                votes[party] = self._checked(replies.get(party), request)
            except MalformedMessage as error:
                released.refusals[party] = str(error)
                # The party may have charged itself all the same.
                released.ledger_differences[party] = worst[party]
        if len(votes) < study.quorum:
            return None
        weights = np.array([study.weights[study.seats[party]] for party in votes])
        counts = count_votes(np.stack(list(votes.values())), weights, classes=study.classes)
        labels = study.mechanism.release(counts, self._noise, view=check_view(study.view))
        answered = labels != ABSTAIN
        final = dict(zip(self._parties, study.budgets.amount(size, int(answered.sum())).tolist(), strict=True))
        # A party whose vote did not enter paid nothing: its data moved nothing that was released.
        amounts = {party: final[party] if party in votes else 0 for party in active}
        self._ledger.settle(batch.number, request.digest, amounts, payload=labels.astype("<i8").tobytes())
        outcome = Outcome(study.digest, request.digest, answered)
        for party, reply in self._exchange(dict.fromkeys(votes, outcome)).items():
            mine = self._ledger.balance(party).spent
            if not isinstance(reply, Settled) or reply.spent != mine:
                released.ledger_differences[party] = (
                    reply.spent - mine if isinstance(reply, Settled) else worst[party] - final[party]
                )
        return labels

    def _checked(self, reply: Reply | None, request: VoteRequest) -> Int64[ndarray, "teachers queries"]:
        """The votes in a reply. Raises MalformedMessage, with a code for people, when there are none to count."""
        if reply is None:
            raise MalformedMessage("absent")
        if isinstance(reply, Refusal):
            raise MalformedMessage(reply.code)
        if not isinstance(reply, VoteReply) or reply.batch_digest != request.digest:
            raise MalformedMessage("reply to another request")
        if reply.votes.shape != (self._study.teachers, len(request.batch.ids)):
            raise MalformedMessage(f"votes of shape {reply.votes.shape}")
        try:
            check_votes(reply.votes, classes=self._study.classes)
        except InvalidInput as error:
            raise MalformedMessage(str(error)) from None
        return reply.votes

    def _spent(self) -> Int64[ndarray, " parties"]:
        balances = self._ledger.balances()
        return np.array([balances[party].spent for party in self._parties], dtype=np.int64)
