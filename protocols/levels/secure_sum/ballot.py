"""Level `secure_sum`, a party's side: its weighted votes and its share of the noise, under masks (secure_sum/)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from numpy import ndarray

from protocols.crypto.identity import sign
from protocols.crypto.lazy_inversion import integer_gaussian
from protocols.crypto.prg import expanded_source
from protocols.crypto.randomness import RandomSource
from protocols.errors import InvalidInput, MalformedMessage, Refused
from protocols.ledger.ledger import Ledger
from protocols.levels.level import Ballot, Cast
from protocols.levels.secure_sum import checking
from protocols.levels.secure_sum import steps as party
from protocols.levels.secure_sum.authenticator import PairwiseAuthenticator
from protocols.levels.secure_sum.context import Context
from protocols.levels.secure_sum.terms import context_of, noise_share, roster_keys
from protocols.levels.secure_sum.wire import Arrays
from protocols.ranges import integer
from protocols.refusals.code import Code
from protocols.study.levels import summed
from protocols.study.study import Study
from protocols.wire.messages import HiddenVotes, Outcome, StepReply, StepRequest, VoteReply, VoteRequest

_SECRET_BYTES = 32
# The number of newest batches to keep whose keys were asked for but which were never charged.
_OPEN_SUMS = 8
_SECRET, _MASKING, _SURVIVORS, _CELLS = "sum_secret", "sum_masking", "sum_survivors", "sum_cells"
# All that a party keeps of a batch: as long as it has the secret, its masks are fixed.
_NOTES = (_SECRET, _MASKING, _SURVIVORS, _CELLS)


class SummedBallot(Ballot):
    """One seat's side. key: the private half of what the study names for the seat; source: the operating system's on a
    node.

    Raises InvalidInput for a key that is not the roster's.
    """

    def __init__(
        self,
        study: Study,
        seat: str,
        *,
        ledger: Ledger,
        key: ec.EllipticCurvePrivateKey,
        source: RandomSource,
        noise_source: RandomSource | None = None,
    ) -> None:
        """noise_source: of the noise, for simulations, which draw noise and coins again; None: the batch's secret."""
        self._study = study
        self._index = study.seats[seat]
        self._ledger = ledger
        self._source = source
        self._noise_source = noise_source
        self._units = summed(study.confidentiality).units
        self._noise_sigma = noise_share(study)
        self._latest: Context | None = None
        self._authenticator = PairwiseAuthenticator(study.digest, seat, key=key, publics=roster_keys(study))
        if not self._authenticator.verify(seat, b"", sign(key, b"")):
            raise InvalidInput(f"the key of {seat!r} is not the one that study {study.name!r} names for it")

    def step(self, request: StepRequest) -> StepReply:
        steps = {
            "sum_keys": self._advertise,
            "sum_shares": lambda asked: self._exchange(party.share, asked),
            "sum_check": lambda asked: self._exchange(checking.check, asked),
            "sum_dispute": lambda asked: self._exchange(checking.accuse, asked),
            "sum_agree": self._agree,
            "sum_open": self._open,
        }
        if request.step not in steps:
            raise Refused(Code.NO_SUCH_STEP, f"step {request.step!r}; allowed: {', '.join(steps)}")
        return StepReply(request.batch_digest, request.step, steps[request.step](request))

    def cast(self, request: VoteRequest, votes: Cast) -> HiddenVotes:
        study, digest = self._study, request.digest
        queries = len(request.batch.ids).to_bytes(8, "big")
        if self._ledger.note(digest, _CELLS, queries) != queries:
            raise Refused(Code.OTHER_SHAPE, "the batch has another number of queries than its keys were asked for")
        context, secret = self._context(digest), self._secret(digest)
        note = self._ledger.note(digest, _MASKING, party.masking_note(context, self._index, request.relayed))
        # Of the batch's secret, as the masks are: a ledger that was restored to before its last charge masks the same
        # votes and the same noise again, where other ones would show what they differ by.
        coins, source = None, self._noise_source
        if source is None:
            coins, source = (expanded_source(secret, label=label) for label in ("secret coins", "noise share"))
        tally = study.votes.tally(study, votes(coins)[None], np.array([self._index]))
        values = tally.ravel() + integer_gaussian(source, sigma=self._noise_sigma, size=tally.size)
        by = self._authenticator
        return HiddenVotes(
            digest, party.mask(secret, context, self._index, request.relayed, values, noted=note, authenticator=by)
        )

    def settle(self, outcome: Outcome, sent: VoteReply | HiddenVotes) -> str:
        """Forgets the secrets. The histogram is charged whatever was answered, so the outcome lowers nothing."""
        for kind in _NOTES:
            self._ledger.forget(outcome.batch_digest, kind)
        return ""

    def _advertise(self, request: StepRequest) -> tuple[ndarray, ...]:
        queries = _queries(request.arrays)
        if queries > self._study.batch_limit:
            raise Refused(
                Code.BATCH_TOO_LARGE, f"{queries} queries; allowed: 1 to {self._study.batch_limit} in a batch"
            )
        if self._ledger.number_of(request.batch_digest) is None:
            self._ledger.note(request.batch_digest, _SECRET, self._source(_SECRET_BYTES))
            self._ledger.note(request.batch_digest, _CELLS, queries.to_bytes(8, "big"))
            self._ledger.forget_uncharged(*_NOTES, keep=_OPEN_SUMS)
        context = self._context(request.batch_digest)
        secret = self._secret(request.batch_digest)
        return party.advertise(secret, context, self._index, authenticator=self._authenticator)

    def _exchange(self, step: Callable[..., Arrays], request: StepRequest) -> Arrays:
        """A step before anything is masked: of the secret and of what arrived alone."""
        context, secret = self._context(request.batch_digest), self._secret(request.batch_digest)
        return step(secret, context, self._index, request.arrays, authenticator=self._authenticator)

    def _agree(self, request: StepRequest) -> tuple[ndarray, ...]:
        digest, context = request.batch_digest, self._context(request.batch_digest)
        masked = self._masked(digest)
        if self._ledger.noted(digest, _SURVIVORS) is None:
            # Logged, so that an older copy of the ledger is recognised and opens no other sum.
            self._ledger.log.append("agreed", request=digest.hex())
        noted = self._ledger.note(digest, _SURVIVORS, party.survivors_note(context, self._index, request.arrays))
        return party.agree(
            context,
            self._index,
            request.arrays,
            masked=masked,
            noted=noted,
            authenticator=self._authenticator,
        )

    def _open(self, request: StepRequest) -> tuple[ndarray, ...]:
        digest, context = request.batch_digest, self._context(request.batch_digest)
        noted = self._ledger.noted(digest, _SURVIVORS)
        if noted is None:
            raise Refused(Code.OTHER_SURVIVORS, "this party agreed on no set of survivors for the batch")
        return party.unmask(
            self._secret(digest),
            context,
            self._index,
            request.arrays,
            masked=self._masked(digest),
            noted=noted,
            authenticator=self._authenticator,
        )

    def _masked(self, digest: bytes) -> bytes:
        """The sharers for which this party's stored reply is masked; none before there is a reply."""
        noted = self._ledger.noted(digest, _MASKING)
        if noted is None or self._ledger.number_of(digest) is None:
            raise Refused(Code.UNKNOWN_BATCH, "this party has not voted on the batch")
        return noted

    def _secret(self, digest: bytes) -> bytes:
        secret = self._ledger.noted(digest, _SECRET)
        if secret is None:
            raise Refused(Code.UNKNOWN_BATCH, "the batch was settled, or its keys were never asked for")
        return secret

    def _context(self, digest: bytes) -> Context:
        noted = self._ledger.noted(digest, _CELLS)
        if noted is None:
            raise Refused(Code.UNKNOWN_BATCH, "the batch was settled, or its keys were never asked for")
        queries = int.from_bytes(noted, "big")
        latest = self._latest  # the steps of a batch share one shuffled graph
        if latest is None or (latest.batch, latest.cells) != (digest, queries * self._study.classes):
            latest = self._latest = context_of(self._study, digest, queries=queries)
        return latest


def _queries(arrays: tuple[ndarray, ...]) -> int:
    if len(arrays) != 1:
        raise MalformedMessage("the request for keys is malformed; allowed: the number of queries")
    return integer("StepRequest sum_keys", "queries", arrays[0])
