"""Level `two_server`: a party shares its votes between two servers, and the coordinator is one of them.

The servers do not collude; even a malicious party can cast only one vote per teacher and query. Where records vote, a
party shares the sum of its contributions and proves that its declared units could send it (shared_sums.py), and both
servers open the noisy sum. See conversation.py for the messages, levels/guardian.py for the other server.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Int64
from numpy import ndarray

from protocols.crypto.channel import Channel
from protocols.crypto.field import plus, to_integers
from protocols.crypto.prg import expanded_source
from protocols.crypto.randomness import RandomSource
from protocols.errors import MalformedMessage
from protocols.ledger.ledger import Ledger
from protocols.levels.level import Aggregation, BatchNoise, Counted, LeftOut, ReservedBatch, Streams, votes_of
from protocols.levels.two_server.agreement import EVALUATION_NOTES
from protocols.levels.two_server.batch_notes import BatchNotes, OneCheck, OpenedBatches
from protocols.levels.two_server.circuit_inputs import CircuitInputs, bound_inputs, checked_masks, sizes_of
from protocols.levels.two_server.conversation import (
    GUARDIAN_NOISE,
    NOISE_SEED_BYTES,
    Submission,
    ballots_of,
    check_bytes,
    head_of,
    receive_arrays,
    send_arrays,
    whole_seats,
)
from protocols.levels.two_server.keyed_shares import KeyedShares
from protocols.levels.two_server.noise_pool import NoiseLaw, noise_of
from protocols.levels.two_server.one_time_masks import PinnedExchange
from protocols.levels.two_server.shared_sums import (
    SumShare,
    check_sum_share,
    checks_sums,
    noisy_share,
    pin_share,
    proofs_of,
)
from protocols.levels.two_server.shares import CoordinatorShare, check_coordinator_share
from protocols.levels.two_server.signed_labels import coordinator_labels
from protocols.levels.two_server.signed_votes import received_votes
from protocols.levels.two_server.sketch import coordinator_checks
from protocols.levels.two_server.statement import SIGNATURE_BYTES, Fate, Statement, check_opened
from protocols.noise import LatticeNoise, lattice_noise
from protocols.refusals.code import Code
from protocols.study.levels import guarded
from protocols.study.study import Study
from protocols.study.votes import TeacherVotes, UnitSums, Votes
from protocols.votes import ABSTAIN
from protocols.wire.messages import decode_arrays, encode_arrays

# What the coordinator gets of one party: of teachers' votes, or of the sum of records' contributions.
PartyShare = CoordinatorShare | SumShare

COORDINATOR_NOISE = "coordinator noise"
_GUARDIAN = "guardian"
# The note of the guardian's signature of the sums that were opened.
_OPENED = "opened"
_SUBMITTED, _NOISE_SEED = "submitted", "noise_seed"
# What a guardian says of submitted votes that it does not check.
_REFUSED_AS = {Fate.BAD_SEAL: Code.BAD_SEAL, Fate.VOTES_BARRED: Code.VOTES_BARRED}


@dataclass(frozen=True, eq=False)
class _Submitted:
    """What the guardian accepted of a batch. digest: of the submission; seed: of the coordinator's noise."""

    digest: bytes
    seats: Int64[ndarray, " seats"]
    shares: list[PartyShare] = field(repr=False)
    seed: bytes = field(repr=False)


