"""Level `clear`: the coordinator sees the votes, adds them up with noise, and is trusted with both.

It also sees how far one party's sum stands apart from those of all others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.errors import InvalidInput
from protocols.ledger.ledger import Ledger
from protocols.levels.level import Aggregation, Ballot, Casting, Counted, LeftOut, ReservedBatch, Streams, votes_of
from protocols.noise import LatticeNoise, Noise, lattice_noise, simulated
from protocols.refusals.code import Code
from protocols.study.study import Study
from protocols.study.votes import TeacherVotes, UnitSums, Votes, unit_sums
from protocols.sums.contributions import Claim
from protocols.wire.messages import ConcealedVotes, Outcome, VoteReply, VoteRequest


def distances(
    sums: Int64[ndarray, "parties rows columns"], claims: Sequence[Claim], declared: Sequence[int | None]
) -> Float64[ndarray, " parties"] | None:
    """Of each party, how far its units' mean is from that of all others, over the root of the mean square of that
    distance if all units were drawn alike and each as long as it may be: about 1 then, or less.

    claims: of the parties; declared: their numbers of units, which whole cells say themselves. None where a number is
    known neither way, or of fewer than two parties.
    """
    held = [
        float(each.sum()) / (claim.step * claim.votes) if claim.whole else units
        for each, claim, units in zip(sums, claims, declared, strict=True)
    ]
    if len(held) < 2 or not all(held):
        return None
    counts = np.array(held, dtype=np.float64)[:, None]
    said = np.stack([each.ravel() / claim.weight_units for each, claim in zip(sums, claims, strict=True)])
    others, rest = said.sum(axis=0) - said, counts.sum() - counts
    away = np.linalg.norm(said / counts - others / rest, axis=1)
    spread = max(1.0 - float(((said.sum(axis=0) / counts.sum()) ** 2).sum()), 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        far: Float64[ndarray, " parties"] = away / np.sqrt(spread * (1 / counts + 1 / rest))[:, 0]
    return far


_UNLIKE_OTHERS = "unlike others"


class ClearBallot(Ballot):
    """Sends votes as they are."""

    def cast(self, request: VoteRequest, votes: Casting) -> VoteReply:
        return VoteReply(request.digest, votes(None))

    def settle(self, outcome: Outcome, sent: VoteReply | ConcealedVotes) -> str:
        """The coordinator's word is enough: it is trusted with votes and labels. Returns ""."""
        return ""


class ClearAggregation(Aggregation):
    """Counts votes and draws all noise from `noise`: integer noise for a study with units, real-valued otherwise.

    It must be cryptographic if real labels are released.
    """

    def __init__(self, noise: Noise) -> None:
        self._noise = noise

    def check_next(self, study: Study, ledger: Ledger) -> None:
        """Nothing: every batch may be followed by another."""

    def count(self, reserved: ReservedBatch) -> Counted:
        study, request = reserved.study, reserved.request
        if isinstance(self._noise, LatticeNoise) != (study.lattice is not None):
            raise InvalidInput(
                f"the study has {'no ' if study.lattice is None else ''}units; allowed: integer noise for a study with "
                "units, real-valued noise for one without"
            )
        replies = reserved.exchange(dict.fromkeys(reserved.seats, request))
        votes: dict[str, Int64[ndarray, "teachers queries"]] = {}
        left_out: dict[str, str] = {}
        for seat in reserved.seats:
            try:
                reply = votes_of(replies.get(seat), request)
                votes[seat] = _checked(seat, reply, reserved)
            except LeftOut as error:
                left_out[seat] = error.code
        if len(votes) < study.quorum:
            return Counted(None, tuple(votes), left_out)
        seats = np.array([study.seats[seat] for seat in votes])
        cast = np.stack(list(votes.values()))
        if study.votes.evaluation is not None and study.votes.again(request.batch.ids):
            answered = np.zeros(cast.shape[1], dtype=np.int64)
            return Counted(answered, tuple(votes), left_out, cells=self._apart(study, cast, seats))
        tally = study.votes.tally(study, cast, seats, reserved.takes_part[seats])
        _UNLIKE[type(study.votes)](reserved, cast, list(votes))
        labels, cells = study.released(tally / study.units, self._noise, predictions=reserved.predictions)
        return Counted(labels, tuple(votes), left_out, cells=cells)

    def _apart(
        self, study: Study, cast: Int64[ndarray, "seats rows classes"], seats: Int64[ndarray, " seats"]
    ) -> Int64[ndarray, "stacked classes"]:
        """Each seat's sum of its judges under the full noise by itself, one below the other in the roster's order, so
        that no exact sum enters anything; noise alone of a seat without one."""
        each = np.zeros((len(study.roster), *cast.shape[1:]), dtype=np.int64)
        each[seats] = cast
        counts = each.reshape(-1, study.classes) / study.units
        return np.rint(study.gaussian.noisy(counts, self._noise, view="histogram") * study.units).astype(np.int64)

    def released(self, reserved: ReservedBatch) -> None:
        """Does nothing: nothing was kept."""


def _checked(seat: str, reply: object, reserved: ReservedBatch) -> Int64[ndarray, "teachers queries"]:
    """The votes in a reply. Raises LeftOut("bad_votes") if there is nothing to count."""
    study, queries = reserved.study, len(reserved.request.batch.ids)
    shape = study.votes.shape(queries=queries, classes=study.classes)
    if not isinstance(reply, VoteReply) or reply.votes.shape != shape:
        raise LeftOut(Code.BAD_VOTES)
    try:
        study.votes.check_cast(study, seat, reply.votes, reserved.request.batch.ids)
    except InvalidInput:
        raise LeftOut(Code.BAD_VOTES) from None
    return reply.votes


def _note_unlike(reserved: ReservedBatch, cast: Int64[ndarray, "seats rows columns"], seats: list[str]) -> None:
    """Notes how far each seat's sum stands apart, for whoever sees all of them: nothing of it is released."""
    study, votes = reserved.study, unit_sums(reserved.study)
    claims = [votes.claim(study, seat, again=False) for seat in seats]
    found = distances(cast, claims, [study.declared(seat) for seat in seats])
    if found is not None:
        each = np.full(len(study.roster), np.nan)
        each[[study.seats[seat] for seat in seats]] = found
        reserved.ledger.note(reserved.request.digest, _UNLIKE_OTHERS, each.astype("<f8").tobytes())


def unlike_others(study: Study, ledger: Ledger) -> dict[str, float]:
    """How far each seat's sum of units' votes stood apart (`distances`), the furthest first; {} if not known."""
    stored = ledger.stored(0)
    kept = None if stored is None else ledger.noted(stored.digest, _UNLIKE_OTHERS)
    pairs = zip(study.seats, np.frombuffer(kept or b"", dtype="<f8").tolist(), strict=False)
    return dict(sorted(((seat, far) for seat, far in pairs if far == far), key=lambda each: -each[1]))


def clear_noise(study: Study, streams: Streams) -> Noise:
    """The noise of all batches, in order: who voted does not matter. For simulations."""
    lattice, rng = study.lattice, streams("noise")
    return simulated(rng) if lattice is None else lattice_noise(rng.bytes, units=lattice.units)


# What the coordinator notes of sums that it sees.
_UNLIKE: dict[type[Votes], Callable[[ReservedBatch, ndarray, list[str]], None]] = {
    TeacherVotes: lambda reserved, cast, seats: None,
    UnitSums: _note_unlike,
}
