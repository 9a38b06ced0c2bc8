"""Relaying a querying party's requests to the seats of its study, and their signed answers back.

The operator sees masked values and the querying party's shares, and must not collude with the guardian. Nodes are asked
in the operator's own signed frames, as usual. The ledger here has no accounts: it holds only the heads of all logs, the
receipts, the relayed outcomes, which absent nodes are told later, and an upper bound on each seat's spend: every
request counts at its worst case before it is relayed, until a receipt says less.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any  # the result of a function that is passed in

import numpy as np
from cryptography import x509

from coordinator.connection.open_study import Answered, OpenStudy, record
from coordinator.connection.sessions import Sessions
from coordinator.store.store import Job, Store, ledger_path
from protocols.crypto.identity import Identity
from protocols.errors import MalformedMessage, Refused, StorageFailed
from protocols.ledger.ledger import Ledger
from protocols.levels.table import check_believable
from protocols.reading import parse_json
from protocols.refusals.code import Code
from protocols.study.study import Study, party_of
from protocols.wire.frames import Ask, read_frame
from protocols.wire.messages import Outcome, Refusal, Reply, Request, Settled, StepRequest, VoteRequest, decode, encode
from protocols.wire.relay import passed_back
from runtime.logs import Event
from runtime.steady_clock import Allowance

_KIND = "relayed_standing "
# Batches of a seat that are counted one by one; an honest querying party has one in flight.
_MOST_OPEN = 64
# Stands in for a batch number if there are more: all of them are counted together.
_MERGED = -1


@dataclass(frozen=True)
class Open:
    """What may have been charged for a batch since the newest receipt. tick: the request count at its newest
    request.
    """

    amount: int
    tick: int


@dataclass(frozen=True)
class RelayedSeat:
    """One seat. asked: queries before this position were asked; batches: batch numbers below this were used; spent:
    by the newest receipt, made when the seat's log had `entries` entries; ticks: requests counted."""

    asked: int = 0
    batches: int = 0
    spent: int = 0
    open: dict[int, Open] = field(default_factory=dict)
    entries: int = 0
    ticks: int = 0

    @property
    def at_most(self) -> int:
        """The most that the seat can have spent, if its receipt is true; ignores its own cap."""
        return self.spent + sum(each.amount for each in self.open.values())


def relayed_seat(ledger: Ledger, study: Study, seat: str) -> RelayedSeat:
    """What is known about a seat; all 0 if nothing was relayed to it."""
    noted = ledger.noted(study.digest, _KIND + seat)
    if noted is None:
        return RelayedSeat()
    asked, batches, spent, pending, entries, ticks = parse_json(noted, where=f"the ledger: what is known of {seat}")
    opened = {int(number): Open(*each) for number, each in pending.items()}
    return RelayedSeat(asked, batches, spent, opened, entries, ticks)


def count_request(ledger: Ledger, study: Study, seat: str, request: VoteRequest) -> int:
    """Counts a batch at its worst case, on disk before the batch is relayed. A repeated batch counts once.

    Returns the tick of this request: its position among those to this seat. Raises Refused("batch_too_large"),
    ("query_limit") for a request that every party would refuse without charge: then nothing is counted.
    """
    ids, at = request.batch.ids, study.seats[seat]
    if len(ids) > study.batch_limit:
        raise Refused(Code.BATCH_TOO_LARGE, f"{len(ids)} queries asked; allowed: at most {study.batch_limit}")
    if int(ids.max()) >= study.query_limit:
        raise Refused(Code.QUERY_LIMIT, f"query {ids.max()} asked; allowed: 0 to {study.query_limit - 1}")
    takes_part = int(study.participation.of(at).votes(ids)[0].sum())
    worst, number = int(study.budgets.amount(takes_part, takes_part)[at]), request.batch.number
    with ledger.log.together():
        known = relayed_seat(ledger, study, seat)
        tick, before = known.ticks, known.open.get(number)
        pending = {**known.open, number: Open(worst if before is None else max(worst, before.amount), tick)}
        if len(pending) > _MOST_OPEN:
            whole = sum(each.amount for each in pending.values())
            pending = {_MERGED: Open(min(whole, int(study.budgets.cap[at])), tick)}
        asked, batches = max(known.asked, int(ids.max()) + 1), max(known.batches, number + 1)
        _write(ledger, study, seat, RelayedSeat(asked, batches, known.spent, pending, known.entries, tick + 1))
    return tick


