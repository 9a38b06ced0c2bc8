"""Withdrawing a study: it ends at this node for ever, and what it did not spend returns to the lifetime cap."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Final

from party.budget.policy import Policy
from party.budget.spending import SeatSpent, seat_spent
from party.budget.watermarks import remember_policy
from party.home import PartyHome
from party.lifetime import seats_of
from protocols.errors import StorageFailed
from protocols.ledger.ledger import Ledger
from protocols.study.deployed import DeployedStudy

_LOCK_WAIT_S: Final = 10.0


def withdraw(
    home: PartyHome, policy: Policy, study: DeployedStudy, *, data_set: str, party: str
) -> dict[str, SeatSpent]:
    """Ends a study at this node for ever and gives back what its ledgers did not spend; returns what each seat spent.

    Where a ledger does not show it (it is missing, or not the newest), all that the seat ever reserved counts as spent.

    A vote in flight holds its ledger's transaction from before it looks at the approval until it is charged. So once
    the entry below is written, every later vote sees the withdrawal, and what was spent is final. Raises
    Refused("approved_elsewhere") for another home's study, ("policy_rolled_back") if what was spent is unknown; then
    nothing has changed. What was made of records for the study (teachers, the sum of records' votes) is deleted; its
    terms, ledgers and signed evidence stay.
    """
    policy.check_newest(home.path)
    policy.withdraw(study, data_set=data_set, home=home)
    approval = policy.own_approval(study.digest, data_set, home)
    final = {}
    for seat in seats_of(study, party):
        with ExitStack() as held:
            path = home.ledger(study.digest, seat)
            ledger = held.enter_context(Ledger(path)) if path.exists() else None
            if ledger is not None:
                _end(ledger, policy, wait_s=_LOCK_WAIT_S + study.terms.deadline_s)
            # The policy knows by now what left the node: a vote is anchored only while its study is approved.
            final[seat] = seat_spent(home, policy, approval, study, seat, ledger=ledger)
            if isinstance(doubt := final[seat].doubt, StorageFailed):
                raise doubt
    policy.release(study, data_set=data_set, home=home, spent={seat: each.nano for seat, each in final.items()})
    forget_study(home, study, party)
    return final


def forget_study(home: PartyHome, study: DeployedStudy, party: str) -> None:
    """Deletes what was made of this hospital's records for a study: teachers and votes. Raises StorageFailed."""
    for seat in seats_of(study, party):
        home.forget_votes(study.digest, seat)
        home.forget_teachers(study.digest, seat)


def _end(ledger: Ledger, policy: Policy, *, wait_s: float) -> None:
    """Writes down the withdrawal in a ledger, once no vote is in flight.

    Raises StorageFailed when a vote takes longer than `wait_s`.
    """
    deadline = time.monotonic() + wait_s
    while True:
        try:
            with ledger.log.together():
                remember_policy(ledger, policy.log)
                ledger.log.append("withdrawn")
            return
        except StorageFailed:
            if time.monotonic() > deadline:
                raise
