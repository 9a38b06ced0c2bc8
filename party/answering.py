"""The seats of a node: every approved study of its home, with ledger, teachers and the checks before each vote."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from jaxtyping import Float32, Int64
from numpy import ndarray

from party.home import Home
from party.lifetime import seats_of
from party.node import Seat
from party.party import Party
from party.policy import Policy
from party.pool import check_batch, read_pool
from party.private_file import PRIVATE_FILE, load_model
from party.settings import Settings
from party.teacher_process import TeacherProcess
from party.watermarks import check_ledger, remember_policy
from protocols.accounting.ledger import Ledger
from protocols.aggregation.dealing import precision_of
from protocols.aggregation.levels import ballot_of
from protocols.aggregation.private_ballot import PrivateModel
from protocols.errors import ConclaveError, DataCorrupt, DataUnavailable, InvalidInput, Refused, StorageFailed
from protocols.identity import PEM_BYTES, key_from_pem
from protocols.inference.fixed_point import QuantisedModel, quantise
from protocols.queries import QueryBatch
from protocols.randomness import system_source
from protocols.reading import read_bytes
from protocols.study import Study

_LOCK_WAIT_S: Final = 10.0
OnEvent = Callable[[str, dict[str, str | int]], None]


@dataclass(eq=False)
class _Voter:
    """Votes only while the study is approved: asked within the ledger's transaction, see `withdraw`.

    What a batch will cost is marked in the policy before its votes are handed out, see party.watermarks. pool: what
    queries are held against; None if the hospital was not sent it.
    """

    policy: Policy
    study: Study
    seat: str
    data_set: str
    ledger: Ledger
    path: Path
    teachers: TeacherProcess
    pool: Float32[ndarray, "queries ..."] | None = field(repr=False)
    _marked: int | None = None

    def __call__(self, batch: QueryBatch) -> Int64[ndarray, "teachers queries"]:
        self._check_approved()
        if self.pool is not None:
            check_batch(batch, self.pool)
        votes = self.teachers(batch)
        self._mark(batch)
        return votes

    def admit(self, batch: QueryBatch) -> None:
        """The same for votes of a private model, which no teacher is asked for: approved, and marked."""
        self._check_approved()
        self._mark(batch)

    def _check_approved(self) -> None:
        approval = self.policy.approval(self.study.digest, self.data_set)
        if approval is None or approval.withdrawn:
            raise Refused("withdrawn", f"study {self.study.name!r} was withdrawn at this node")

    def _mark(self, batch: QueryBatch) -> None:
        with self.policy.log.together():
            remember_policy(self.ledger, self.policy.log)
            balance = self.ledger.balance(self.seat)
            self.policy.marks.raise_to(
                self.path,
                number=batch.number,
                nano=self._cost(batch),
                left=balance.cap - balance.spent,
                failed=self._marked,
            )
        self._marked = batch.number

    def _cost(self, batch: QueryBatch) -> int:
        """The worst case of a batch: all queries in which the seat takes part are answered."""
        position = self.study.seats[self.seat]
        asked = int(self.study.participation.of(position).votes(batch.ids)[0].sum())
        return int(self.study.budgets.amount(asked, asked)[position])


class Answering:
    """Opens each approved seat once and keeps it. Use as a context manager."""

    def __init__(self, home: Home, settings: Settings, policy: Policy, *, party: str, on_event: OnEvent) -> None:
        self._home = home
        self._settings = settings
        self._policy = policy
        self._party = party
        self._on_event = on_event
        self._open: dict[tuple[bytes, str], tuple[Seat, TeacherProcess]] = {}

    def __enter__(self) -> Answering:
        """Raises Refused("policy_rolled_back")."""
        self._policy.check_newest(self._home.path)
        return self

    def __exit__(self, *error: object) -> None:
        for seat, teachers in self._open.values():
            teachers.close()
            seat.ledger.close()

    def seats(self) -> list[Seat]:
        """The seats that may vote now: approved by this home, not withdrawn. What cannot be opened is reported."""
        result = []
        for approval in self._policy.approvals():
            if approval.withdrawn or approval.home != str(self._home.path) or approval.party != self._party:
                continue
            try:
                study = self._home.study(approval.study)
                result += [self._seat(study, seat) for seat in seats_of(study, self._party)]
            except ConclaveError as error:
                self._on_event("study_failed", {"study": approval.study.hex()[:16], "reason": str(error)[:300]})
        return result

    def _seat(self, study: Study, name: str) -> Seat:
        known = self._open.get((study.digest, name))
        if known is not None:
            return known[0]
        assert study.terms is not None  # approve lets no other through
        teachers = TeacherProcess(
            self._home.teachers(study.digest, name),
            study=study.digest,
            deadline_s=study.terms.deadline_s,
            idle_s=self._settings.teachers.idle_s,
            on_event=self._on_event,
        )
        pool_file = self._home.pool(study.digest)
        pool = read_pool(pool_file, study.terms) if pool_file.exists() else None
        path = self._home.ledger(study.digest, name)
        check_ledger(path, self._policy.marks.of(path))
        ledger = Ledger(path)
        key = key_from_pem(read_bytes(self._home.key, most=PEM_BYTES)) if study.confidentiality.signs else None
        data_set = self._settings.data.name
        voter = _Voter(self._policy, study, name, data_set, ledger, path, teachers, pool)
        private = None
        if study.confidentiality.querier is not None:
            assert key is not None  # parties sign in such a study
            file = self._home.teachers(study.digest, name) / PRIVATE_FILE
            private = PrivateModel(lambda: _private_model(file, study, self._on_event), voter.admit, key)
        try:
            party = Party(
                name,
                study=study,
                ledger=ledger,
                voter=voter,
                coins_from=system_source if study.participation_name == "secret" else None,
                settles=self._settings.settle,
                on_failure=lambda why: self._on_event("could_not_vote", {"seat": name, "reason": why[:500]}),
                ballot=ballot_of(
                    study,
                    name,
                    ledger=ledger,
                    source=system_source,
                    key=key,
                    private=private,
                ),
            )
        except BaseException:
            ledger.close()
            raise
        seat = Seat(study, party, ledger)
        self._open[study.digest, name] = (seat, teachers)
        return seat


def _private_model(file: Path, study: Study, on_event: OnEvent) -> QuantisedModel:
    """The private model of a seat, as it answers. Raises Refused("no_teachers")."""
    try:
        return quantise(load_model(file), precision_of(study))
    except (DataUnavailable, DataCorrupt, InvalidInput) as error:
        # The reason names files of the hospital: it stays here.
        on_event("teachers_failed", {"code": "no_teachers", "reason": str(error)[:500]})
        raise Refused("no_teachers", "there is no private model of this study") from None


def withdraw(home: Home, policy: Policy, study: Study, *, data_set: str, party: str) -> dict[str, int]:
    """Ends a study at this node for ever and gives back what its ledgers never spent; what each seat spent.

    A vote in flight holds its ledger's transaction from before it looks at the approval until it is charged. So once
    the entry below is written, every later vote sees the withdrawal, and what was spent is final. Raises
    Refused("ledger_rolled_back") or ("policy_rolled_back") where that cannot be told: the study is then withdrawn, and
    its whole reservation stands.
    """
    policy.withdraw(study, data_set=data_set)
    policy.check_newest(home.path)
    spent = {}
    for seat in seats_of(study, party):
        path = home.ledger(study.digest, seat)
        wait_s = _LOCK_WAIT_S + (study.terms.deadline_s if study.terms else 0)
        recorded = _final_spend(path, seat, policy, wait_s=wait_s) if path.exists() else 0
        cap = int(study.budgets.cap[study.seats[seat]])
        spent[seat] = min(recorded + policy.marks.missing(path), cap)
    policy.release(study, data_set=data_set, spent=spent)
    return spent


def _final_spend(path: Path, seat: str, policy: Policy, *, wait_s: float) -> int:
    """What a ledger holds once no vote is in flight. Raises StorageFailed when one takes longer than `wait_s`."""
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
        balances = ledger.balances()
    return balances[seat].spent if seat in balances else 0
