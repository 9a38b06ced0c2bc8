"""Level `two_server`, the party's side: votes as two shares, the guardian's sealed to it, both signed."""

from __future__ import annotations

from collections.abc import Callable

from cryptography.hazmat.primitives.asymmetric import ec
from jaxtyping import Int64
from numpy import ndarray

from protocols.crypto.identity import encoded_point
from protocols.crypto.randomness import RandomSource
from protocols.errors import CannotVote, InvalidInput, Refused
from protocols.levels.level import Ballot, Casting
from protocols.levels.two_server.conversation import seal
from protocols.levels.two_server.shared_sums import SumShare, proofs_of, share_sum
from protocols.levels.two_server.shares import CoordinatorShare, GuardianShare, share_votes
from protocols.levels.two_server.signed_votes import as_array, sent_votes, signed_votes
from protocols.levels.two_server.statement import Fate, check_told
from protocols.refusals.code import Code
from protocols.study.levels import guarded
from protocols.study.study import Study
from protocols.study.votes import TeacherVotes, UnitSums, Votes
from protocols.votes import ABSTAIN
from protocols.wire.messages import ConcealedVotes, Outcome, VoteReply, VoteRequest

# The fate of votes that reached the guardian in another form than they left: more than a Fate says.
ALTERED = "altered"


class SharedBallot(Ballot):
    """Votes as two shares; the guardian's is sealed to it, and the seat's party signs both.

    key: the private half of the key that the study names for the seat; source: must be the operating system's on a
    node. Raises InvalidInput for another key.
    """

    def __init__(self, study: Study, seat: str, *, key: ec.EllipticCurvePrivateKey, source: RandomSource) -> None:
        self._level = guarded(study.confidentiality)
        if encoded_point(key.public_key()) != self._level.seat_keys[study.seats[seat]]:
            raise InvalidInput(f"the key of {seat!r} is not the one that study {study.name!r} names for it")
        self._study = study
        self._seat = seat
        self._key = key
        self._sealing_key = bytes.fromhex(self._level.sealing_key)
        self._signing_key = bytes.fromhex(self._level.signing_key)
        self._source = source

    def cast(self, request: VoteRequest, votes: Casting) -> ConcealedVotes:
        own, guardians = _SHARED[type(self._study.votes)](self, request, votes(None))
        return self._sealed(request, own.arrays(), guardians)

    def _shared_sum(
        self, request: VoteRequest, cast: Int64[ndarray, "queries classes"]
    ) -> tuple[SumShare, GuardianShare]:
        (proof,) = proofs_of(self._study, [self._seat], request.batch.ids)
        return share_sum(cast, proof=proof, context=request.digest, source=self._source)

    def _shared_votes(
        self, request: VoteRequest, cast: Int64[ndarray, "teachers queries"]
    ) -> tuple[CoordinatorShare, GuardianShare]:
        study = self._study
        takes_part = study.participation.of(study.seats[self._seat]).votes(request.batch.ids)[0]
        if not self._level.abstains and (cast[:, takes_part] == ABSTAIN).any():
            raise CannotVote("a teacher abstains; allowed: a class in every query, as the study requires")
        return share_votes(cast, classes=study.classes, context=request.digest, source=self._source)

    def _sealed(self, request: VoteRequest, own: tuple[ndarray, ...], guardians: GuardianShare) -> ConcealedVotes:
        """The coordinator's arrays, with the guardian's share sealed to it and the signature of both."""
        study, seat = self._study, self._seat
        sealed = seal(guardians.arrays(), key=self._sealing_key, study=study.digest, request=request.digest, seat=seat)
        signed = signed_votes(
            sealed,
            own,
            key=self._key,
            study=study,
            request=request.digest,
            queries=request.batch.ids.tolist(),
            seat=seat,
        )
        return ConcealedVotes(request.digest, (as_array(sealed), *own, as_array(signed.signature)))

    def settle(self, outcome: Outcome, sent: VoteReply | ConcealedVotes) -> str:
        study, seat = self._study, self._seat
        told = check_told(outcome, key=self._signing_key, position=study.seats[seat], seats=len(study.roster))
        assert isinstance(sent, ConcealedVotes)  # which this ballot cast
        same = told.vote == self._sent(sent)
        if told.fate in (Fate.COUNTED, Fate.BAD_VOTES, Fate.VOTES_BARRED) and not same:
            raise Refused(
                Code.OTHER_VOTES,
                "the guardian's statement is of other votes than this ledger holds; the reservation stands",
            )
        # The guardian got no share with this hospital's signature on it: whoever passed it on changed it.
        return ALTERED if told.fate is Fate.BAD_SEAL and not same else told.fate.word

    def _sent(self, reply: ConcealedVotes) -> bytes:
        """The digest of the votes in a stored reply, as the guardian's statement names them."""
        return sent_votes(reply).digest(self._study.digest, reply.batch_digest, self._seat)


# How each kind of votes is shared.
_SHARED: dict[type[Votes], Callable[..., tuple[CoordinatorShare | SumShare, GuardianShare]]] = {
    TeacherVotes: SharedBallot._shared_votes,
    UnitSums: SharedBallot._shared_sum,
}
