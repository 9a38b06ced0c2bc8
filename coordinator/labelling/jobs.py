"""Running a labelling to its end: asking, waiting for missing and late parties, continuing after a stop.

Everything that must survive a crash is in the study's ledger. An interrupted job is run again from the start: what was
released is released again as stored, and what was asked is asked again unchanged.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from coordinator.connection.sessions import Connected
from coordinator.labelling.late_seats import LATE, NOT_HERE, LateSeats, StillAway
from coordinator.labelling.study_creation import stored_inputs, stored_pool
from coordinator.labelling.training import first_student
from coordinator.queries import choice_between_batches
from coordinator.store.store import Job, JobState, Store, ledger_path
from protocols.crypto.channel import Channel
from protocols.crypto.randomness import system_source
from protocols.errors import ChannelClosed, ConclaveError, InvalidInput, Refused, StorageFailed
from protocols.labelling.coordinator import AGAIN, Coordinator, Labelling, TrainStudent
from protocols.labelling.schedule import STOP_MEANINGS, StopReason
from protocols.ledger.ledger import Ledger
from protocols.levels.level import Aggregation, Counted, ReservedBatch, code_of
from protocols.levels.table import aggregation_of
from protocols.plural import counted, some
from protocols.reading import read_bytes
from protocols.refusals.code import Code
from protocols.refusals.table import meaning_of
from protocols.release.sums import QUERIES_FILE
from protocols.study.deployed import DeployedStudy
from protocols.study.queries_file import read_blocks
from protocols.study.study import Study, party_of
from protocols.sums.residuals import FirstScores
from protocols.wire.messages import Outcome, Refusal, Reply, Request, Settled, Transport
from runtime.files import write_atomically
from runtime.logs import Event
from runtime.printing import without_flags


class JobProgress:
    """Counts what a labelling releases, and records each increase with the job. noting: what to say of it, in words."""

    def __init__(self, store: Store, job: Job, *, noting: Callable[[], str]) -> None:
        self._store = store
        self._noting = noting
        self._job = store.job(job.study) or job
        self.moved = False

    def on_batch(self, batches: Sequence[tuple[int, int]]) -> None:
        """Records what is released so far: size and answered queries of each batch."""
        asked, answered = (sum(column) for column in zip(*batches, strict=True))
        if asked > self._job.asked:
            self.moved = True
            self._store.advance_job(
                self._job.number, batches=len(batches), asked=asked, answered=answered, message=self._noting()
            )


_MODEL_BYTES = 2**31
_FIRST_WAIT_S, _LONGEST_WAIT_S, _LOOK_S = 1.0, 60.0, 0.1
# Between two looks for the seats of a study that is asked once, in seconds: an operator may decide meanwhile.
_LONGEST_LOOK_S = 2.0
# A round that lasts longer reports what it waits for.
_SAY_AFTER_S = 1.0


class OpensStudies(Protocol):
    """The part of a hub that labelling needs."""

    def open_study(
        self, study: DeployedStudy, ledger: Ledger, *, outcome_for: Callable[[str, bytes], Outcome | None] | None = None
    ) -> Transport:
        """A transport to the nodes of the study."""

    def go_on_without(self, study: DeployedStudy, seats: Collection[str]) -> None:
        """Tells these seats, now or when they connect, that the operator does without them."""

    def connected(self) -> Mapping[str, Connected]:
        """The parties that are connected now."""


class Guardians(Protocol):
    """How guardians of studies of level two_server are reached."""

    def dial(self, study: DeployedStudy) -> AbstractContextManager[Channel]:
        """A channel to the study's guardian for one batch."""

    def check(self, study: DeployedStudy) -> None:
        """Raises ChannelClosed if the guardian cannot be reached, Refused or InvalidInput if it is not the study's."""


class Stopped(Exception):
    """Serve is stopping: what was asked stays reserved, and the next serve continues."""


class Missed(Exception):
    """Seats were late for so many batches that the operator decides. missed: how many, by seat."""

    def __init__(self, study: str, missed: Mapping[str, int]) -> None:
        named = ", ".join(f"{seat} ({counted(times, 'batch')})" for seat, times in missed.items())
        super().__init__(
            f"late for this many batches, released without them but perhaps charged to them: {named}. To continue "
            f"without them for good: resume {study} {without_flags(missed)}; to ask them as before: resume {study}"
        )


