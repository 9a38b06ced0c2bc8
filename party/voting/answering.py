"""The seats of a node: every approved study of its home, with ledger, teachers and the checks before each vote."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray

from party.budget.known_units import KnownUnits
from party.budget.policy import Approval, Policy
from party.budget.spending import seat_spent, what_was_spent
from party.budget.watermarks import Mark, check_believed, check_remembered, remember_policy
from party.connection.seat import ServedSeat
from party.data.queries import check_batch, read_pool_queries
from party.home import PartyHome
from party.lifetime import seats_of
from party.party import Party
from party.settings import PartySettings
from party.voting.contribution import KeptVotes
from party.voting.teacher_process import TeacherProcess
from party.voting.trained import PRIVATE_FILE, keep_measured, load_model
from protocols.crypto.randomness import system_source
from protocols.errors import ConclaveError, DataCorrupt, DataUnavailable, InvalidInput, Refused
from protocols.labelling.coordinator import AGAIN
from protocols.ledger.ledger import Ledger
from protocols.levels.hidden_queries.dealing import precision_of
from protocols.levels.hidden_queries.inference.model import QuantisedModel, quantise
from protocols.levels.table import Means, ballot_of
from protocols.refusals.code import Code
from protocols.study.deployed import DeployedStudy
from protocols.study.queries import QueryBatch
from protocols.study.votes import TeacherVotes, UnitSums, Votes

# How often it is looked at whether to stop waiting for teachers.
_LOOK_S = 0.1
OnEvent = Callable[[str, dict[str, str | int]], None]


@dataclass(eq=False)
class _Voter:
    """Votes only while the study is approved: checked within the ledger's transaction, see `withdraw`.

    source: of the votes, the teachers or what the records' votes came to; pool: the study's queries, to compare batches
    with; None if the hospital was not sent them.
    """

    policy: Policy
    study: DeployedStudy
    seat: str
    data_set: str
    ledger: Ledger
    source: TeacherProcess | KeptVotes
    pool: Float32[ndarray, "queries ..."] | None = field(repr=False)

    def __call__(self, batch: QueryBatch) -> Int64[ndarray, "teachers queries"]:
        self.admit(batch)
        if self.pool is not None:
            check_batch(batch, self.pool, rows=self.study.votes.asks.rows)
        return self.study.votes.asks.voted(batch, self.source)

    def admit(self, batch: QueryBatch) -> None:
        """Raises Refused unless the batch may be charged, also for a private model, for which no teacher is asked."""
        self.check_approved()
        check_believed(self.ledger, self._mark, seat=self.seat)
        check_remembered(self.ledger, self.policy.log)

    def anchor(self) -> None:
        """Records in the policy all that the ledger charged, before any reply leaves (party.budget.watermarks).

        Records' votes that the ledger holds are then no longer kept outside it. A level may have steps before them.

        Runs outside the ledger's transaction; calling it again changes nothing. Raises Refused("not_approved"),
        ("withdrawn"), ("ledger_rolled_back"), ("policy_rolled_back"), or StorageFailed: then the charge stands, and no
        reply may leave.
        """
        known = self._mark
        check_believed(self.ledger, known, seat=self.seat)
        reached = Mark(self.ledger.log.head(), self.ledger.ever_reserved(self.seat))
        with self.policy.log.together():
            self.check_approved()
            if reached.head != known.head:
                self.policy.marks.move(
                    self.study.digest, data_set=self.data_set, seat=self.seat, known=known, to=reached
                )
        remember_policy(self.ledger, self.policy.log)
        if isinstance(self.source, KeptVotes) and reached.reserved > 0:
            self.source.forget(judged=self.ledger.stored(AGAIN) is not None)

    @property
    def _mark(self) -> Mark:
        return self.policy.marks.of(self.study.digest, data_set=self.data_set, seat=self.seat)

    def check_approved(self) -> None:
        """Raises Refused("not_approved"), ("withdrawn") unless the study is approved here now, for this data set."""
        approval = self.policy.approval(self.study.digest, self.data_set)
        if approval is None:
            raise Refused(
                Code.NOT_APPROVED, f"study {self.study.name!r} is not approved for the data set that node.toml names"
            )
        if approval.withdrawn:
            raise Refused(Code.WITHDRAWN, f"study {self.study.name!r} was withdrawn at this node")


class Answering:
    """Opens each approved seat once and keeps it. Use as a context manager.

    Teachers are loaded when the node starts; their process ends after teachers.idle_s seconds without a request, so an
    idle node holds no teachers.
    """

    def __init__(
        self, home: PartyHome, settings: PartySettings, policy: Policy, *, party: str, on_event: OnEvent
    ) -> None:
        self._home = home
        self._settings = settings
        self._policy = policy
        self._party = party
        self._on_event = on_event
        self._open: dict[tuple[bytes, str], tuple[ServedSeat, TeacherProcess | KeptVotes]] = {}
        self._warmed: set[tuple[bytes, str]] = set()
        self._warming: threading.Thread | None = None

    def __enter__(self) -> Answering:
        """Raises Refused("policy_rolled_back"), StorageFailed."""
        doubt = what_was_spent(self._home, self._policy).doubt
        if doubt is not None:
            raise doubt
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
        if self._warming is not None:
            self._warming.join()
        for seat, _ in self._open.values():
            seat.ledger.close()

    def stop(self) -> None:
        """Ends all teachers' processes, and refuses votes that wait for them."""
        for _, source in list(self._open.values()):
            source.close()

    def end_withdrawn(self) -> None:
        """Ends the teachers' processes of withdrawn studies, and refuses votes that wait for them."""
        for (study, _), (_, source) in list(self._open.items()):
            approval = self._policy.approval(study, self._settings.data.name)
            if approval is None or approval.withdrawn:
                source.close()

    def warm(self, seats: Sequence[ServedSeat], *, until: threading.Event | None = None) -> None:
        """Loads the teachers of seats, each once in the node's life, and measures how long a whole batch takes them.

        Returns when they were loaded, or soon after `until` is set; the measuring goes on, and a question takes its
        place. The time is kept beside the teachers, for `doctor`; one that is too long for the study's deadline is
        logged (`deadline_short`).

        Studies are loaded one after another: a process that was not asked to vote is ended before the next study is
        loaded, so only one study's teachers and those at work are in memory. The last study's stay for teachers.idle_s.
        """
        studies: dict[bytes, list[_Trial]] = {}
        for seat in seats:
            key = seat.study.digest, seat.party.name
            source = self._open[key][1]
            # Hidden queries and record votes ask no teacher.
            silent = key in self._warmed or seat.study.confidentiality.asked_by != ""
            if isinstance(source, TeacherProcess) and not silent:
                self._warmed.add(key)
                folder = self._home.teachers(*key)
                studies.setdefault(seat.study.digest, []).append(_Trial(source, self._trial_of(seat.study), folder))
        if studies:
            loaded = threading.Event()
            waits = (self._warming, list(studies.values()), loaded)
            self._warming = threading.Thread(target=_warm, args=waits, name="warming", daemon=True)
            self._warming.start()
            while not loaded.wait(_LOOK_S) and not (until is not None and until.is_set()):
                pass

    def _trial_of(self, study: DeployedStudy) -> QueryBatch:
        """As many queries as a batch may have: the pool's first, or zeros if the hospital was not sent the pool."""
        ids = np.arange(min(study.batch_limit // study.votes.asks.rows, study.terms.pool_size))
        file = self._home.pool(study.digest)
        shape = (len(ids), *study.terms.input_shape)
        inputs = read_pool_queries(file, study.terms)[ids] if file.exists() else np.zeros(shape, np.float32)
        return QueryBatch(0, ids, inputs)

    def seats(self) -> list[ServedSeat]:
        """The seats that may vote now: approved by this home and not withdrawn. A seat that cannot be opened is logged
        and left out."""
        result = []
        for approval in self._policy.own_approvals(self._home):
            if approval.withdrawn or approval.party != self._party:
                continue
            try:
                study = self._home.study(approval.study)
                names = seats_of(study, self._party)
            except ConclaveError as error:
                self._failed(approval.study, error)
                continue
            for name in names:
                try:
                    result.append(self._seat(approval, study, name))
                except ConclaveError as error:  # the party's other groups continue
                    self._failed(approval.study, error)
        return result

    def _failed(self, study: bytes, error: ConclaveError) -> None:
        said = f"{str(error)[:300]}; run: conclave-party doctor"
        self._on_event("study_failed", {"study": study.hex()[:16], "reason": said})

    def _seat(self, approval: Approval, study: DeployedStudy, name: str) -> ServedSeat:
        known = self._open.get((study.digest, name))
        if known is not None:
            return known[0]
        source = self._source(study, name)
        pool_file = self._home.pool(study.digest)
        pool = read_pool_queries(pool_file, study.terms) if pool_file.exists() else None
        doubt = seat_spent(self._home, self._policy, approval, study, name).doubt
        if doubt is not None:
            raise doubt
        ledger, data_set = Ledger(self._home.ledger(study.digest, name)), self._settings.data.name
        voter = _Voter(self._policy, study, name, data_set, ledger, source, pool)
        file = self._home.teachers(study.digest, name) / PRIVATE_FILE

        def load() -> QuantisedModel:
            voter.check_approved()  # with a withdrawal the model was deleted
            return _private_model(file, study, self._on_event)

        means = Means(key=self._home.open_key, load=load, admit=voter.admit)
        try:
            party = Party(
                name,
                study=study,
                ledger=ledger,
                voter=voter,
                coins_from=system_source if study.secret_coins else None,
                settles=self._settings.settle is True,
                on_failure=lambda why: self._on_event("could_not_vote", {"seat": name, "reason": why[:500]}),
                ballot=ballot_of(study, name, ledger=ledger, source=system_source, means=means),
            )
        except BaseException:
            ledger.close()
            raise
        seat = ServedSeat(study, party, ledger, voter.anchor)
        self._open[study.digest, name] = (seat, source)
        return seat

    def _source(self, study: DeployedStudy, name: str) -> TeacherProcess | KeptVotes:
        """Where a seat's votes come from."""

        def on_event(event: str, fields: dict[str, str | int]) -> None:
            self._on_event(event, {"study": study.name, "seat": name, **fields})

        source = _SOURCES[type(study.votes)]
        return source(self._home, self._settings, study, name, on_event, self._policy.known)


@dataclass(frozen=True)
class _Trial:
    """Teachers, the batch on which their time is measured, and the folder in which it is kept."""

    teachers: TeacherProcess
    batch: QueryBatch = field(repr=False)
    folder: Path


def _warm(earlier: threading.Thread | None, studies: list[list[_Trial]], loaded: threading.Event) -> None:
    """Sets `loaded` as soon as the teachers of the last study are; those of the others were, and were measured."""
    try:
        if earlier is not None:
            earlier.join()
        before: list[_Trial] = []
        for seats in studies:
            for each in before:
                each.teachers.rest()
            for each in seats:
                each.teachers.warm()
            if seats is studies[-1]:
                loaded.set()
            for each in seats:
                took_s = each.teachers.measure(each.batch)
                if took_s is not None:
                    keep_measured(each.folder, queries=len(each.batch.ids), seconds=took_s)
            before = seats
    finally:
        loaded.set()


def _private_model(file: Path, study: DeployedStudy, on_event: OnEvent) -> QuantisedModel:
    """The private model of a seat, in the fixed point in which it answers. Raises Refused("no_teachers")."""
    try:
        return quantise(load_model(file), precision_of(study))
    except (DataUnavailable, DataCorrupt, InvalidInput) as error:
        # The reason names files of the hospital, so it is not sent.
        on_event("teachers_failed", {"code": Code.NO_TEACHERS, "reason": str(error)[:500]})
        raise Refused(Code.NO_TEACHERS, "there is no private model of this study") from None


def _teacher_process(
    home: PartyHome, settings: PartySettings, study: DeployedStudy, name: str, on_event: OnEvent, known: KnownUnits
) -> TeacherProcess:
    return TeacherProcess(
        home.teachers(study.digest, name),
        study=study.digest,
        deadline_s=study.terms.deadline_s,
        idle_s=settings.teachers.idle_s,
        stalled_s=settings.teachers.stalled_s,
        on_event=on_event,
    )


def _kept_votes(
    home: PartyHome, settings: PartySettings, study: DeployedStudy, name: str, on_event: OnEvent, known: KnownUnits
) -> KeptVotes:
    return KeptVotes(
        home.contribution(study.digest, name),
        study=study,
        kept_judges=home.judges(study.digest, name),
        seat=name,
        judges=partial(known.judges, study.digest, name),
        speak=partial(known.speak, study.digest, name),
        on_event=on_event,
    )


_SOURCES: dict[
    type[Votes],
    Callable[[PartyHome, PartySettings, DeployedStudy, str, OnEvent, KnownUnits], TeacherProcess | KeptVotes],
] = {TeacherVotes: _teacher_process, UnitSums: _kept_votes}
