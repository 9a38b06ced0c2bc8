"""A seat that a node answers for, and where it stands when the node says Hello."""

from __future__ import annotations

from dataclasses import dataclass

from party.party import Party
from protocols.accounting.ledger import Ledger
from protocols.frames import Standing
from protocols.study import Study

# The name under which a ledger's log knows the coordinator.
COORDINATOR = "coordinator"


@dataclass(frozen=True)
class Seat:
    """One approved seat of one study, with its party and that party's ledger."""

    study: Study
    party: Party
    ledger: Ledger


def standing(seat: Seat) -> Standing:
    """The heads that the seat knows, and the requests whose outcome it has to be told.

    An outcome that it was told and did not settle by, as it lets reservations stand, is not among them.
    """
    log = seat.ledger.log
    unsettled = []
    for number in seat.ledger.unsettled():
        if not seat.party.settles and log.kept(number, COORDINATOR, "outcome"):
            continue
        stored = seat.ledger.stored(number)
        assert stored is not None  # it was listed
        unsettled.append(stored.digest)
    return Standing(seat.study.digest, seat.party.name, log.head(), log.peer(COORDINATOR), tuple(unsettled))
