"""The guardian: the second server of level `two_server`, run by another organisation.

It holds the share of every vote that the coordinator does not have, its own ledger, which refuses whatever would
exceed a party's cap, and its own noise. It learns who took part, and the labels, which it signs, but no vote; for
hidden queries it learns which were answered, and signs masked labels. Where records vote, it learns who took part and
the noisy sums, which are what is released.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from jaxtyping import Bool, Int64, UInt8
from numpy import ndarray

from protocols.crypto.channel import Channel
from protocols.crypto.field import plus, to_integers
from protocols.crypto.hash_tree import HASH_BYTES
from protocols.crypto.prg import expanded_source
from protocols.crypto.randomness import RandomSource
from protocols.errors import BudgetExceeded, InvalidInput, MalformedMessage, Refused
from protocols.ledger.ledger import Ledger
from protocols.levels.hidden_queries.dealing import DEAL, serve_deals
from protocols.levels.secure_sum.terms import roster_verifier
from protocols.levels.two_server.agreement import guardian_opens, is_evaluated
from protocols.levels.two_server.batch_notes import MOST_ATTEMPTS, BatchNotes, OneCheck, OpenedBatches, RefusedVotes
from protocols.levels.two_server.circuit_inputs import CircuitInputs, bound_inputs, checked_masks, sizes_of
from protocols.levels.two_server.conversation import (
    GUARDIAN_NOISE,
    NOISE_SEED_BYTES,
    Submission,
    ballots_of,
    head_array,
    receive_arrays,
    send_arrays,
    unseal,
    whole_seats,
)
from protocols.levels.two_server.keyed_shares import KeyedShares
from protocols.levels.two_server.noisy_argmax import Evaluated, guardian_evaluates
from protocols.levels.two_server.one_time_masks import PinnedExchange
from protocols.levels.two_server.shared_sums import (
    check_sum_share,
    checks_sums,
    guardian_numbers,
    noisy_share,
    pin_share,
    proofs_of,
)
from protocols.levels.two_server.shares import GuardianShare, check_guardian_share
from protocols.levels.two_server.signed_labels import labels_statement
from protocols.levels.two_server.signed_votes import SignedVotes, as_array
from protocols.levels.two_server.sketch import guardian_checks
from protocols.levels.two_server.statement import Fate, Statement, opened_statement
from protocols.noise import LatticeNoise, lattice_noise
from protocols.refusals.code import Code
from protocols.study.levels import guarded
from protocols.study.study import Study
from protocols.study.votes import TeacherVotes, UnitSums, Votes
from protocols.votes import ABSTAIN

_COORDINATOR = "coordinator"
# _OPENED: this server's noisy share of a sum, which needs no seed of noise to be repeated.
_SUBMISSION, _NOISE_SEED, _OPENED = "submission", "noise_seed", "opened share"


class Guardian:
    """The guardian of one study. serve() holds one conversation with the coordinator, about one batch.

    ledger: the guardian's own, of this study; sealing_key, signing_key: those that the study names; source: must be the
    operating system's if real labels are released. Raises InvalidInput for keys that are not the study's.
    """

    def __init__(
        self,
        study: Study,
        *,
        ledger: Ledger,
        sealing_key: X25519PrivateKey,
        signing_key: Ed25519PrivateKey,
        source: RandomSource,
        noise_source: RandomSource | None = None,
    ) -> None:
        """noise_source: of only the seeds of noise, for simulations that draw them again; `source` if None."""
        terms = guarded(study.confidentiality)
        public = (sealing_key.public_key().public_bytes_raw().hex(), signing_key.public_key().public_bytes_raw().hex())
        if public != (terms.sealing_key, terms.signing_key):
            raise InvalidInput(
                f"the guardian's keys are not those of study {study.name!r}; allowed: sealing_key and "
                "signing_key of its [confidentiality]"
            )
        self._study, self._units = study, terms.units
        self._ledger = ledger
        self._sealing_key = sealing_key
        self._signing_key = signing_key
        self._source = source
        self._noise_source = noise_source or source
        self._refusals = RefusedVotes(ledger, study.digest, hidden=terms.masked)
        self._opened = OpenedBatches(ledger, study.digest, other=_COORDINATOR)
        ledger.bind(study=study.digest, run=b"")
        ledger.open_accounts(dict(zip(study.seats, study.budgets.tagged(study.budgets.cap), strict=True)))

    def serve(self, channel: Channel) -> None:
        """One batch, up to its signed outcome; or, for hidden queries, the dealing that precedes a batch.

        Raises Refused, BudgetExceeded or MalformedMessage after telling the coordinator the code; ChannelClosed when
        the coordinator is gone. Reservations then stand, and the same submission continues where it stopped.
        """
        try:
            arrays = receive_arrays(channel)
            if arrays and np.array_equal(arrays[0], DEAL):
                return serve_deals(channel, arrays, self._study, key=self._signing_key, source=self._source)
            submission = Submission.read(arrays)
            shares, taken = self._open(submission)
            self._accept(submission)
        except (Refused, MalformedMessage, BudgetExceeded) as error:
            code = error.code if isinstance(error, Refused) else Code.BUDGET_EXCEEDED
            self._ledger.log.append("guardian_refused", code=code)
            send_arrays(channel, (), code=Code.MALFORMED if isinstance(error, MalformedMessage) else code)
            raise
        send_arrays(channel, (taken, head_array(self._ledger.log.head())))
        self._answer(channel, submission, shares, taken)

    def _open(self, submission: Submission) -> tuple[list[GuardianShare], UInt8[ndarray, " seats"]]:
        """The shares of the seats whose votes are checked: signature, seal and form are valid, and none is barred.

        With Fate.COUNTED for each of these, and the fate of the other seats.
        """
        study = self._study
        if submission.study != study.digest:
            raise Refused(Code.UNKNOWN_STUDY, f"study {submission.study.hex()[:16]} is not one of this guardian's")
        if (seat := submission.members[-1]) >= len(study.roster) or submission.ids[-1] >= study.query_limit:
            raise Refused(Code.QUERY_LIMIT, f"seat {seat} or query {submission.ids[-1]} is not one of the study's")
        try:
            study.votes.check_batch(submission.ids)
        except InvalidInput as error:
            raise Refused(Code.QUERY_LIMIT, str(error)) from None
        verify, queries = roster_verifier(study), submission.ids.tolist()
        shares, barred = [], self._barred(submission)
        taken = np.where(barred, Fate.VOTES_BARRED, Fate.COUNTED).astype(np.uint8)
        for at, (seat, sealed) in enumerate(zip(submission.seats.tolist(), submission.sealed, strict=True)):
            name = study.roster[seat].party
            try:
                votes = SignedVotes.read(sealed)
                if not votes.holds(verify, study.digest, submission.request, name, queries=queries):
                    # A coordinator that runs this software submits none: it made these votes up, or changed them.
                    self._ledger.log.append("unsigned_votes", batch=submission.number, seat=name)
                    raise MalformedMessage("the votes are not signed by the seat's party")
                if barred[at]:
                    self._ledger.log.append("votes_barred", batch=submission.number, seat=name)
                    continue
                opened = unseal(
                    votes.sealed, key=self._sealing_key, study=study.digest, request=submission.request, seat=name
                )
                shares.append(check_guardian_share(opened, voters=study.votes.voters))
            except MalformedMessage:
                taken[at] = Fate.BAD_SEAL
        return shares, taken

    def _barred(self, submission: Submission) -> Bool[ndarray, " seats"]:
        """Which of the submitted seats are barred: if the submission was fixed, as it was then."""
        noted = self._ledger.noted(submission.request, _SUBMISSION)
        if noted is not None and noted[:HASH_BYTES] == submission.digest:
            return np.frombuffer(noted[HASH_BYTES:], dtype=np.bool_)
        return self._refusals.barred(self._study.roster[seat].party for seat in submission.seats.tolist())

    def _accept(self, submission: Submission) -> None:
        """Reserves the batch and notes a noise seed, in one transaction; or finds both again. A settled batch has none.

        Until the votes of a submission are checked, or their sum is opened, another with the same members and queries
        may replace it.
        """
        study, ledger, digest = self._study, self._ledger, submission.request
        with ledger.log.together():
            ledger.log.check_known(submission.seen, by="the coordinator")
            ledger.log.remember(_COORDINATOR, submission.own, proof=b"")
            if (ledger.noted(digest, _SUBMISSION) or submission.digest)[:HASH_BYTES] != submission.digest:
                raise Refused(Code.OTHER_SUBMISSION, "other shares of this batch were checked")
            self._opened.check(digest)
            self._check_of(submission).check_count()
            evaluated = is_evaluated(self._notes(submission))
            if ledger.noted(digest, _attempt(MOST_ATTEMPTS - 1)) is not None and not evaluated:
                raise Refused(Code.TOO_MANY_ATTEMPTS, f"labels of the batch were evaluated {MOST_ATTEMPTS} times")
            queries_asked = study.participation.votes(submission.ids).sum(axis=1)
            worst = study.budgets.tagged(study.budgets.amount(queries_asked, queries_asked))
            amounts = {study.roster[seat].party: worst[seat] for seat in submission.members.tolist()}
            stored = ledger.stored(submission.number)
            if stored is None or not stored.settled:
                ledger.note(digest, _NOISE_SEED, self._noise_source(NOISE_SEED_BYTES))
            if stored is None:
                ids, limit = submission.ids.tolist(), study.query_limit
                ledger.reserve(submission.number, digest, amounts, b"", queries=ids, limit=limit)
            elif ledger.number_of(digest) != submission.number:
                raise Refused(Code.BATCH_REUSED, f"batch {submission.number} was asked in another request")
            elif (ledger.charged(submission.number), ledger.queries(submission.number)) != (
                amounts,
                submission.ids.tolist(),
            ):
                raise Refused(Code.OTHER_SUBMISSION, "the batch was reserved for other queries or members")

    def _answer(
        self, channel: Channel, submission: Submission, shares: list[GuardianShare], taken: UInt8[ndarray, " seats"]
    ) -> None:
        if np.count_nonzero(taken == Fate.COUNTED) < self._study.quorum:
            return self._below_quorum(submission)
        answer = _ANSWER[type(self._study.votes)]
        answer(self, channel, submission, GuardianShare.of_all(shares), taken)

    def _label(
        self, channel: Channel, submission: Submission, share: GuardianShare, taken: UInt8[ndarray, " seats"]
    ) -> None:
        """Labels the batch with the other server, of the votes of this submission and no other."""
        study, ledger, ids = self._study, self._ledger, submission.ids
        seats = submission.seats[taken == Fate.COUNTED]
        ballots = ballots_of(study, submission.request, study.participation.votes(ids)[seats])
        keyed = KeyedShares.of_guardian(share, ballots)
        check = self._check_of(submission)
        self._fix(submission, taken)
        with check.attempt(submission.digest + seats.tobytes()) as pin:
            secret = check.secret(self._source)
            voters = guardian_checks(channel, share, ballots, secret=secret, pin=pin)
            voters &= checked_masks(channel, keyed, ballots, leads=False, secret=secret, pin=pin)
        valid = whole_seats(study, voters)
        self._end(check, seats[~valid], submission)
        if valid.sum() < study.quorum:
            return self._below_quorum(submission)
        notes = self._notes(submission)
        enter = partial(bound_inputs, channel, study, keyed, ballots, seats=seats, valid=valid, notes=notes)
        labels = self._labels(channel, submission, notes, lambda: enter(seed=self._seed(submission), leads=False))
        statement = self._settle(submission, taken, seats[valid], labels != ABSTAIN)
        signature = self._signing_key.sign(labels_statement(study.digest, submission.request, ids.tolist(), labels))
        signed = np.frombuffer(signature, dtype=np.uint8)
        send_arrays(channel, (as_array(statement), signed, head_array(ledger.log.head())))

    def _labels(
        self, channel: Channel, submission: Submission, notes: BatchNotes, enter: Callable[[], CircuitInputs]
    ) -> Int64[ndarray, " queries"]:
        """The labels on which both servers agree, masked where queries are hidden. Logs an attempt that breaks off."""

        def evaluate() -> Evaluated:
            self._begin(submission)
            return guardian_evaluates(channel, enter(), source=self._source)

        sizes = sizes_of(self._study, queries=len(submission.ids))
        with notes.logged_break():
            return guardian_opens(channel, sizes, notes=notes, evaluate=evaluate).signed

    def _open_sums(
        self, channel: Channel, submission: Submission, share: GuardianShare, taken: UInt8[ndarray, " seats"]
    ) -> None:
        """Opens the noisy sums of the seats whose proofs hold, of this submission and no other; see shared_sums.py."""
        study, request, seats = self._study, submission.request, submission.seats[taken == Fate.COUNTED]
        proofs = proofs_of(study, (study.roster[seat].party for seat in seats.tolist()), submission.ids)
        check = self._check_of(submission)
        self._fix(submission, taken)
        with check.attempt(submission.digest + seats.tobytes()) as pin:
            secret = check.secret(self._source)
            exchange = PinnedExchange(channel, leads=False, pin=pin)
            numbers = guardian_numbers(share, proofs, request)
            valid, total = checks_sums(exchange, numbers, proofs, context=request, secret=secret)
        self._end(check, seats[~valid], submission)
        if valid.sum() < study.quorum:
            return self._below_quorum(submission)
        theirs = check_sum_share(receive_arrays(channel), shape=total.shape)
        kept = self._ledger.noted(request, _OPENED)
        if kept is None:
            mine = noisy_share(study, total, self._noise(self._seed(submission)))
        else:
            mine = np.frombuffer(kept, dtype=total.dtype).reshape(total.shape)
        with self._ledger.log.together():
            pin_share(self._ledger, request, theirs, own=False)
            self._ledger.note(request, _OPENED, mine.tobytes())
            answered = np.ones(len(submission.ids), dtype=bool)
            statement = self._settle(submission, taken, seats[valid], answered)
        cells = to_integers(plus(mine, theirs))
        sums = self._signing_key.sign(opened_statement(study.digest, request, cells))
        send_arrays(channel, (mine, as_array(statement), as_array(sums), head_array(self._ledger.log.head())))

    def _end(self, check: OneCheck, bad: Int64[ndarray, " seats"], submission: Submission) -> None:
        """Ends a check, with the seats whose votes it refused."""
        refused = [self._study.roster[seat].party for seat in bad.tolist()]
        self._refusals.count(refused, submission.request)
        check.end(refused)

    def _seed(self, submission: Submission) -> bytes:
        """The noise seed of a batch that is not settled."""
        seed = self._ledger.noted(submission.request, _NOISE_SEED)
        if seed is None:
            raise Refused(Code.OTHER_SUBMISSION, "the batch is settled; allowed: what was opened of it, again")
        return seed

    def _noise(self, seed: bytes) -> LatticeNoise:
        return lattice_noise(expanded_source(seed, label=GUARDIAN_NOISE), units=self._units)

    def _settle(
        self,
        submission: Submission,
        taken: UInt8[ndarray, " submitted"],
        seats: Int64[ndarray, " seats"],
        answered: Bool[ndarray, " queries"],
    ) -> bytes:
        """Charges these seats for what was answered, and the other members nothing; returns the signed statement.

        taken: of the submitted seats, as `_open` says.
        """
        study, ledger = self._study, self._ledger
        voted = {study.roster[seat].party for seat in seats.tolist()}
        takes_part = study.participation.votes(submission.ids)
        due = study.budgets.amount(takes_part.sum(axis=1), (takes_part & answered).sum(axis=1))
        counts = study.budgets.tagged(np.where([seat in voted for seat in study.seats], due, 0))
        amounts = {name: counts[study.seats[name]] for name in ledger.charged(submission.number)}
        with ledger.log.together():
            ledger.settle(submission.number, submission.request, amounts, payload=answered.tobytes())
            # What was opened is noted, and repeated from there: nothing needs the noise any more.
            ledger.forget(submission.request, _NOISE_SEED)
        fates = np.full(len(study.roster), Fate.NOT_ASKED, dtype=np.uint8)
        fates[submission.members] = Fate.NOT_SUBMITTED
        fates[submission.seats] = np.where(taken == Fate.COUNTED, Fate.BAD_VOTES, taken)
        fates[seats] = Fate.COUNTED
        return Statement.signed(
            self._signing_key,
            study=study.digest,
            request=submission.request,
            answered=answered,
            fates=fates,
            votes=self._digests(submission),
        ).encode()

    def _digests(self, submission: Submission) -> UInt8[ndarray, "roster 32"]:
        """What was submitted for each seat of the roster, by its digest; zeros for nothing, or for no votes at all."""
        study = self._study
        digests = np.zeros((len(study.roster), HASH_BYTES), dtype=np.uint8)
        for seat, sealed in zip(submission.seats.tolist(), submission.sealed, strict=True):
            with suppress(MalformedMessage):
                votes = SignedVotes.read(sealed)
                name = study.roster[seat].party
                digests[seat] = as_array(votes.digest(study.digest, submission.request, name))
        return digests

    def _below_quorum(self, submission: Submission) -> None:
        """Too few shares are well formed, so nothing was computed from them. Before they were checked, the batch may be
        submitted with others."""
        self._ledger.log.append("below_quorum", batch=submission.number)

    def _notes(self, submission: Submission) -> BatchNotes:
        return BatchNotes(self._ledger, submission.request, submission.number, _COORDINATOR, self._opened)

    def _check_of(self, submission: Submission) -> OneCheck:
        return OneCheck(self._ledger, submission.request, number=submission.number, other=_COORDINATOR)

    def _fix(self, submission: Submission, taken: UInt8[ndarray, " submitted"]) -> None:
        """Fixes the submission whose votes are checked, or whose sums are opened, and who is barred in it."""
        fixed = submission.digest + (taken == Fate.VOTES_BARRED).tobytes()
        if self._ledger.note(submission.request, _SUBMISSION, fixed) != fixed:
            raise Refused(Code.OTHER_SUBMISSION, "other shares of this batch were checked")

    def _begin(self, submission: Submission) -> None:
        """Counts how often labels of a batch are evaluated."""
        ledger, digest = self._ledger, submission.request
        with ledger.log.together():
            number = next(at for at in range(MOST_ATTEMPTS) if ledger.noted(digest, _attempt(at)) is None)
            ledger.note(digest, _attempt(number), b"")
            if number > 0:
                ledger.log.append("evaluated_again", batch=submission.number, times=number + 1)


def _attempt(number: int) -> str:
    return f"attempt {number}"


# How a guardian answers for each kind of votes.
_ANSWER: dict[type[Votes], Callable[..., None]] = {TeacherVotes: Guardian._label, UnitSums: Guardian._open_sums}