class SharedAggregation(Aggregation):
    """The coordinator's side. dial: opens a channel to the guardian for one batch; source: as for SharedBallot.

    What was received is noted before the guardian is told: a batch is submitted as it was the first time, or not at
    all.
    """

    def __init__(
        self,
        dial: Callable[[], AbstractContextManager[Channel]],
        *,
        source: RandomSource,
        noise_source: RandomSource | None = None,
    ) -> None:
        """noise_source: of the seeds of noise alone, for simulations that draw them again; `source` if None."""
        self._dial = dial
        self._source = source
        self._noise_source = noise_source or source

    def check_next(self, study: Study, ledger: Ledger) -> None:
        _opened_batches(study, ledger).check()

    def count(self, reserved: ReservedBatch) -> Counted:
        ledger, digest = reserved.ledger, reserved.request.digest
        left_out: dict[str, str] = {}
        noted = ledger.noted(digest, _SUBMITTED)
        if noted is None:
            received = self._collect(reserved, left_out)
            if len(received) < reserved.study.quorum:
                return Counted(None, tuple(received), left_out)
            noted = ledger.note(digest, _SUBMITTED, _pack(reserved, received))
        seats, shares, sealed = _unpack(noted, reserved)
        seed = ledger.note(digest, _NOISE_SEED, self._noise_source(NOISE_SEED_BYTES))
        names = [reserved.study.roster[seat].party for seat in seats.tolist()]
        # A seat that answered before a restart is not asked again, and must not be left out.
        left_out |= {seat: Code.ABSENT for seat in reserved.seats if seat not in names and seat not in left_out}
        with self._dial() as channel:
            return self._converse(channel, reserved, seats, shares, sealed, seed, left_out)

    def _collect(self, reserved: ReservedBatch, left_out: dict[str, str]) -> dict[str, tuple[bytes, PartyShare]]:
        replies = reserved.exchange(dict.fromkeys(reserved.seats, reserved.request))
        received = {}
        for seat in reserved.seats:
            try:
                reply = votes_of(replies.get(seat), reserved.request)
                signed, own = received_votes(reply, reserved, seat)
                received[seat] = (signed.encode(), _share(own, reserved, seat))
            except LeftOut as error:
                left_out[seat] = error.code
            except MalformedMessage:
                left_out[seat] = Code.BAD_VOTES
        return received

    def _converse(
        self,
        channel: Channel,
        reserved: ReservedBatch,
        seats: Int64[ndarray, " seats"],
        shares: list[PartyShare],
        sealed: tuple[bytes, ...],
        seed: bytes,
        left_out: dict[str, str],
    ) -> Counted:
        study, request, log = reserved.study, reserved.request, reserved.ledger.log
        ids = request.batch.ids
        submission = Submission(
            study.digest,
            request.digest,
            request.batch.number,
            ids,
            np.array(sorted(study.seats[seat] for seat in reserved.seats), dtype=np.int64),
            seats,
            sealed,
            log.head(),
            log.peer(_GUARDIAN),
        )
        send_arrays(channel, submission.arrays())
        taken, known = _accepted(receive_arrays(channel), len(seats))
        log.remember(_GUARDIAN, head_of(known), proof=b"")
        faulty = taken != Fate.COUNTED
        for seat, fate in zip(seats[faulty].tolist(), taken[faulty].tolist(), strict=True):
            left_out[study.roster[seat].party] = _REFUSED_AS[Fate(fate)]
        shares = [share for share, bad in zip(shares, faulty.tolist(), strict=True) if not bad]
        seats = seats[~faulty]
        if len(seats) < study.quorum:
            return self._below_quorum(reserved, left_out)
        count = _COUNT[type(study.votes)]
        return count(self, channel, reserved, _Submitted(submission.digest, seats, shares, seed), left_out)

    def _label(
        self, channel: Channel, reserved: ReservedBatch, submitted: _Submitted, left_out: dict[str, str]
    ) -> Counted:
        """The labels that both servers compute of these seats' votes, in the circuit."""
        study, request, seats = reserved.study, reserved.request, submitted.seats
        ids = request.batch.ids
        ballots = ballots_of(study, request.digest, reserved.takes_part[seats])
        share = CoordinatorShare.of_all([each for each in submitted.shares if isinstance(each, CoordinatorShare)])
        keyed = KeyedShares.of_coordinator(share, ballots)
        check = _check_of(reserved)
        with check.attempt(submitted.digest + seats.tobytes()) as pin:
            secret = check.secret(self._source)
            voters = coordinator_checks(channel, share, ballots, secret=secret, pin=pin)
            voters &= checked_masks(channel, keyed, ballots, leads=True, secret=secret, pin=pin)
        valid = whole_seats(study, voters)
        _end(check, study, seats[~valid], left_out)
        if valid.sum() < study.quorum:
            return self._below_quorum(reserved, left_out)
        opened = _opened_batches(study, reserved.ledger)
        notes = BatchNotes(reserved.ledger, request.digest, request.batch.number, _GUARDIAN, opened)

        def enter() -> CircuitInputs:
            return bound_inputs(
                channel, study, keyed, ballots, seats=seats, valid=valid, seed=submitted.seed, leads=True, notes=notes
            )

        sizes = sizes_of(study, queries=len(ids))
        agreed = coordinator_labels(channel, study, sizes, enter, ids=ids.tolist(), notes=notes, source=self._source)
        self._believe(reserved, agreed.labels != ABSTAIN, seats[valid], agreed.statement, agreed.head)
        voted = tuple(study.roster[seat].party for seat in seats[valid].tolist())
        return Counted(agreed.labels, voted, left_out, agreed.statement)

    def _open_sums(
        self, channel: Channel, reserved: ReservedBatch, submitted: _Submitted, left_out: dict[str, str]
    ) -> Counted:
        """The noisy sums of the seats whose proofs hold, which the guardian opens too and signs; see shared_sums.py."""
        study, request, ledger, seats = reserved.study, reserved.request.digest, reserved.ledger, submitted.seats
        proofs = proofs_of(study, (study.roster[seat].party for seat in seats.tolist()), reserved.request.batch.ids)
        shares = [each.numbers for each in submitted.shares if isinstance(each, SumShare)]
        check = _check_of(reserved)
        with check.attempt(submitted.digest + seats.tobytes()) as pin:
            secret = check.secret(self._source)
            exchange = PinnedExchange(channel, leads=True, pin=pin)
            valid, total = checks_sums(exchange, shares, proofs, context=request, secret=secret)
        _end(check, study, seats[~valid], left_out)
        if valid.sum() < study.quorum:
            return self._below_quorum(reserved, left_out)
        mine = noisy_share(study, total, _noise(study, submitted.seed))
        pin_share(ledger, request, mine, own=True)
        send_arrays(channel, (mine,))
        answer = receive_arrays(channel)
        if len(answer) != 4:
            raise MalformedMessage(f"the guardian's opening has {len(answer)} arrays; allowed: 4")
        theirs = check_sum_share(answer[:1], shape=mine.shape)
        statement, sums = check_bytes(answer[1], answer[1].size), check_bytes(answer[2], SIGNATURE_BYTES)
        cells = to_integers(plus(mine, theirs))
        key = bytes.fromhex(guarded(study.confidentiality).signing_key)
        check_opened(sums, cells, study=study.digest, request=request, key=key)
        self._believe(reserved, np.ones(len(cells), dtype=bool), seats[valid], statement, answer[3])
        ledger.note(request, _OPENED, sums)
        voted = tuple(study.roster[seat].party for seat in seats[valid].tolist())
        return Counted(cells.argmax(axis=1), voted, left_out, statement, cells=cells)

    def _believe(
        self,
        reserved: ReservedBatch,
        answered: Bool[ndarray, " queries"],
        seats: Int64[ndarray, " seats"],
        data: bytes,
        known: ndarray,
    ) -> None:
        """Checks the guardian's statement, by which these seats' votes were counted, and keeps its log's head.

        Raises Refused, MalformedMessage.
        """
        study = reserved.study
        statement = Statement.read(data, seats=len(study.roster))
        key = bytes.fromhex(guarded(study.confidentiality).signing_key)
        statement.check(key=key, study=study.digest, request=reserved.request.digest, answered=answered)
        if statement.counted != seats.tolist():
            raise MalformedMessage("the guardian's statement counts other seats' votes than were counted here")
        reserved.ledger.log.remember(_GUARDIAN, head_of(known), proof=b"")

    def _below_quorum(self, reserved: ReservedBatch, left_out: dict[str, str]) -> Counted:
        """Too few shares are well formed, so nothing was computed from them. Before they were checked, others may take
        their place; afterwards the batch is never checked with others, and can only be given up."""
        if not _check_of(reserved).begun:
            reserved.ledger.forget(reserved.request.digest, _SUBMITTED)
        return Counted(None, (), left_out)

    def released(self, reserved: ReservedBatch) -> None:
        """Forgets shares and noise of a settled batch, which are never needed again."""
        forget(reserved.ledger, reserved.request.digest)


