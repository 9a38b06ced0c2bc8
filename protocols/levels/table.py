"""The levels of confidentiality by name: the party's side and the coordinator's. Adding one: a file and two lines."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from cryptography.hazmat.primitives.asymmetric import ec

from protocols.crypto.channel import Channel
from protocols.crypto.randomness import RandomSource
from protocols.errors import InvalidInput
from protocols.ledger.ledger import Ledger
from protocols.levels.clear import Clear, ClearBallot
from protocols.levels.hidden_queries.ballot import PrivateBallot, PrivateModel
from protocols.levels.level import Aggregation, Ballot
from protocols.levels.secure_sum.aggregation import SecureSum
from protocols.levels.secure_sum.ballot import SummedBallot
from protocols.levels.two_server.aggregation import SharedBallot, TwoServer
from protocols.noise import cryptographic, lattice_noise
from protocols.study.study import Study

# Opens a channel to the study's guardian for one batch.
Dial = Callable[[], AbstractContextManager[Channel]]


def ballot_of(
    study: Study,
    seat: str,
    *,
    ledger: Ledger,
    source: RandomSource,
    key: ec.EllipticCurvePrivateKey | None,
    private: PrivateModel | None = None,
) -> Ballot:
    """A seat's side of the study's level.

    ledger: the seat's; source: must be the operating system's on a node; key: the party's, of its certificate, for
    `secure_sum` alone; private: where a querier asks. Raises InvalidInput if one is missing.
    """
    match study.confidentiality.level:
        case "secure_sum":
            if key is None:
                raise InvalidInput("the party's key is missing; level 'secure_sum' needs it for signatures")
            return SummedBallot(study, seat, ledger=ledger, key=key, source=source)
        case "two_server" if study.confidentiality.querier is not None:
            if private is None:
                raise InvalidInput("the private model is missing; a study with a querier is answered by one")
            return PrivateBallot(study, seat, private=private, source=source)
        case "two_server":
            return SharedBallot(study, seat, source=source)
        case "clear":
            return ClearBallot()
        case level:
            raise InvalidInput(f"level is {level!r}; allowed: clear, secure_sum, two_server")


def aggregation_of(study: Study, *, source: RandomSource, dial: Dial | None) -> Aggregation:
    """The coordinator's side of the study's level, with all noise from `source`, which must be the operating system's.

    dial: for `two_server`. Raises InvalidInput if it is missing.
    """
    match study.confidentiality.level:
        case "secure_sum":
            return SecureSum()
        case "two_server" if study.confidentiality.querier is not None:
            raise InvalidInput(
                f"{study.confidentiality.querier!r} asks in study {study.name!r}, about records that it alone has; a "
                "coordinator only relays"
            )
        case "two_server":
            if dial is None:
                raise InvalidInput(
                    f"no guardian is named; level 'two_server' needs the address of {study.confidentiality.guardian!r}"
                )
            return TwoServer(dial, source=source)
        case "clear":
            lattice = study.lattice
            return Clear(cryptographic(source) if lattice is None else lattice_noise(source, units=lattice.units))
        case level:
            raise InvalidInput(f"level is {level!r}; allowed: clear, secure_sum, two_server")