def count_receipt(
    ledger: Ledger, study: Study, seat: str, number: int, spent: int, *, entries: int, before_tick: int
) -> None:
    """Records what a party says it has spent in total after it settled a batch.

    entries: the length of its log at its answer, so that an older receipt that arrives late does not replace a newer
    one. before_tick: its total includes this batch and the requests before this tick; others may have come later.
    """
    with ledger.log.together():
        known = relayed_seat(ledger, study, seat)
        pending = {batch: each for batch, each in known.open.items() if batch != number and each.tick >= before_tick}
        if entries == known.entries:
            spent = max(spent, known.spent)
        elif entries < known.entries:
            spent = known.spent
        entries = max(entries, known.entries)
        _write(ledger, study, seat, RelayedSeat(known.asked, known.batches, spent, pending, entries, known.ticks))


def most_spent(ledger: Ledger, study: Study) -> tuple[np.ndarray, int, int]:
    """The most that each seat can have spent; and the numbers of queries and batches asked."""
    known = [relayed_seat(ledger, study, seat.party) for seat in study.roster]
    spent = np.minimum(np.array([min(each.at_most, 2**62) for each in known], np.int64), study.budgets.cap)
    return spent, max(each.asked for each in known), max(each.batches for each in known)


def _write(ledger: Ledger, study: Study, seat: str, known: RelayedSeat) -> None:
    pending = {number: (each.amount, each.tick) for number, each in known.open.items()}
    value = json.dumps([known.asked, known.batches, known.spent, pending, known.entries, known.ticks]).encode()
    ledger.forget(study.digest, _KIND + seat)
    ledger.note(study.digest, _KIND + seat, value)


# Requests relayed at once, and per second: a querying party that sends more has to wait.
AT_ONCE = 32
PER_SECOND = 200.0
# Refusals of one party's seats to one querying party: in a burst, and per day. A node tolerates ten times as many from
# all together and then stops, so one querying party must not be able to stop it.
REFUSALS = 100
_DAY_S = 86_400.0
_NUMBER, _OUTCOME, _SETTLED, _BEFORE = "relayed_number", "relayed_outcome ", "relayed_settled ", "relayed_before "
# Batch numbers kept, enough for every batch of an honest querying party; pruned after this many requests.
_TIDY_EACH = 64
# Refusals after which a party never settles by this outcome; after any other it is told again.
_FOR_GOOD = frozenset(
    {
        Code.UNKNOWN_BATCH,
        Code.BAD_OUTCOME,
        Code.UNSIGNED_OUTCOME,
        Code.DIGEST_MISMATCH,
        Code.SETTLED_OTHERWISE,
        Code.SETTLES_UPWARDS,
        Code.MALFORMED,
        Code.WITHDRAWN,
    }
)