def _check_of(reserved: ReservedBatch) -> OneCheck:
    return OneCheck(reserved.ledger, reserved.request.digest, number=reserved.request.batch.number, other=_GUARDIAN)


def _end(check: OneCheck, study: Study, bad: Int64[ndarray, " seats"], left_out: dict[str, str]) -> None:
    """Ends a check, with the seats whose votes it refused, which are left out."""
    refused = [study.roster[seat].party for seat in bad.tolist()]
    check.end(refused)
    left_out |= dict.fromkeys(refused, Code.BAD_VOTES)


def _opened_batches(study: Study, ledger: Ledger) -> OpenedBatches:
    who = f"{_GUARDIAN} {guarded(study.confidentiality).guardian}"
    return OpenedBatches(ledger, study.digest, other=who)


def forget(ledger: Ledger, digest: bytes) -> None:
    """Deletes the shares and the noise seed of a batch, and what was evaluated."""
    for kind in (_SUBMITTED, _NOISE_SEED, *EVALUATION_NOTES):
        ledger.forget(digest, kind)


def opened_signature(ledger: Ledger, digest: bytes) -> bytes | None:
    """The guardian's signature of the noisy sums of a batch, which `check_opened` checks; None if there is none."""
    return ledger.noted(digest, _OPENED)


def _noise(study: Study, seed: bytes) -> LatticeNoise:
    units = guarded(study.confidentiality).units
    return lattice_noise(expanded_source(seed, label=COORDINATOR_NOISE), units=units)


