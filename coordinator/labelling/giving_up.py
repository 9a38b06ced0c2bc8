"""Giving up a batch that can never be finished because its sharers or its guardian are gone for good.

What was sent may have been opened, so all that was reserved for the batch stays charged, at the coordinator and at the
parties; its queries get no label and are never asked again. The next batch is charged anew, with its own noise.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from coordinator.labelling.late_seats import AWAY
from coordinator.labelling.study_creation import stored_inputs
from coordinator.status import alive
from coordinator.store.store import Job, Store, check_labelled_here, ledger_path
from protocols.crypto.channel import Channel
from protocols.crypto.randomness import system_source
from protocols.errors import ChannelClosed, InvalidInput, Refused
from protocols.labelling.coordinator import Coordinator
from protocols.ledger.amount import Amount
from protocols.ledger.ledger import Ledger
from protocols.levels.secure_sum.aggregation import openers
from protocols.levels.table import aggregation_of
from protocols.reading import read_bytes
from protocols.refusals.code import Code
from protocols.study.deployed import DeployedStudy
from protocols.study.study import party_of
from protocols.wire.messages import Reply, Request


@dataclass(frozen=True)
class StuckBatch:
    """A batch that was asked but not released. charged: per seat; given_up: whether it was already given up."""

    number: int
    queries: int
    charged: Mapping[str, Amount]
    given_up: bool


def stuck_batch(store: Store, name: str) -> StuckBatch:
    """The batch that would be given up, or the newest one if that was already given up.

    Raises InvalidInput for a study that is not labelled here, and Refused: "labelling_runs", "no_open_batch", or
    "can_be_finished" if the seats that it waited for are back.
    """
    study, job = store.study(name), store.job(name)
    check_labelled_here(study)
    if job is None or not ledger_path(store.home, name).exists():
        raise InvalidInput(f"study {name!r} was never labelled; allowed: one with a batch that cannot be finished")
    if not job.ended:
        how = "wait until it stops" if alive(store, now_s=time.time()) else "start serve, which continues it"
        raise Refused(
            Code.LABELLING_RUNS,
            f"the labelling of {name!r} is {job.state}, and may finish its batch by itself: {how}; it waits at most "
            "patience_s of coordinator.toml",
        )
    with _opened(store, study) as (ledger, coordinator):
        unsettled, number = ledger.unsettled(), coordinator.open_batch
        if number is None and unsettled and ledger.stored(unsettled[-1] + 1) is None:
            number = unsettled[-1]  # it was given up before, and nothing has been asked since
        stored = None if number is None else ledger.stored(number)
        if stored is None:
            raise Refused(Code.NO_OPEN_BATCH, f"every batch of {name!r} that was asked was released or given up")
        found = StuckBatch(stored.number, stored.queries, ledger.charged(stored.number), ledger.given_up(stored.number))
        if not found.given_up:
            _check_missing(store, study, job, found, openers(ledger, stored.digest))
    return found


def give_up(store: Store, name: str, number: int) -> None:
    """Gives up batch `number` if it is still the stuck one. Safe to run again after being killed at any moment.

    Raises as stuck_batch does, and Refused("other_batch").
    """
    study = store.study(name)
    pool = stored_inputs(store.home.study(name) / "pool.npy", study)
    with store.together():  # nobody may resume the labelling in between
        found = stuck_batch(store, name)
        if found.number != number:
            raise Refused(Code.OTHER_BATCH, f"batch {number} is not the stuck one; allowed: {found.number}")
        with _opened(store, study) as (_, coordinator):
            model = store.home.asked_about(name)
            coordinator.give_up(number, pool, model=read_bytes(model, most=2**31) if model.exists() else b"")
        # The coordinator's ledger also holds what a seat may have been charged for it.
        store.ledger_differences.drop(name, number)
        entry = {"study": name, "batch": number}
        if not any(each.event == "batch_given_up" and each.fields == entry for each in store.trail.entries()):
            store.trail.append("batch_given_up", study=name, batch=number)


def _check_missing(store: Store, study: DeployedStudy, job: Job, batch: StuckBatch, openers: list[int] | None) -> None:
    """Raises Refused if the seats for which the batch last waited are back and complete its quorum.

    A late seat does not count as back: the labelling already waited for it. openers: positions of the only seats that
    can open the batch; None if any seat that it asks may answer.
    """
    number, seats = batch.number, study.seats
    needed = [seat for seat in batch.charged if openers is None or seats[seat] in openers]
    since_s, connected = store.started_s(job.number), set()
    if alive(store, now_s=time.time()) is not None:
        connected = {each.party for each in store.sessions()}
    faults = [each for each in store.faults(study.name) if each.number == number and each.last_s >= since_s]
    missing = {each.seat for each in faults if each.code in AWAY} & set(needed)
    refusing = {each.seat for each in faults if each.code not in AWAY}
    back = {seat for seat in missing if party_of(seat) in connected}
    able = [seat for seat in needed if seat not in refusing and (seat not in missing or seat in back)]
    if back and len(able) >= study.quorum:
        raise Refused(
            Code.CAN_BE_FINISHED,
            f"batch {number} waited for {', '.join(sorted(back))}, connected again; with them it has its quorum of "
            f"{study.quorum}",
        )


@contextmanager
def _opened(store: Store, study: DeployedStudy) -> Iterator[tuple[Ledger, Coordinator]]:
    """A study's ledger, and a Coordinator on it that asks nobody."""

    def nobody(requests: Mapping[str, Request]) -> dict[str, Reply | None]:
        return dict.fromkeys(requests)

    def nowhere() -> AbstractContextManager[Channel]:
        raise ChannelClosed("giving up a batch dials no guardian")

    aggregation = aggregation_of(study, source=system_source, dial=nowhere)
    with Ledger(ledger_path(store.home, study.name)) as ledger:
        yield ledger, Coordinator(study, ledger=ledger, aggregation=aggregation, exchange=nobody, run=os.urandom(16))
