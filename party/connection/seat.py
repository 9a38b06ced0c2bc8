"""A seat that a node answers for: which commits must precede an answer, and the state it reports in a Hello."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from party.party import Party
from protocols.errors import Refused
from protocols.ledger.ledger import Ledger
from protocols.study.deployed import DeployedStudy
from protocols.wire.frames import SeatHeads
from protocols.wire.messages import Refusal, Reply, Settled

# The name under which a ledger's log knows the coordinator.
COORDINATOR = "coordinator"


@dataclass(frozen=True)
class ServedSeat:
    """One approved seat of one study, with its party and that party's ledger.

    anchor: called when a charge is on disk, before the reply leaves; if it raises, nothing leaves.
    """

    study: DeployedStudy
    party: Party
    ledger: Ledger
    anchor: Callable[[], None]

    def answer(self, reply: Callable[[], Reply]) -> Reply:
        """Runs `reply` within the ledger's transaction, and returns its reply once the charge cannot be forgotten.

        Returns a Refusal if that cannot be ensured. Raises what `reply` does, with nothing charged, and StorageFailed:
        then nothing may be sent.
        """
        with self.ledger.log.together():
            said = reply()
        if isinstance(said, Refusal | Settled):  # if a settlement is forgotten, the reservation only stays higher
            return said
        try:
            self.anchor()
        except Refused as error:
            self.ledger.log.append("refused", code=error.code, request="anchor")
            return Refusal(error.code, str(error))
        return said


def seat_heads(seat: ServedSeat) -> SeatHeads:
    """The heads that the seat knows, and the requests whose outcome never came; with the coordinator's signature.

    An outcome is kept in the transaction in which it settles, so the seat needs no other.
    """
    log, untold = seat.ledger.log, seat.ledger.without_evidence(COORDINATOR, "outcome")
    with log.together():
        known, proof = log.peer(COORDINATOR), log.proof_of_peer(COORDINATOR)
    return SeatHeads(seat.study.digest, seat.party.name, log.head(), known, tuple(untold), proof)
