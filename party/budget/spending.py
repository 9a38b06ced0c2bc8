"""What was spent, and whether it can be proved: one answer, for the node, its page, doctor, show, approve and verify.

A ledger shows what its seat spent while it and policy.sqlite hold what each knows of the other
(party.budget.watermarks). Otherwise there is a bound:

- A ledger that is missing, unreadable or older, beside a policy that no ledger contradicts: at most all that it ever
  reserved, which the policy's mark says. A ledger is made before its study is approved, so a missing one was removed.
- A policy that is missing or older: nobody knows. At least what the ledgers that are here show.

Withdrawing a study ends it at this node for ever; what it did not spend returns to the lifetime cap.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from party.budget.policy import Approval, Policy
from party.budget.watermarks import check_believed, remember_policy, rolled_back
from party.home import PartyHome
from party.lifetime import LifetimeUse, seats_of
from protocols.errors import ConclaveError, Refused, StorageFailed
from protocols.ledger.amount import Amount
from protocols.ledger.ledger import Balance, Ledger
from protocols.plural import at_least, at_most
from protocols.refusals.code import Code
from protocols.study.deployed import DeployedStudy
from protocols.study.file import read_deployed


class Exactness(StrEnum):
    """How a figure compares with what was really spent."""

    EXACT = "exactly"
    AT_MOST = "at most"
    AT_LEAST = "at least"


# Why what was spent cannot be proved.
Doubt = Refused | StorageFailed


def code_of_doubt(doubt: Doubt) -> str:
    """The code of a doubt, whose meaning has the next step."""
    return doubt.code if isinstance(doubt, Refused) else Code.STORAGE_FAILED


def bounded(value: float, bound: Exactness) -> str:
    """A figure in words, with the bound that it is, if it is one: "5.978", "at most 8.391"."""
    if bound is Exactness.AT_LEAST:
        return f"not known: at least {at_least(value)}"
    return at_most(value) if bound is Exactness.EXACT else f"at most {at_most(value)}"


@dataclass(frozen=True)
class Spending:
    """answers_left: queries that the rest of the cap affords if all are answered; epsilon_used: for monitoring, not a
    guarantee; epsilon_cap: guaranteed, for the unit, at delta."""

    answers_left: int
    epsilon_used: float
    epsilon_cap: float
    delta: float


def spending(study: DeployedStudy, seat: str, spent: int) -> Spending:
    """What a seat has spent. spent: settled and reserved, in the unit of its cap."""
    at = study.seats[seat]
    used = np.zeros(len(study.roster), np.int64)
    used[at] = spent
    return Spending(
        answers_left=int(study.budgets.affordable(used, limit=study.query_limit)[at]),
        epsilon_used=float(study.budgets.readings(np.array([float(spent)]), np.array([at]))[0]),
        epsilon_cap=float(study.budgets.epsilon_guaranteed[at]),
        delta=study.roster[at].delta,
    )


@dataclass(frozen=True)
class SeatSpent:
    """What one seat of an approved study has spent.

    spent: settled and reserved, exactly or as the bound says; settled: of it, what is settled; asked: queries;
    unsettled: batches; doubt: why it is not exact, None where it is.
    """

    approval: Approval
    study: DeployedStudy
    seat: str
    spent: Amount
    settled: Amount
    asked: int = 0
    unsettled: int = 0
    bound: Exactness = Exactness.EXACT
    doubt: Doubt | None = None

    @property
    def proven(self) -> bool:
        """Whether its ledger shows it."""
        return self.bound is Exactness.EXACT

    @property
    def shown(self) -> Spending:
        """As people read it."""
        return spending(self.study, self.seat, self.spent)

    @property
    def answers_left(self) -> int:
        """Queries that the seat may still answer; the budget may afford more than the study has left to ask."""
        if self.approval.withdrawn or not self.proven:
            return 0
        return min(self.shown.answers_left, self.study.query_limit - self.asked)


@dataclass(frozen=True)
class HomeSpent:
    """What the studies of a home have spent. lost: approvals whose study's file is lost, and why it is not read; doubt:
    why policy.sqlite is not believed, None where it is."""

    seats: tuple[SeatSpent, ...]
    lost: tuple[tuple[Approval, Doubt], ...]
    lifetime: tuple[LifetimeUse, ...]
    doubt: Doubt | None

    @property
    def bound(self) -> Exactness:
        """Of the lifetime caps: a study that runs has reserved all that it may spend, so only a policy can be wrong."""
        return Exactness.AT_LEAST if isinstance(self.doubt, Refused) else Exactness.EXACT

    def doubts(self, study: bytes | None = None) -> list[Doubt]:
        """Why what is spent cannot be proved, of every study or one; what was withdrawn is charged as it is bounded."""
        return [
            *([self.doubt] if self.doubt is not None else []),
            *(each.doubt for each in self.seats if each.doubt is not None and _counts(each.approval, study)),
            *(why for approval, why in self.lost if _counts(approval, study)),
        ]

    def check(self, study: bytes | None = None) -> None:
        """Raises the first of `doubts`."""
        for doubt in self.doubts(study):
            raise doubt


def what_was_spent(
    home: PartyHome, policy: Policy, *, opened: Mapping[tuple[bytes, str], Ledger] | None = None
) -> HomeSpent:
    """What was spent at a home, and what cannot be proved of it. opened: ledgers that are open, by study and seat."""
    doubt: Doubt | None = None
    try:
        policy.check_newest(home.path)
    except (Refused, StorageFailed) as error:
        doubt = error
    forgets = isinstance(doubt, Refused)
    seats: list[SeatSpent] = []
    lost: list[tuple[Approval, Doubt]] = []
    approvals = policy.own_approvals(home)
    for approval in approvals:
        try:
            study = home.study(approval.study)
        except ConclaveError as error:
            what = f"the file of study {approval.name!r} cannot be read: {error}"
            advice = (
                "if the folder was moved, move it back; otherwise get the file from the operator and approve it again, "
                "or run: conclave-party home repair"
            )
            lost.append((approval, StorageFailed(f"{what}; {advice}")))
            continue
        for seat in seats_of(study, approval.party):
            ledger = (opened or {}).get((study.digest, seat))
            seats.append(seat_spent(home, policy, approval, study, seat, ledger=ledger, forgets=forgets))
    if forgets:
        for approval, study, seat in _forgotten(home, {each.study for each in approvals}):
            seats.append(seat_spent(home, policy, approval, study, seat, forgets=True))
    return HomeSpent(tuple(seats), tuple(lost), tuple(policy.lifetime_uses()), doubt)


def seat_spent(
    home: PartyHome, policy: Policy, approval: Approval, study: DeployedStudy, seat: str, *,
    ledger: Ledger | None = None, forgets: bool = False,
) -> SeatSpent:  # fmt: skip
    """What one seat has spent. ledger: its own, if it is open here; forgets: whether policy.sqlite is not believed."""
    # The mark first: a vote in flight may move it on, and the ledger with it, but neither goes back.
    mark = policy.marks.of(study.digest, data_set=approval.data_set, seat=seat)
    doubt: Doubt | None = None
    cap = study.budgets.tagged_one(study.budgets.cap, study.seats[seat])
    balance, unsettled, asked = Balance(cap, cap - cap, cap - cap), 0, 0
    path = home.ledger(study.digest, seat)
    try:
        if not path.exists():
            raise rolled_back(seat, mark)
        with nullcontext(ledger) if ledger is not None else Ledger(path) as own:
            balance = own.balances().get(seat, balance)
            unsettled, asked = len(own.unsettled()), own.asked()
            check_believed(own, mark, seat=seat)
    except (Refused, StorageFailed) as error:
        doubt = error
    bound, spent = Exactness.EXACT, balance.spent
    if forgets:
        bound = Exactness.AT_LEAST
    elif doubt is not None:
        whole = approval.withdrawn and policy.forfeits.reason(approval.data_set) is not None
        bound, spent = Exactness.AT_MOST, cap if whole else min(Amount(mark.reserved, cap.unit), cap)
    return SeatSpent(approval, study, seat, spent, min(balance.settled, spent), asked, unsettled, bound, doubt)


def _counts(approval: Approval, study: bytes | None) -> bool:
    return not approval.withdrawn and study in (None, approval.study)


def _forgotten(home: PartyHome, known: set[bytes]) -> Iterator[tuple[Approval, DeployedStudy, str]]:
    """The seats whose ledgers are here, of studies that policy.sqlite does not know."""
    for path in sorted((home.path / "studies").glob("*/study.toml")):
        try:
            study = read_deployed(path)
        except ConclaveError:
            continue
        for seat in study.seats if study.digest not in known else ():
            if home.ledger(study.digest, seat).exists():
                place = str(home.path)
                yield Approval(study.digest, "", home.identity, place, seat, study.name, False, False), study, seat


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
    policy.release(study, data_set=data_set, home=home, spent={seat: each.spent for seat, each in final.items()})
    forget_study(home, study, party)
    return final


def forget_study(home: PartyHome, study: DeployedStudy, party: str) -> None:
    """Deletes what was made of this hospital's records for a study: teachers and votes. Raises StorageFailed."""
    for seat in seats_of(study, party):
        home.forget_votes(study.digest, seat)
        home.forget_teachers(study.digest, seat)


def check_not_withdrawn(home: PartyHome, policy: Policy, study: DeployedStudy, *, data_set: str, party: str) -> None:
    """To be called once something was made of records for a study: deletes it if the study was withdrawn meanwhile, as
    the withdrawal may have looked before it was there. Raises Refused("withdrawn"), StorageFailed."""
    approval = policy.approval(study.digest, data_set)
    if approval is not None and approval.withdrawn:
        forget_study(home, study, party)
        raise Refused(Code.WITHDRAWN, f"study {study.name!r} was withdrawn meanwhile; what was made for it is deleted")


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
