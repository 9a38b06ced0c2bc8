"""A party: handle(request) -> reply. The ledger decides first, then teachers vote.

Between messages the party keeps nothing in memory that a crash must not lose: a batch, its charge and the reply are
written together, and a repeated request gets the STORED reply and charges nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

import numpy as np
from jaxtyping import Bool, Int64
from numpy import ndarray

from protocols.budgets.participation import coins
from protocols.crypto.randomness import RandomSource
from protocols.errors import BudgetExceeded, CannotVote, InvalidInput, MalformedMessage, Refused
from protocols.ledger.amount import Amount
from protocols.ledger.ledger import Ledger
from protocols.levels.clear import ClearBallot
from protocols.levels.level import Ballot
from protocols.refusals.code import Code
from protocols.study.queries import QueryBatch
from protocols.study.study import Study
from protocols.wire.messages import (
    ConcealedVotes,
    Outcome,
    Refusal,
    Reply,
    Request,
    Settled,
    StepRequest,
    VoteReply,
    VoteRequest,
    decode,
    encode,
)

# The note of what a guardian's statement says of this party's votes in a batch, and what it says of those that count.
FATE, COUNTED = "fate", "counted"

# A voter returns one class id (or ABSTAIN) per teacher and query.
Voter = Callable[[QueryBatch], Int64[ndarray, "teachers queries"]]


class Party:
    """One seat of a study that its party approved, with its own ledger for that study.

    A party whose records have several budgets has one such seat for each privacy group.
    """

    def __init__(
        self,
        name: str,
        *,
        study: Study,
        ledger: Ledger,
        voter: Voter,
        coins_from: RandomSource | None,
        settles: bool = True,
        ballot: Ballot | None = None,
        on_failure: Callable[[str], None] = lambda why: None,
    ) -> None:
        """Opens the party's account with the cap of its own budget.

        coins_from: randomness of the secret coins that decide whether each of its votes enters a query; needed for
        participation "secret", None otherwise. On a node it must be cryptographic, and known to nobody else. settles:
        whether outcomes lower reservations, in a study in which a query that is not answered costs less; if not, every
        reservation stands, and a coordinator that lies about outcomes gains nothing. ballot: of the study's level; may
        be omitted if votes are clear. on_failure: receives the reason when teachers or votes fail, for the party's own
        log; the coordinator is not told. Raises InvalidInput if the party is not on the roster, the ledger belongs to
        another study, or the study is for simulations only.
        """
        if name not in study.seats:
            raise InvalidInput(f"party {name!r} is not on the roster of study {study.name!r}")
        if study.votes.pooled:
            raise InvalidInput("the study upsamples pooled data; allowed in a simulation only, where nobody is a party")
        if (coins_from is None) == (study.secret_coins):
            raise InvalidInput(
                f"coins {'are missing' if coins_from is None else 'are not used'}: participation is "
                f"{study.votes.participation_name!r}; allowed: a random source for 'secret' only"
            )
        if ballot is None and study.confidentiality.conceals_votes:
            raise InvalidInput(f"the ballot is missing; level {study.confidentiality.name!r} needs one")
        self._on_failure = on_failure
        self._ballot = ballot or ClearBallot()
        self.name = name
        self._study = study
        self._seat = study.seats[name]
        self._ledger = ledger
        self._voter = voter
        self._coins_from = coins_from
        self._settles = settles
        self._participation = study.participation.of(self._seat)
        ledger.bind(study=study.digest, run=b"")
        ledger.open_accounts({name: study.budgets.tagged_one(study.budgets.cap, self._seat)})

    def handle(self, request: Request) -> Reply:
        """The reply to a request.

        A Refusal costs no budget, and is recorded in the ledger's audit log. Every failure that depends on records, or
        that the coordinator should not learn of, gives the same refusal, see CannotVote.
        """
        try:
            match request:
                case VoteRequest():
                    return self._vote(request)
                case StepRequest():
                    self._check_study(request.study)
                    return self._ballot.step(request)
                case Outcome():
                    return self._settle(request)
                case _:
                    assert_never(request)
        except CannotVote as error:
            refusal = self._failed(error)
        except Refused as error:
            refusal = Refusal(error.code, str(error))
        except BudgetExceeded as error:
            refusal = Refusal(Code.BUDGET_EXCEEDED, str(error))
        except MalformedMessage as error:  # a level's step got arrays that it does not take
            refusal = Refusal(Code.MALFORMED, str(error))
        except InvalidInput as error:  # whose input it was, and what it says, is not known here
            refusal = self._failed(CannotVote(str(error)))
        self._ledger.log.append("refused", code=refusal.code, request=type(request).__name__)
        return refusal if isinstance(request, Outcome) else self._ballot.refused(request, refusal)

    def _vote(self, request: VoteRequest) -> Reply:
        batch = request.batch
        self._check_study(request.study)
        if len(batch.ids) > self._study.batch_limit:
            raise Refused(
                Code.BATCH_TOO_LARGE, f"{len(batch.ids)} queries; allowed: at most {self._study.batch_limit} in a batch"
            )
        limit = self._study.query_limit
        if batch.ids.min() < 0 or batch.ids.max() >= limit:
            raise Refused(Code.QUERY_LIMIT, f"query {batch.ids.max()} asked; allowed: 0 to {limit - 1}")
        stored = self._ledger.stored(batch.number)
        if stored is None:
            if self._study.votes.again(batch.ids) and self._ledger.ever_reserved(self.name) == 0:
                raise Refused(Code.UNKNOWN_BATCH, "a second batch is asked; allowed after votes, of whose charge it is")
            reply = self._ballot.cast(request, lambda coins_from: self._votes(batch, coins_from))
            # Spend, then speak: charge and reply are written together, before anything leaves.
            takes_part = int(self._takes_part(batch.ids).sum())
            amount = self._amount(takes_part, takes_part)
            self._ledger.reserve(
                batch.number,
                request.digest,
                {self.name: amount},
                encode(reply),
                queries=batch.ids.tolist(),
                limit=limit,
                final=not self._study.budgets.settles,
            )
            return reply
        if stored.digest != request.digest:
            raise Refused(Code.BATCH_REUSED, f"batch {batch.number} was answered before, for another request")
        reply_again = decode(stored.payload)
        assert isinstance(reply_again, VoteReply | ConcealedVotes)
        return reply_again

    def _failed(self, error: CannotVote) -> Refusal:
        self._on_failure(error.why)
        return Refusal(error.code, str(error))

    def _settle(self, outcome: Outcome) -> Reply:
        self._check_study(outcome.study)
        stored = self._ledger.stored_under(outcome.batch_digest)
        if stored is None:
            raise Refused(Code.UNKNOWN_BATCH, "the outcome is for a batch that was never charged")
        asked, number = stored.queries, stored.number
        if len(outcome.answered) != asked:
            raise Refused(Code.BAD_OUTCOME, f"the outcome is for {len(outcome.answered)} queries; allowed: {asked}")
        sent = decode(stored.payload)
        assert isinstance(sent, VoteReply | ConcealedVotes)  # as _vote stored it
        fate = self._ballot.settle(outcome, sent)
        if fate and self._ledger.noted(outcome.batch_digest, FATE) is None:
            self._ledger.note(outcome.batch_digest, FATE, fate.encode())
            event = "votes_counted" if fate == COUNTED else "votes_not_counted"
            self._ledger.log.append(event, batch=number, code=fate)
        takes_part = self._takes_part(np.array(self._ledger.queries(number), dtype=np.int64))
        amount = self._amount(int(takes_part.sum()), int((takes_part & outcome.answered).sum()))
        if self._settles:
            self._ledger.settle(number, outcome.batch_digest, {self.name: amount})
        return Settled(outcome.batch_digest, int(self._ledger.balance(self.name).spent))

    def _check_study(self, digest: bytes) -> None:
        if digest != self._study.digest:
            raise Refused(
                Code.OTHER_STUDY, f"digest {digest.hex()[:16]} is not the approved {self._study.digest.hex()[:16]}"
            )

    def _amount(self, asked: int, answered: int) -> Amount:
        budgets = self._study.budgets
        return budgets.tagged_one(budgets.amount(asked, answered), self._seat)

    def _takes_part(self, ids: Int64[ndarray, " queries"]) -> Bool[ndarray, " queries"]:
        """Which of these queries the party publicly takes part in: those are charged."""
        return self._participation.votes(ids)[0]

    def _votes(self, batch: QueryBatch, coins_from: RandomSource | None) -> Int64[ndarray, "rows columns"]:
        """What the party's voter gives, checked, without votes on queries in which it does not take part, or drops out
        by its coin.

        coins_from: as in Cast.
        """
        study, queries = self._study, len(batch.ids)
        study.votes.check_batch(batch.ids)
        given, shape = np.asarray(self._voter(batch)), study.votes.shape(queries=queries, classes=study.classes)
        if not np.issubdtype(given.dtype, np.integer) or given.shape != shape:
            raise CannotVote(f"votes are {given.dtype} of shape {given.shape}; allowed: integers, {shape}")
        votes = given.astype(np.int64)
        study.votes.check_cast(study, self.name, votes, batch.ids)
        enters = self._takes_part(batch.ids)
        if self._coins_from is not None:
            rate = study.roster[self._seat].rate
            enters = enters & coins(coins_from or self._coins_from, rate, teachers=len(votes), queries=queries)
        return study.votes.left(votes, enters)