def both_noises(study: Study, streams: Streams) -> BatchNoise:
    """The noise of a batch: both servers'. For simulations."""
    sources = [streams(COORDINATOR_NOISE).bytes, streams(GUARDIAN_NOISE).bytes]

    def of_batch(voting: Bool[ndarray, " parties"]) -> LatticeNoise:
        seeds = (sources[0](NOISE_SEED_BYTES), sources[1](NOISE_SEED_BYTES))
        drawn = _DRAWN[type(study.votes)]
        return LatticeNoise(study.units, lambda count, sigma: drawn(study, seeds, count, float(sigma)))

    return of_batch


def _drawn_for_sums(study: Study, seeds: tuple[bytes, bytes], count: int, sigma: float) -> Int64[ndarray, " count"]:
    labelled = zip(seeds, (COORDINATOR_NOISE, GUARDIAN_NOISE), strict=True)
    sources = (expanded_source(seed, label=label) for seed, label in labelled)
    first, second = (lattice_noise(source, units=study.units).draw(count, sigma) for source in sources)
    return first + second


def _drawn_for_labels(study: Study, seeds: tuple[bytes, bytes], count: int, _: float) -> Int64[ndarray, " count"]:
    # As both servers' checks of inputs give it, whatever is asked for: a draw for each query and class.
    first, second = noise_of(seeds, NoiseLaw.of(study), queries=count // study.classes)
    return (first + second).reshape(-1)


def _share(arrays: tuple[ndarray, ...], reserved: ReservedBatch, seat: str) -> PartyShare:
    return _SHARE[type(reserved.study.votes)](arrays, reserved, seat)


def _vote_share(arrays: tuple[ndarray, ...], reserved: ReservedBatch, seat: str) -> PartyShare:
    study, queries = reserved.study, len(reserved.request.batch.ids)
    return check_coordinator_share(arrays, voters=study.votes.voters, queries=queries, classes=study.classes)


def _sum_share(arrays: tuple[ndarray, ...], reserved: ReservedBatch, seat: str) -> PartyShare:
    (proof,) = proofs_of(reserved.study, [seat], reserved.request.batch.ids)
    return SumShare(check_sum_share(arrays, shape=(proof.layout.size,)))


def _pack(reserved: ReservedBatch, received: dict[str, tuple[bytes, PartyShare]]) -> bytes:
    """What a batch is submitted with, in order of the roster."""
    study = reserved.study
    seats = sorted(study.seats[seat] for seat in received)
    names = [study.roster[seat].party for seat in seats]
    shares = [array for name in names for array in received[name][1].arrays()]
    sealed = [np.frombuffer(received[name][0], dtype=np.uint8) for name in names]
    return encode_arrays([np.array(seats, dtype=np.int64), *sealed, *shares])


def _unpack(
    noted: bytes, reserved: ReservedBatch
) -> tuple[Int64[ndarray, " seats"], list[PartyShare], tuple[bytes, ...]]:
    seats, *rest = decode_arrays(noted)
    parties = len(seats)
    sealed = tuple(each.tobytes() for each in rest[:parties])
    each = (len(rest) - parties) // parties
    names = [reserved.study.roster[seat].party for seat in seats.tolist()]
    starts = range(parties, len(rest), each)
    shares = [_share(tuple(rest[at : at + each]), reserved, name) for at, name in zip(starts, names, strict=True)]
    return seats, shares, sealed


def _accepted(arrays: tuple[ndarray, ...], seats: int) -> tuple[ndarray, ndarray]:
    """For each submitted seat Fate.COUNTED, or why its votes are not even checked; and the guardian's head."""
    if len(arrays) != 2 or arrays[0].dtype != np.uint8 or arrays[0].shape != (seats,):
        raise MalformedMessage("the guardian's acceptance is malformed")
    if not np.isin(arrays[0], [Fate.COUNTED, *_REFUSED_AS]).all():
        raise MalformedMessage("the guardian's acceptance names another fate; allowed: counted, bad_seal, votes_barred")
    return arrays[0], arrays[1]


_DRAWN = {TeacherVotes: _drawn_for_labels, UnitSums: _drawn_for_sums}
# What the coordinator gets of each kind of votes, and what it makes of it.
_SHARE: dict[type[Votes], Callable[[tuple[ndarray, ...], ReservedBatch, str], PartyShare]] = {
    TeacherVotes: _vote_share,
    UnitSums: _sum_share,
}
_COUNT: dict[type[Votes], Callable[..., Counted]] = {
    TeacherVotes: SharedAggregation._label,
    UnitSums: SharedAggregation._open_sums,
}
