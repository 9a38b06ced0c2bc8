"""What runs at each level of confidentiality, at the party and at the coordinator. Adding one: a file and two cases."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric import ec

from protocols.crypto.channel import Channel
from protocols.crypto.randomness import RandomSource
from protocols.errors import InvalidInput, Refused
from protocols.ledger.ledger import Ledger
from protocols.levels.clear import ClearAggregation, ClearBallot, clear_noise
from protocols.levels.hidden_queries.ballot import PrivateBallot, PrivateModel
from protocols.levels.hidden_queries.inference.model import QuantisedModel
from protocols.levels.level import Aggregation, Ballot, BatchNoise, Streams
from protocols.levels.secure_sum.aggregation import SummedAggregation
from protocols.levels.secure_sum.ballot import SummedBallot
from protocols.levels.secure_sum.terms import share_source, summed_noise
from protocols.levels.two_server.aggregation import COORDINATOR_NOISE, SharedAggregation, both_noises
from protocols.levels.two_server.ballot import SharedBallot
from protocols.levels.two_server.statement import Statement, Told, check_told
from protocols.noise import cryptographic, lattice_noise
from protocols.refusals.code import Code
from protocols.study.levels import Clear, GuardedLevel, HiddenQueries, SecureSum, TwoServer
from protocols.study.queries import QueryBatch
from protocols.study.study import Study
from protocols.wire.messages import Outcome

# Opens a channel to the study's guardian for one batch.
Dial = Callable[[], AbstractContextManager[Channel]]


def _no_model() -> QuantisedModel:
    raise Refused(Code.NO_TEACHERS, "there is no private model of this study")


@dataclass(frozen=True, kw_only=True)
class Means:
    """What a node provides to the levels that need it.

    key: returns the private key of the party's certificate, which signs; load, admit: see PrivateModel, for hidden
    queries.
    """

    key: Callable[[], ec.EllipticCurvePrivateKey] = field(repr=False)
    load: Callable[[], QuantisedModel] = _no_model
    admit: Callable[[QueryBatch], None] = lambda batch: None


def ballot_of(
    study: Study, seat: str, *, ledger: Ledger, source: RandomSource, means: Means, streams: Streams | None = None
) -> Ballot:
    """A seat's side of the study's level. ledger: the seat's; source: must be the operating system's on a node;
    streams: of noise alone, for simulations that draw it again.

    Raises InvalidInput for a key that is not the seat's, and what `means.key` raises.
    """
    match study.confidentiality:
        case Clear():
            return ClearBallot()
        case SecureSum():
            noise = None if streams is None else share_source(streams, study.seats[seat])
            return SummedBallot(study, seat, ledger=ledger, key=means.key(), source=source, noise_source=noise)
        case TwoServer():
            return SharedBallot(study, seat, key=means.key(), source=source)
        case HiddenQueries():
            private = PrivateModel(means.load, means.admit, means.key())
            return PrivateBallot(study, seat, private=private, source=source)


def aggregation_of(
    study: Study, *, source: RandomSource, dial: Dial | None, streams: Streams | None = None
) -> Aggregation:
    """The coordinator's side of the study's level, with all noise from `source`, which must be the operating system's.

    dial: for a level with a guardian; streams: as for ballot_of. Raises InvalidInput if `dial` is missing, or if
    another organisation asks.
    """
    match study.confidentiality:
        case Clear(units=units):
            if streams is not None:
                return ClearAggregation(clear_noise(study, streams))
            return ClearAggregation(cryptographic(source) if units is None else lattice_noise(source, units=units))
        case SecureSum():
            return SummedAggregation()
        case TwoServer(guardian=guardian):
            if dial is None:
                raise InvalidInput(f"no guardian is named; level 'two_server' needs the address of {guardian!r}")
            noise = None if streams is None else streams(COORDINATOR_NOISE).bytes
            return SharedAggregation(dial, source=source, noise_source=noise)
        case HiddenQueries(querier=querier):
            raise InvalidInput(
                f"{querier!r} asks in study {study.name!r}, about records that only it has; a coordinator only relays"
            )


def batch_noise(study: Study, streams: Streams) -> BatchNoise:
    """The noise that a study with these streams draws, batch by batch. For simulations."""
    match study.confidentiality:
        case Clear():
            noise = clear_noise(study, streams)
            return lambda voting: noise
        case SecureSum():
            return summed_noise(study, streams)
        case GuardedLevel():
            return both_noises(study, streams)


def check_believable(study: Study, outcome: Outcome, seat: str) -> Told | None:
    """What the study's guardian told this seat with an outcome; None at a level without a guardian.

    Raises Refused("unsigned_outcome") if the study has a guardian and the outcome does not bear its signature.
    """
    level = study.confidentiality
    if not isinstance(level, GuardedLevel):
        return None
    key = bytes.fromhex(level.signing_key)
    return check_told(outcome, key=key, position=study.seats[seat], seats=len(study.roster))


def statement_of(study: Study, statement: bytes) -> Statement | None:
    """A guardian's statement as the coordinator keeps it; None for none. Raises MalformedMessage."""
    return Statement.read(statement, seats=len(study.roster)) if statement else None