class Relay:
    """Serves the queriers of the open studies. aside: runs a slow function on another thread."""

    def __init__(
        self,
        sessions: Sessions,
        studies: Mapping[bytes, OpenStudy],
        *,
        authority: x509.Certificate,
        aside: Callable[..., Awaitable[Any]],
        on_event: Event,
    ) -> None:
        self._sessions = sessions
        self._studies = studies
        self._authority = authority
        self._aside = aside
        self._on_event = on_event
        self.places = asyncio.Semaphore(AT_ONCE)
        self._free_s = 0.0
        # Ticks of the requests in flight, by study and seat.
        self._under_way: dict[tuple[bytes, str], set[int]] = {}
        # How many refusals each querying party may still receive from each party, all of its seats together.
        self._refusals: defaultdict[tuple[str, str], Allowance] = defaultdict(
            lambda: Allowance(most=REFUSALS, each_s=_DAY_S / REFUSALS)
        )

    def check_querier(self, peer: Identity) -> None:
        """Raises Refused("not_querier"), before reading anything, unless an open study names this party."""
        if not any(opened.study.confidentiality.asked_by == peer.name for opened in list(self._studies.values())):
            raise Refused(Code.NOT_QUERIER, f"{peer.name!r} asks; allowed: the querier of a study open here")

    async def answer(self, data: bytes, peer: Identity) -> bytes:
        """The answer to one signed Ask of a querying party."""
        try:
            opened, seat, request, tick = await self._aside(self._read, data, peer)
            try:
                await self._pace()
                answered = (await self._sessions.ask_all(opened, {seat: request}, relayed=True))[seat]
            finally:
                self._ticks(opened, seat).discard(-1 if tick is None else tick)
            if not isinstance(answered, Answered):
                return passed_back(b"", code=Code.ABSENT, reason="the party did not answer in time")
            await self._aside(self._keep, opened, peer, seat, request, answered)
            return passed_back(answered.signed)
        except (Refused, MalformedMessage, StorageFailed) as error:
            code = error.code if isinstance(error, Refused) else Code.MALFORMED
            if isinstance(error, StorageFailed):  # its text names files of this machine
                code, error = Code.STORAGE_FAILED, StorageFailed("the operator's disk cannot be written")
            self._on_event("relay_refused", {"party": peer.name, "code": code})
            return passed_back(b"", code=code, reason=str(error).removeprefix(f"{code}: "))

    async def _pace(self) -> None:
        """Waits for this request's turn."""
        now = asyncio.get_running_loop().time()
        self._free_s = max(self._free_s, now) + 1 / PER_SECOND
        await asyncio.sleep(self._free_s - now - 1 / PER_SECOND)

    def _ticks(self, opened: OpenStudy, seat: str) -> set[int]:
        return self._under_way.setdefault((opened.study.digest, seat), set())

    def _read(self, data: bytes, peer: Identity) -> tuple[OpenStudy, str, Request, int | None]:
        now = datetime.datetime.now(datetime.UTC)
        ask, sender = read_frame(data, authority=self._authority, now=now, role="party")
        if (sender.name, sender.fingerprint) != (peer.name, peer.fingerprint):
            raise Refused(Code.WRONG_SIGNER, f"a frame of {sender.name!r} came over the connection of {peer.name!r}")
        if not isinstance(ask, Ask):
            raise MalformedMessage(f"{type(ask).__name__} was sent to be relayed; allowed: Ask")
        opened = self._studies.get(ask.study)
        if opened is None:
            raise Refused(Code.UNKNOWN_STUDY, f"study {ask.study.hex()[:16]} is not open here")
        querier = opened.study.confidentiality.asked_by
        if querier != peer.name:
            raise Refused(Code.NOT_QUERIER, f"{peer.name!r} asks; allowed: {querier!r}")
        if ask.seat not in opened.study.seats:
            raise Refused(Code.WRONG_SEAT, f"{ask.seat!r} is not a seat of study {opened.study.name!r}")
        request = decode(ask.envelope)
        if not isinstance(request, VoteRequest | StepRequest | Outcome) or request.study != ask.study:
            raise MalformedMessage("the message is not a request; allowed: vote_request, step_request, outcome")
        tick = None
        if isinstance(request, Outcome):  # stored in any case: the seat is told when it connects
            _note_sent(opened, ask.seat, request, self._ticks(opened, ask.seat))
        if not self._refusals[peer.name, party_of(ask.seat)].remains(time.monotonic()):
            raise Refused(
                Code.TOO_MANY_REFUSALS,
                f"{ask.seat!r} refused requests of {peer.name!r} more often than allowed: {REFUSALS} times a day",
            )
        if isinstance(request, VoteRequest):
            tick = _note_asked(opened, ask.seat, request, self._ticks(opened, ask.seat))
        return opened, ask.seat, request, tick

    def _keep(self, opened: OpenStudy, peer: Identity, seat: str, request: Request, answered: Answered) -> None:
        reply = record(opened.study, opened.ledger, {seat: request}, {seat: answered}, on_event=self._on_event)[seat]
        # As the node counts them.
        if isinstance(reply, Refusal) and reply.code not in (Code.TEACHERS_LATE, Code.STORAGE_FAILED):
            self._refusals[peer.name, party_of(seat)].take(time.monotonic())
        if isinstance(request, Outcome):
            note_told(opened.ledger, opened.study, seat, request, answered, reply)


