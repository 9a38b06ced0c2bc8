"""The coordinator: asks in batches that every budget can bear, adds up votes with noise, publishes labels.

It charges its own ledger (one account a party) before it asks, releases after the noise was added and stored, and
tells the parties which queries were answered so that they settle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray

from protocols.accounting.ledger import Ledger
from protocols.errors import InvalidInput, MalformedMessage, QuorumNotReached
from protocols.mechanisms import check_view
from protocols.messages import Outcome, Refusal, Reply, Settled, VoteReply, VoteRequest
from protocols.noise import StandardNormal
from protocols.queries import QueryBatch
from protocols.schedule import Batch, Stop, check_stop, next_batch
from protocols.study import Study
from protocols.transport import Transport
from protocols.votes import ABSTAIN, NOT_ASKED, check_votes, count_votes


@dataclass(frozen=True, eq=False)
class Labelling:
    """What a study released, and how it ended.

    labels: class ids, ABSTAIN (asked, not answered) or NOT_ASKED, one a query of the pool; batches: size and
    answered queries of each; refusals: the last code of each party that refused; ledger_differences: parties whose
    own ledger stands at another figure than the coordinator's (their reservation of some batch stands).
    """

    labels: Int64[ndarray, " queries"]
    batches: list[tuple[int, int]]
    stop: Stop
    spent: Int64[ndarray, " parties"]
    refusals: dict[str, str] = field(default_factory=dict)
    ledger_differences: dict[str, int] = field(default_factory=dict)


class Coordinator:
    """Runs one study over a transport. `noise` must be cryptographic where the labels are released for real."""

    def __init__(self, study: Study, *, ledger: Ledger, noise: StandardNormal, exchange: Transport) -> None:
        self._study = study
        self._ledger = ledger
        self._noise = noise
        self._exchange = exchange
        self._parties = [seat.party for seat in study.roster]
        caps = study.budgets.cap
        ledger.open_accounts({party: int(cap) for party, cap in zip(self._parties, caps, strict=True)})

    def label(
        self, inputs: Float32[ndarray, "queries ..."], *, on_batch: Callable[[int, int], None] | None = None
    ) -> Labelling:
        """Asks the pool in order until budgets or pool run out. on_batch(queries asked, queries in the pool).

        Raises InvalidInput for a pool above the study's query limit, QuorumNotReached when too few parties
        answer a batch (what was released before stays released).
        """
        study = self._study
        if len(inputs) > study.query_limit:
            raise InvalidInput(f"the pool has {len(inputs)} queries; allowed: at most {study.query_limit}")
        labels = np.full(len(inputs), NOT_ASKED, dtype=np.int64)
        batches: list[tuple[int, int]] = []
        refusals: dict[str, str] = {}
        differences: dict[str, int] = {}
        asked = 0
        while isinstance(step := self._next(len(inputs) - asked), Batch):
            ids = np.arange(asked, asked + step.size)
            labels[ids] = self._batch(QueryBatch(len(batches), ids, inputs[ids]), step, refusals, differences)
            asked += step.size
            batches.append((step.size, int((labels[ids] >= 0).sum())))
            if on_batch:
                on_batch(asked, len(inputs))
        return Labelling(labels, batches, step, self._spent(), refusals, differences)

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
        self, batch: QueryBatch, step: Batch, refusals: dict[str, str], differences: dict[str, int]
    ) -> Int64[ndarray, " queries"]:
        """The labels of one batch: reserve, ask, add up with noise, settle, tell the parties."""
        study = self._study
        size = len(batch.ids)
        active = [party for party, member in zip(self._parties, step.active, strict=True) if member]
        worst = dict(zip(self._parties, study.budgets.amount(size, size).tolist(), strict=True))
        self._ledger.reserve(batch.number, batch.digest, {party: worst[party] for party in active}, b"")
        replies = self._exchange({party: VoteRequest(study.digest, batch) for party in active})
        votes = {}
        for party, reply in replies.items():
            try:
                votes[party] = self._checked(reply, batch)
            except MalformedMessage as error:
                refusals[party] = str(error)
        if len(votes) < study.quorum:
            raise QuorumNotReached(
                f"{len(votes)} parties answered batch {batch.number}; allowed: at least {study.quorum}"
            )
        weights = np.array([study.weights[study.seats[party]] for party in votes])
        counts = count_votes(np.stack(list(votes.values())), weights, classes=study.classes)
        labels = study.mechanism.release(counts, self._noise, view=check_view(study.view))
        answered = labels != ABSTAIN
        final = dict(zip(self._parties, study.budgets.amount(size, int(answered.sum())).tolist(), strict=True))
        # A party whose vote did not enter paid nothing: its data moved nothing that was released.
        amounts = {party: final[party] if party in votes else 0 for party in active}
        self._ledger.settle(batch.number, batch.digest, amounts, payload=labels.astype("<i8").tobytes())
        outcome = Outcome(study.digest, batch.digest, answered)
        for party, reply in self._exchange({party: outcome for party in votes}).items():
            mine = self._ledger.balance(party).spent
            if not isinstance(reply, Settled) or reply.spent != mine:
                differences[party] = reply.spent - mine if isinstance(reply, Settled) else worst[party] - final[party]
        return labels

    def _checked(self, reply: Reply | None, batch: QueryBatch) -> Int64[ndarray, "teachers queries"]:
        """The votes in a reply. Raises MalformedMessage, with a code for people, when there are none to count."""
        if reply is None:
            raise MalformedMessage("absent")
        if isinstance(reply, Refusal):
            raise MalformedMessage(reply.code)
        if not isinstance(reply, VoteReply) or reply.batch_digest != batch.digest:
            raise MalformedMessage("reply to another request")
        if reply.votes.shape != (self._study.teachers, len(batch.ids)):
            raise MalformedMessage(f"votes of shape {reply.votes.shape}")
        try:
            check_votes(reply.votes, classes=self._study.classes)
        except InvalidInput as error:
            raise MalformedMessage(str(error)) from None
        return reply.votes

    def _spent(self) -> Int64[ndarray, " parties"]:
        balances = self._ledger.balances()
        return np.array([balances[party].spent for party in self._parties], dtype=np.int64)
