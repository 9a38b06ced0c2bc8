"""A party: handle(request) -> reply. Teachers vote, the ledger decides first.

The party keeps nothing in memory between messages that a crash may not take: a batch, its charge and the reply
are written together, and the same request gets the STORED reply and charges nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from protocols.accounting.ledger import Ledger
from protocols.errors import BudgetExceeded, InvalidInput, MalformedMessage, Refused
from protocols.messages import Outcome, Refusal, Reply, Request, Settled, VoteReply, VoteRequest, decode, encode
from protocols.queries import QueryBatch
from protocols.study import Study
from protocols.votes import check_votes

# A voter gives one class id (or ABSTAIN) a teacher and query.
Voter = Callable[[QueryBatch], Int64[ndarray, "teachers queries"]]


class Party:
    """One party of a study that it approved, with a ledger of its own for that study."""

    def __init__(self, name: str, *, study: Study, ledger: Ledger, voter: Voter) -> None:
        """Opens the party's account with the cap of its own budget.

        Raises InvalidInput if it is not on the roster or the ledger is of another study.
        """
        if name not in study.seats:
            raise InvalidInput(f"party {name!r} is not on the roster of study {study.name!r}")
        self.name = name
        self._study = study
        self._seat = study.seats[name]
        self._ledger = ledger
        self._voter = voter
        ledger.bind(study=study.digest, run=b"")
        ledger.open_accounts({name: int(study.budgets.cap[self._seat])})

    def handle(self, request: Request) -> Reply:
        """The reply to a request. A Refusal has cost no budget."""
        try:
            match request:
                case VoteRequest():
                    return self._vote(request)
                case Outcome():
                    return self._settle(request)
                case _:
                    assert_never(request)
        except Refused as error:
            return Refusal(error.code, str(error))
        except BudgetExceeded as error:
            return Refusal("budget_exceeded", str(error))

    def handle_bytes(self, data: bytes) -> bytes:
        """handle on the wire: malformed bytes are refused, never raised."""
        try:
            request = decode(data)
        except MalformedMessage as error:
            return encode(Refusal("malformed", str(error)))
        if not isinstance(request, VoteRequest | Outcome):
            return encode(Refusal("malformed", "a reply was sent as a request; allowed: vote_request, outcome"))
        return encode(self.handle(request))

    def _vote(self, request: VoteRequest) -> Reply:
        batch = request.batch
        self._check_study(request.study)
        if len(batch.ids) > self._study.batch_limit:
            raise Refused(
                "batch_too_large", f"{len(batch.ids)} queries; allowed: at most {self._study.batch_limit} in a batch"
            )
        if (batch.ids >= self._study.query_limit).any():
            raise Refused(
                "query_limit", f"query {batch.ids.max()} asked; allowed: below the limit of {self._study.query_limit}"
            )
        stored = self._ledger.stored(batch.number)
        if stored is None:
            reply = VoteReply(request.digest, self._votes(batch))
            # Spend, then speak: charge and reply are written together, before anything leaves.
            amount = self._amount(len(batch.ids), len(batch.ids))
            self._ledger.reserve(
                batch.number, request.digest, {self.name: amount}, encode(reply), queries=batch.ids.tolist()
            )
            return reply
        if stored.digest != request.digest:
            raise Refused("batch_reused", f"batch {batch.number} was answered before, in another request")
        reply_again = decode(stored.payload)
        assert isinstance(reply_again, VoteReply)
        return reply_again

    def _settle(self, outcome: Outcome) -> Reply:
        self._check_study(outcome.study)
        number = self._ledger.number_of(outcome.batch_digest)
        stored = None if number is None else self._ledger.stored(number)
        if number is None or stored is None:
            raise Refused("unknown_batch", "the outcome is of a batch that was never charged")
        asked = stored.queries
        if len(outcome.answered) != asked:
            raise Refused("bad_outcome", f"outcome of {len(outcome.answered)} queries; allowed: {asked}")
        amount = self._amount(asked, int(outcome.answered.sum()))
        self._ledger.settle(number, outcome.batch_digest, {self.name: amount})
        return Settled(outcome.batch_digest, self._ledger.balance(self.name).spent)

    def _check_study(self, digest: bytes) -> None:
        if digest != self._study.digest:
            raise Refused(
                "other_study", f"digest {digest.hex()[:16]} is not the approved {self._study.digest.hex()[:16]}"
            )

    def _amount(self, asked: int, answered: int) -> int:
        return int(self._study.budgets.amount(asked, answered)[self._seat])

    def _votes(self, batch: QueryBatch) -> Int64[ndarray, "teachers queries"]:
        given = np.asarray(self._voter(batch))
        if not np.issubdtype(given.dtype, np.integer):
            raise Refused("bad_votes", f"teachers gave votes of type {given.dtype}; allowed: integers")
        votes = given.astype(np.int64)
        if votes.shape != (self._study.teachers, len(batch.ids)):
            raise Refused(
                "bad_votes",
                f"teachers gave votes of shape {votes.shape}; allowed: {(self._study.teachers, len(batch.ids))}",
            )
        try:
            check_votes(votes, classes=self._study.classes)
        except InvalidInput as error:
            raise Refused("bad_votes", str(error)) from None
        return votes