class ServedStudy:
    """A study that serve has open: tells nodes the outcomes they missed, and runs its jobs, one at a time."""

    def __init__(
        self,
        store: Store,
        name: str,
        hub: OpensStudies,
        *,
        guardians: Guardians | None,
        stop: threading.Event,
        on_event: Event,
    ) -> None:
        """Opens the study's ledger. guardians: how guardians are reached, None if none can be.

        Raises InvalidInput if the study's file was changed or its guardian has no address, and StorageFailed.
        """
        self.name = name
        self.study = store.study(name)
        self._store = store
        self._hub = hub
        self._guardians = guardians
        self._stop = stop
        self._on_event = on_event
        aggregation = aggregation_of(
            self.study, source=system_source, dial=None if guardians is None else partial(guardians.dial, self.study)
        )
        self._ledger = Ledger(ledger_path(store.home, name))
        self._coordinator = Coordinator(
            self.study,
            ledger=self._ledger,
            aggregation=_Noted(aggregation, self._counted),
            exchange=self._exchange,
            run=os.urandom(16),
        )
        self._send = hub.open_study(self.study, self._ledger, outcome_for=self._coordinator.outcome_for)
        # Why each seat was left out of the last batch.
        self._left_out: dict[str, str] = {}
        self._late = self._late_seats(patience_s=0.0)
        # The seats that were told that the operator does without them.
        self._told = frozenset[str]()
        self._not_asked()

    def close(self) -> None:
        """Closes the ledger."""
        self._ledger.close()

    def run(self, job: Job, *, patience_s: float) -> None:
        """Runs a job to its end, or until serve stops. Raises StorageFailed: the job is still open then."""
        try:
            self._store.start_job(job.number)
            self._late = self._late_seats(patience_s=patience_s)
            self._on_event("job_started", {"study": self.name, "job": job.number})
            labelling, message = self._label(job, patience_s)
        except Stopped:
            self._on_event("job_interrupted", {"study": self.name, "job": job.number})
            return
        except StorageFailed:
            raise
        except ConclaveError as error:
            reason = str(error)
            if isinstance(error, Refused) and error.code == Code.COORDINATOR_ROLLED_BACK:
                reason = f"{reason}; {meaning_of(error.code).next_step}, then run resume {self.name}"
            self._store.end_job(job.number, "failed", reason, self._so_far("failed"))
            self._on_event("job_failed", {"study": self.name, "job": job.number, "reason": reason})
            return
        state: JobState = "stopped" if message else "finished"
        ended = message or STOP_MEANINGS[labelling.stop.reason]
        said = "; ".join(filter(None, (ended, self._late.summary(), self._unheard(), self._of_pool(labelling))))
        self._store.end_job(job.number, state, said, labelling)
        self._on_event(
            "job_ended", {"study": self.name, "job": job.number, "state": state, "code": labelling.stop.reason}
        )

    def _unheard(self) -> str:
        """In words: the seats without which batches were released, though they were not late, and why; "" if none."""
        faults = [each for each in self._store.faults(self.name) if each.code not in LATE]
        paid = {number: self._ledger.settled(number) for number in {each.number for each in faults}}
        batches: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
        for each in faults:
            if paid[each.number] and not paid[each.number].get(each.seat):
                batches[each.seat, each.code].add(each.number)
        found = [f"{seat} in {counted(len(of), 'batch')} ({code})" for (seat, code), of in sorted(batches.items())]
        return f"released without {some(found)}" if found else ""

    def _of_pool(self, labelling: Labelling) -> str:
        """What the released sums say against the pool; "" if nothing, or if it cannot be worked out here."""
        if labelling.cells is None:
            return ""
        from coordinator.labelling.soft_labels import pool_beside, pool_facts, pool_words  # slow to import

        folder = self._store.home.study(self.name)
        try:
            queries, pool = read_blocks(folder / QUERIES_FILE, self.study), stored_pool(folder / "pool.npy", self.study)
            found = pool_beside(self.study, labelling.cells, queries, pool, charged=self._ledger.settled(0))
        except ConclaveError:  # the labelling has ended; `release` reads the same files, and says what they lack
            return ""
        return pool_words(pool_facts(found, pool), self.study.terms.features)

    def _label(self, job: Job, patience_s: float) -> tuple[Labelling, str]:
        """The labelling, and why it stopped before its end ("" if it did not)."""
        pool = stored_inputs(self._store.home.study(self.name) / "pool.npy", self.study)
        train = self._train(job, pool)
        choose = choice_between_batches(self.study.votes.questions, np.asarray(pool), columns=self.study.terms.features)
        if away := self._wait_for_all(job, patience_s):
            return self._so_far("quorum_lost"), self._without_or_back(away, "connect with the study approved")
        wait_s, waited_from = _FIRST_WAIT_S, None
        while True:
            progress = JobProgress(self._store, job, noting=self._late.left_out)

            def on_batch(batches: Sequence[tuple[int, int]], progress: JobProgress = progress) -> None:
                progress.on_batch(batches)
                self._check_misses()

            labelling = None
            if self._guardian_is_there():
                try:
                    labelling = self._coordinator.label(
                        pool, train=train, choose=choose, on_batch=on_batch, without=self._not_asked
                    )
                    stop = labelling.stop
                    good = stop.reason != "guardian_lost" and (stop.reason != "quorum_lost" or stop.exhausted.any())
                    asked = good and self._asked_again(labelling)
                except StillAway as still:
                    return self._so_far("quorum_lost"), self._without_or_back(still.seats, "answer")
                except Missed as missed:
                    return self._so_far("missed"), str(missed)
                if good:
                    if asked:
                        return labelling, ""
                    lost: StopReason = "quorum_lost" if self._left_out else "guardian_lost"
                    labelling = replace(labelling, stop=replace(stop, reason=lost))
            if progress.moved or waited_from is None:
                wait_s, waited_from = _FIRST_WAIT_S, time.monotonic()
            late = time.monotonic() - waited_from > patience_s
            if labelling is None or labelling.stop.reason == "guardian_lost":
                guardian = self.study.confidentiality.second_server
                if late:
                    said = f"the guardian {guardian} did not answer; {_back_or_never('it is', self.name)}"
                    return labelling or self._so_far("guardian_lost"), said
                self._store.say_job(job.number, f"waiting for the guardian {guardian}")
                self._on_event("waiting", {"study": self.name, "seats": guardian, "quorum": self.study.quorum})
                self._wait(set(), wait_s)
                wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
                continue
            missing = sorted(seat for seat, code in self._left_out.items() if code in NOT_HERE)
            refusing = {seat: code for seat, code in self._left_out.items() if code not in NOT_HERE}
            able = len(self.study.roster) - len({*refusing, *self._not_asked()})
            if not missing or able < self.study.quorum:
                said = ", ".join(f"{seat} ({code})" for seat, code in sorted(refusing.items()))
                return labelling, f"too few parties answer: {said} refuse; fix that, then run resume {self.name}"
            named = ", ".join(f"{seat} (late)" if self._left_out[seat] in LATE else seat for seat in missing)
            if late:
                came = "answer" if "(late)" in named else "connect"
                return labelling, f"{named} did not {came}; {_back_or_never('they are', self.name)}"
            self._store.say_job(job.number, f"waiting for {named}; quorum {self.study.quorum}")
            self._on_event("waiting", {"study": self.name, "seats": ",".join(missing), "quorum": self.study.quorum})
            self._wait({party_of(seat) for seat in missing}, wait_s)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    def _without_or_back(self, away: Sequence[str], did_not: str) -> str:
        """What to do where a study that is asked once still lacks these seats."""
        return (
            f"{', '.join(away)} did not {did_not}, and this study is asked once. Once they are back: resume "
            f"{self.name}; to do without them, for ever: resume {self.name} {without_flags(away)}"
        )

    def _done_without(self) -> list[str]:
        """The seats that the operator does without, and those that withdrew."""
        job, withdrawn = self._store.job(self.name), self._store.withdrawals.of(self.name)
        without = () if job is None else job.without
        return [seat.party for seat in self.study.roster if seat.party in without or party_of(seat.party) in withdrawn]

    def _not_asked(self) -> Sequence[str]:
        """The seats of which no new batch is asked: the operator does without them, and they are told so."""
        job = self._store.job(self.name)
        seats = () if job is None or self.study.votes.once else job.without
        if self._told != frozenset(seats):
            self._told = frozenset(seats)
            self._hub.go_on_without(self.study, self._told)
        return seats

    def _check_misses(self) -> None:
        """Raises Missed once a seat, since the operator last decided, was late for as many released batches as the
        terms say."""
        if not self._late.left_out():
            return
        late = self._store.left_out_since_asked(self.name, LATE)
        missed = Counter(seat for number, seat in late if self._ledger.settled(number).get(seat) == 0)
        most, gone = self.study.terms.misses, self._not_asked()
        often = {seat: times for seat, times in sorted(missed.items()) if times >= most and seat not in gone}
        if often:
            raise Missed(self.name, often)

    def _wait_for_all(self, job: Job, patience_s: float) -> list[str]:
        """Waits, before a study that is asked once is asked, for every seat but those that have withdrawn, or that the
        operator does without; returns the seats that did not come in time."""
        began, wait_s, said = time.monotonic(), _FIRST_WAIT_S, list[str]()
        while self.study.votes.once and self._ledger.stored(0) is None:
            ready = {seat for node in self._hub.connected().values() for study, seat in node.seats
                     if study == self.study.digest}  # fmt: skip
            gone = {*ready, *self._done_without()}
            away = [seat.party for seat in self.study.roster if seat.party not in gone]
            if not away or time.monotonic() - began > patience_s:
                return away
            if away != said:
                self._store.say_job(job.number, f"asked once, so it waits for {', '.join(away)}; see label --without")
                self._on_event("waiting", {"study": self.name, "seats": ",".join(away), "quorum": len(ready)})
                said = away
            self._wait({party_of(seat) for seat in away}, wait_s)
            wait_s = min(2 * wait_s, _LONGEST_LOOK_S)
        return []

    def _asked_again(self, labelling: Labelling) -> bool:
        """Whether there is no second batch, or it was answered or given up; asks it. Raises Refused as
        Coordinator.ask_again."""
        path = self._store.home.asked_about(self.name)
        if self.study.votes.residuals and labelling.cells is not None:
            if self._ledger.given_up(AGAIN):
                return True
            if not path.exists():
                self._keep_scores(path, labelling.cells)
        if not path.exists():
            return True
        self._left_out = {}
        return self._coordinator.ask_again(read_bytes(path, most=_MODEL_BYTES)).cells is not None

    def _keep_scores(self, path: Path, cells: Int64[ndarray, "rows classes"]) -> None:
        """Keeps the scores of the first sum, about which units are asked again: made once, as no other machine need
        make the very same."""
        from coordinator.labelling.soft_labels import soft_labels_of_study  # slow to import

        folder = self._store.home.study(self.name)
        queries, pool = read_blocks(folder / QUERIES_FILE, self.study), stored_pool(folder / "pool.npy", self.study)
        soft = soft_labels_of_study(self.study, cells, queries, pool, charged=self._ledger.settled(0))
        assert soft.scores is not None  # features are graded
        write_atomically(path, FirstScores.of(soft.scores.coefficients).to_bytes())

    def _so_far(self, reason: StopReason) -> Labelling:
        """What has been released so far, for a labelling that ends without a result of its own."""
        return self._coordinator.so_far(self.study.queries_to_ask, reason=reason)

    def _guardian_is_there(self) -> bool:
        """Whether the study has no guardian, or its guardian can be reached; checked before any party is asked.

        Raises Refused or InvalidInput for a guardian that is not the study's.
        """
        if self._guardians is None or not self.study.confidentiality.second_server:
            return True
        try:
            self._guardians.check(self.study)
        except ChannelClosed as error:
            self._on_event("guardian_absent", {"study": self.name, "reason": str(error)[:200]})
            return False
        return True

    def _train(self, job: Job, pool: np.ndarray) -> TrainStudent | None:
        if not self.study.mechanism.interactive:
            return None
        if job.student is None:
            raise InvalidInput(
                f"{self.study.mechanism.name} needs a student between its rounds; give --student to label"
            )
        return first_student(self.study, pool, kind=job.student)

    def _wait(self, missing: set[str], wait_s: float) -> None:
        """Waits at most `wait_s`, or until a missing party has connected. Raises Stopped."""
        deadline = time.monotonic() + wait_s
        here = missing & set(self._hub.connected())
        while time.monotonic() < deadline and not (missing & set(self._hub.connected())) - here:
            if self._stop.wait(_LOOK_S):
                raise Stopped

    def _exchange(self, requests: Mapping[str, Request]) -> dict[str, Reply | None]:
        """One exchange over the hub, in which late seats are asked again; records which seats did not settle."""
        replies = self._late.ask(self._round, requests)
        first = next(iter(requests.values()), None)
        if isinstance(first, Outcome):
            self._note_outcomes(replies, first)
        return replies

    def _late_seats(self, *, patience_s: float) -> LateSeats:
        def pause(wait_s: float) -> None:
            self._say_missing((), "")
            self._wait(set(), wait_s)

        return LateSeats(
            self.study, patience_s=patience_s, wait=pause, on_event=self._on_event, done_without=self._done_without
        )

    def _round(self, requests: Mapping[str, Request]) -> dict[str, Reply | None]:
        """One exchange over the hub, which ends when serve stops."""
        if self._stop.is_set():
            raise Stopped
        sent: Future[dict[str, Reply | None]] = Future()
        thread = threading.Thread(target=_settle_future, args=(sent, self._send, requests), daemon=True)
        thread.start()
        began, said = time.monotonic(), ""
        while not sent.done():
            if self._stop.is_set():
                raise Stopped
            wait({sent}, timeout=_LOOK_S)
            if time.monotonic() - began > _SAY_AFTER_S and not sent.done():
                said = self._say_missing(requests, said)
        return sent.result()

    def _say_missing(self, seats: Iterable[str], said: str) -> str:
        """Reports whom the round waits for, if that has changed; returns what was reported."""
        here = set(self._hub.connected())
        missing = sorted(seat for seat in seats if party_of(seat) not in here)
        asks = f"asking; not connected: {some(missing)}" if missing else "asking; waiting for answers"
        text = self._late.waiting or "; ".join(filter(None, (asks, self._late.left_out())))
        if text != said:
            job = self._store.job(self.name)
            if job is not None and not job.ended:
                self._store.say_job(job.number, text)
        return text

    def _counted(self, reserved: ReservedBatch, counted: Counted) -> None:
        """Records which seats' votes were not counted, why, and by how much their ledgers may now be higher."""
        number = reserved.request.batch.number
        self._left_out = dict(counted.left_out)
        self._write_down(number, self._left_out)

    def _note_outcomes(self, replies: Mapping[str, Reply | None], outcome: Outcome) -> None:
        """Records which seats did not settle, and the exact ledger difference of those that did."""
        number = self._ledger.charged_number(outcome.batch_digest)
        faults = {seat: code for seat, reply in replies.items() if (code := _outcome_fault(reply)) is not None}
        if self._ledger.given_up(number):
            faults = {}  # its reservations stand here too, so a seat that was not told is not higher
        # The open batch may yet be settled lower here than at a seat that reserved it, so it counts in full.
        open_batch, balances = self._coordinator.open_batch, self._ledger.balances()
        reserved = {} if open_batch is None else self._ledger.charged(open_batch)
        exact = {
            seat: reply.spent - balances[seat].spent + reserved.get(seat, 0)
            for seat, reply in replies.items()
            if isinstance(reply, Settled)
        }
        with self._store.together():
            self._write_down(number, faults)
            self._store.ledger_differences.told(self.name, exact, open_batch=open_batch)

    def _write_down(self, number: int, faults: Mapping[str, str]) -> None:
        charged, settled = self._ledger.charged(number), self._ledger.settled(number)
        # A seat that was left out may have reserved the whole batch; one that did not settle still does.
        suspected = {seat: charged.get(seat, 0) - settled.get(seat, 0) for seat in faults}
        self._store.add_faults(self.name, number, faults, suspected)