def _note_asked(opened: OpenStudy, seat: str, request: VoteRequest, under_way: set[int]) -> int:
    """Counts a request, which is in flight from then on; returns its tick. Raises Refused for one that every party
    would refuse."""
    ledger = opened.ledger
    with ledger.log.together():
        tick = count_request(ledger, opened.study, seat, request)
        ledger.note(request.digest, _NUMBER, request.batch.number.to_bytes(8, "big"))
        if tick % _TIDY_EACH == 0:
            ledger.forget_uncharged(_NUMBER, keep=opened.study.query_limit)
        under_way.add(tick)
    return tick


def _note_sent(opened: OpenStudy, seat: str, outcome: Outcome, under_way: set[int]) -> None:
    """Stores an outcome for a seat that may be absent; it replaces an earlier one that settled nothing.

    under_way: ticks of the requests in flight to the seat. Raises Refused("unsigned_outcome") for one that no party
    would accept: then it is neither stored nor relayed.
    """
    check_believable(opened.study, outcome, seat)
    with opened.ledger.log.together():
        if opened.ledger.noted(outcome.batch_digest, _SETTLED + seat) is None:
            opened.ledger.forget(outcome.batch_digest, _OUTCOME + seat)
            opened.ledger.note(outcome.batch_digest, _OUTCOME + seat, encode(outcome))
            # Requests in flight may arrive after this outcome. Of a repeated request the first tick counts, as either
            # may be answered.
            before = min(under_way, default=relayed_seat(opened.ledger, opened.study, seat).ticks)
            opened.ledger.note(outcome.batch_digest, _BEFORE + seat, before.to_bytes(8, "big"))


def note_told(
    ledger: Ledger, study: Study, seat: str, outcome: Outcome, answered: Answered, reply: Reply | None
) -> None:
    """Stores the outcome by which a seat settled, with the signed proof; forgets one that it refused for good.

    The first outcome by which it settled stands, as it does at the party: a later one settles nothing.
    """
    digest = outcome.batch_digest
    with ledger.log.together():
        if isinstance(reply, Settled):
            ledger.note(digest, _SETTLED + seat, encode(outcome))
            number = ledger.noted(digest, _NUMBER)
            if number is not None:
                before = int.from_bytes(ledger.noted(digest, _BEFORE + seat) or b"", "big")
                count_receipt(
                    ledger,
                    study,
                    seat,
                    int.from_bytes(number, "big"),
                    reply.spent,
                    entries=answered.answer.own.count,
                    before_tick=before,
                )
                for kind, signed in (("outcome", answered.asked), ("settled", answered.signed)):
                    ledger.log.keep(int.from_bytes(number, "big"), seat, kind, signed)
        elif isinstance(reply, Refusal) and reply.code in _FOR_GOOD:
            if ledger.noted(digest, _OUTCOME + seat) == encode(outcome):
                ledger.forget(digest, _OUTCOME + seat)


def relayed_outcome(ledger: Ledger, seat: str, request: bytes) -> Outcome | None:
    """The outcome by which a seat settled or, for an absent seat, the last one that the querying party sent it."""
    noted = ledger.noted(request, _SETTLED + seat) or ledger.noted(request, _OUTCOME + seat)
    outcome = None if noted is None else decode(noted)
    return outcome if isinstance(outcome, Outcome) else None


class RelayedStudy:
    """A study that its querying party runs and this coordinator relays; it has no jobs."""

    def __init__(self, store: Store, name: str, open_study: Callable[..., object]) -> None:
        """Opens its ledger, and the study at the hub. Raises InvalidInput, StorageFailed."""
        self.name = name
        self.study = store.study(name)
        self._store = store
        self._ledger = Ledger(ledger_path(store.home, name))
        self._ledger.bind(study=self.study.digest, run=b"")
        open_study(
            self.study,
            self._ledger,
            outcome_for=partial(relayed_outcome, self._ledger),
            on_told=partial(note_told, self._ledger, self.study),
        )

    def run(self, job: Job, *, patience_s: float) -> None:
        """Ends a job at once: the operator does not ask in this study."""
        querier = self.study.confidentiality.asked_by
        reason = f"{querier!r} asks in this study, with conclave-party ask; nothing is labelled here"
        self._store.end_job(job.number, "failed", reason, None)

    def close(self) -> None:
        """Closes the ledger."""
        self._ledger.close()
