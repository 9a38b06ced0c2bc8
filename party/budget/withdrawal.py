"""Withdrawing a study: it ends at this node for ever, and what it did not spend returns to the lifetime cap."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from party.budget.policy import Policy
from party.budget.watermarks import Mark, believed, remember_policy
from party.home import PartyHome
from party.lifetime import seats_of
from protocols.errors import StorageFailed
from protocols.ledger.ledger import Ledger
from protocols.study.deployed import DeployedStudy

_LOCK_WAIT_S: Final = 10.0


@dataclass(frozen=True)
class FinalSpend:
    """What a seat of a withdrawn study has finally spent, in nano-units.

    proven: whether its ledger shows it. If not (it is missing, or not the newest), everything that it ever reserved
    counts as spent.
    """

    nano: int
    proven: bool


def withdraw(
    home: PartyHome, policy: Policy, study: DeployedStudy, *, data_set: str, party: str
) -> dict[str, FinalSpend]:
    """Ends a study at this node for ever and gives back what its ledgers did not spend; returns what each seat spent.

    A vote in flight holds its ledger's transaction from before it looks at the approval until it is charged. So once
    the entry below is written, every later vote sees the withdrawal, and what was spent is final. Raises
    Refused("approved_elsewhere") for another home's study, ("policy_rolled_back") if what was spent is unknown; then
    nothing has changed. What was made of records for the study (teachers, the sum of records' votes) is deleted; its
    terms, ledgers and signed evidence stay.
    """
    policy.check_newest(home.path)
    policy.withdraw(study, data_set=data_set, home=home)
    wait_s = _LOCK_WAIT_S + study.terms.deadline_s
    final = {}
    for seat in seats_of(study, party):
        path = home.ledger(study.digest, seat)
        shown = _shown(path, study.digest, seat, policy, data_set=data_set, wait_s=wait_s) if path.exists() else None
        known = policy.marks.of(study.digest, data_set=data_set, seat=seat)
        cap = int(study.budgets.cap[study.seats[seat]])
        final[seat] = shown or FinalSpend(min(known.reserved, cap), proven=known == Mark())
    policy.release(study, data_set=data_set, home=home, spent={seat: each.nano for seat, each in final.items()})
    forget_study(home, study, party)
    return final


def forget_study(home: PartyHome, study: DeployedStudy, party: str) -> None:
    """Deletes what was made of this hospital's records for a study: teachers and votes. Raises StorageFailed."""
    for seat in seats_of(study, party):
        home.forget_votes(study.digest, seat)
        home.forget_teachers(study.digest, seat)


def _shown(path: Path, study: bytes, seat: str, policy: Policy, *, data_set: str, wait_s: float) -> FinalSpend | None:
    """What a ledger shows once no vote is in flight; None if it is not the newest.

    Raises StorageFailed when a vote takes longer than `wait_s`.
    """
    deadline = time.monotonic() + wait_s
    with Ledger(path) as ledger:
        while True:
            try:
                with ledger.log.together():
                    remember_policy(ledger, policy.log)
                    ledger.log.append("withdrawn")
                break
            except StorageFailed:
                if time.monotonic() > deadline:
                    raise
        # The policy knows by now what left the node: a vote is anchored only while its study is approved.
        if not believed(ledger, policy.marks.of(study, data_set=data_set, seat=seat)):
            return None
        balances = ledger.balances()
    return FinalSpend(balances[seat].spent if seat in balances else 0, proven=True)