class _Noted(Aggregation):
    """An aggregation that records its result before it is used."""

    def __init__(self, aggregation: Aggregation, counted: Callable[[ReservedBatch, Counted], None]) -> None:
        self._aggregation = aggregation
        self._counted = counted

    def check_next(self, study: Study, ledger: Ledger) -> None:
        self._aggregation.check_next(study, ledger)

    def count(self, reserved: ReservedBatch) -> Counted:
        counted = self._aggregation.count(reserved)
        self._counted(reserved, counted)
        return counted

    def released(self, reserved: ReservedBatch) -> None:
        self._aggregation.released(reserved)


def _back_or_never(who: str, study: str) -> str:
    return f"when {who} back, run resume {study}; if that never happens, give-up {study}"


def _outcome_fault(reply: Reply | None) -> str | None:
    match reply:
        case None:
            return "outcome_absent"
        case Refusal():
            return f"outcome_{code_of(reply)}"
        case Settled():
            return None
        case _:
            return "outcome_bad_reply"


def _settle_future(sent: Future[dict[str, Reply | None]], send: Transport, requests: Mapping[str, Request]) -> None:
    try:
        sent.set_result(send(requests))
    except BaseException as error:  # noqa: BLE001  # it is raised again where the future is read
        sent.set_exception(error)
