"""A seat that a node answers for, and the order of commits in which it may speak."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from party.party import Party
from protocols.accounting.ledger import Ledger
from protocols.errors import Refused
from protocols.messages import Refusal, Reply, Settled
from protocols.study import Study


@dataclass(frozen=True)
class Seat:
    """One approved seat of one study, with its party and that party's ledger.

    anchor: called when a charge is on disk and before anything of it leaves; what it raises keeps it from leaving.
    """

    study: Study
    party: Party
    ledger: Ledger
    anchor: Callable[[], None]

    def answer(self, reply: Callable[[], Reply]) -> Reply:
        """What `reply` gives, which it makes within the ledger's transaction: said when its charge cannot be forgotten.

        A Refusal in its place where that cannot be promised. Raises what `reply` does, with nothing charged, and
        StorageFailed: nothing may be said then.
        """
        with self.ledger.log.together():
            said = reply()
        if isinstance(said, Refusal | Settled):  # a settlement that is forgotten lowers nothing
            return said
        try:
            self.anchor()
        except Refused as error:
            self.ledger.log.append("refused", code=error.code, request="anchor")
            return Refusal(error.code, str(error))
        return said
