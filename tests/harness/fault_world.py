"""A study in one process whose every side can be broken: nodes, coordinator or asker, guardian, and what lies between.

Parties, coordinator, guardian, their ledgers and the checks of both logs' heads are the real ones. Frames are handed
over unsigned (tests/harness/world.py signs them). A disk ends its process, or is full, at a chosen statement; messages
are lost, repeated, old or contradict each other; conversations with the guardian break off. What is promised is checked
in tests/harness/fault_promises.py.
"""

import datetime
import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from coordinator.connection.open_study import Answered, OpenStudy, check_heads, record
from party.connection.seat import ServedSeat, reply, seat_heads
from party.party import Party
from protocols.crypto.channel import pair
from protocols.crypto.identity import Identity, sign
from protocols.crypto.randomness import system_source
from protocols.errors import ConclaveError, Refused, StorageFailed
from protocols.labelling.coordinator import Coordinator, Labelling
from protocols.labelling.guardian import Guardian
from protocols.ledger.ledger import Ledger
from protocols.wire.frames import Answer, Ask, head_statement
from protocols.wire.messages import ConcealedVotes, Outcome, Refusal, Settled, VoteReply, VoteRequest, decode, encode
from tests.harness.failing_disk import Crash, open_ledger
from tests.harness.fault_kinds import GUARDIANS_KEYS, Kind
from tests.harness.kept_messages import Breaking
from tests.harness.world import CERTIFICATE, KEY

TODAY = datetime.date(2026, 1, 1)
SESSION = bytes(16)
CENTRE = Identity("centre", "coordinator", CERTIFICATE)
# More messages than any conversation has.
NEVER = 10**6


class FaultWorld:
    """Everybody of one study, and what they told each other. tried: counts of what was broken, by what it was."""

    def __init__(self, kind: Kind, folder: Path, tried: Counter[str]) -> None:
        self.kind, self.study, self.folder, self.tried = kind, kind.study, folder, tried
        self.names = [seat.party for seat in kind.study.roster]
        self.faults: Iterator[str] = iter(())
        self.cuts: Iterator[int] = iter(())
        self.choice = random.Random(0)
        self.ledgers: dict[str, Ledger] = {}
        self.seats: dict[str, ServedSeat] = {}
        self.connected: set[str] = set()
        self.untold: dict[str, tuple[bytes, ...]] = {}
        self.away: set[str] = set()
        self.refused: list[str] = []
        self.old: dict[str, list] = {name: [] for name in self.names}
        # What left each hospital, about which request: the truth that ledgers are held against.
        self.left: dict[str, dict[bytes, bytes]] = {name: {} for name in self.names}
        self.sizes: dict[bytes, int] = {}
        self.told: dict[str, dict[bytes, np.ndarray]] = {name: {} for name in self.names}
        self.lies: set[tuple[str, bytes]] = set()
        # Where disks failed: kind of study, role, how, statement.
        self.broken: set[tuple[str, str, str, str]] = set()
        self.frames = 0
        for name in self.names:
            self.open_party(name)
        self.open_guardian()
        self.open_coordinator()

    def path(self, side: str) -> Path:
        """The ledger's file of a side: a hospital's name, "guardian" or "coordinator"."""
        return self.folder / f"{side}.sqlite"

    @property
    def sides(self) -> list[str]:
        """Everybody with a ledger."""
        return list(self.ledgers)

    def open_ledger(self, side: str) -> Ledger:
        """Opens the side's ledger, as its process does when it starts."""
        if side in self.ledgers:
            self.note_broken(side)
            self.ledgers[side].close()
        self.ledgers[side] = open_ledger(self.path(side), lambda: self.frames)
        self.ledgers[side]._database.noting = False
        return self.ledgers[side]

    def open_party(self, name: str) -> None:
        ledger = self.open_ledger(name)
        party = Party(
            name,
            study=self.study,
            ledger=ledger,
            voter=self.kind.voter(name),
            coins_from=None,
            settles=self.kind.settles,
            ballot=self.kind.ballot(name, ledger),
        )
        self.seats[name] = ServedSeat(self.study, party, ledger, anchor=lambda: None)
        self.connected.discard(name)

    def open_guardian(self) -> None:
        if self.kind.guarded:
            ledger = self.open_ledger("guardian")
            self.guardian = Guardian(self.study, ledger=ledger, source=system_source, **GUARDIANS_KEYS)

    def open_coordinator(self) -> None:
        ledger = self.open_ledger("coordinator")
        self.connected.clear()
        self.coordinator = Coordinator(
            self.study,
            ledger=ledger,
            aggregation=self.kind.aggregation(self.dial),
            exchange=self.exchange,
            run=bytes(16),
        )
        self.opened = OpenStudy(self.study, ledger, self.coordinator.outcome_for)

    def reopen(self, side: str) -> None:
        """A side starts again."""
        if side == "coordinator":
            self.open_coordinator()
        elif side == "guardian":
            self.open_guardian()
        else:
            self.open_party(side)

    def close(self) -> None:
        for ledger in self.ledgers.values():
            ledger.close()

    @contextmanager
    def dial(self) -> Iterator[Breaking]:
        """One conversation with the guardian, which begins anew if it died in the last."""
        if self.ledgers["guardian"]._database.dead:
            self.open_guardian()
        here, there = pair(wait_s=300.0)

        def serve() -> None:
            try:
                self.guardian.serve(there)
            except Crash:
                pass
            except ConclaveError as error:
                self.tried[f"guardian said {getattr(error, 'code', type(error).__name__)}"] += 1
            finally:
                there.close()

        thread = threading.Thread(target=serve)
        thread.start()
        channel = Breaking(here, next(self.cuts, NEVER))
        try:
            yield channel
        finally:
            here.close()
            thread.join()
            if channel.left < 0:
                self.tried["conversation cut"] += 1

    def exchange(self, requests):
        """One round: every request to its hospital, and what came back, as the hub stores it."""
        self.check_fault()
        answers = {}
        for name, request in requests.items():
            if isinstance(request, VoteRequest):
                self.sizes[request.digest] = len(request.batch.ids)
            answers[name] = self.ask(name, request)
        self.check_fault()
        if self.kind.hidden:  # whoever relays keeps no answer
            return {name: None if each is None else decode(each.answer.envelope) for name, each in answers.items()}
        return record(self.study, self.ledgers["coordinator"], requests, answers, on_event=lambda event, fields: None)

    def check_fault(self) -> None:
        """Raises Refused if a hospital knows a newer state of the coordinator's ledger, as the hub's sessions do."""
        if self.opened.fault is not None:
            raise self.opened.fault

    def ask(self, name: str, request) -> Answered | None:
        """One request on its way to a hospital, and its answer on the way back; None: it did not answer in time."""
        if name in self.away or not self.connect(name):
            return None
        fault = next(self.faults, "")
        if fault:
            self.tried[fault] += 1
        if fault == "away":
            self.away.add(name)
            return None
        if fault == "never arrives":
            return None
        if fault == "old" and self.old[name]:
            self.deliver(name, self.choice.choice(self.old[name]))
        if fault == "contradicts":
            self.contradict(name, request)
        self.old[name].append(request)
        answer = self.deliver(name, request)
        if fault == "twice":
            answer = self.deliver(name, request)
        if fault == "answer never arrives":
            return None
        if fault == "answer lost" or answer is None:  # it died, or the line did: the same request once more
            answer = self.deliver(name, request) if self.connect(name) else None
        if fault == "contradicted" and isinstance(request, Outcome):
            self.contradict(name, request)
        return answer

    def contradict(self, name: str, request) -> None:
        """Says something else about the same batch: other queries, or another outcome."""
        if isinstance(request, VoteRequest):
            ids = (request.batch.ids + 1) % self.study.query_limit
            if not self.study.votes.once and len(set(ids.tolist())) == len(ids):
                other = replace(request, batch=replace(request.batch, ids=np.sort(ids)))
                self.sizes[other.digest] = len(ids)
                self.deliver(name, other)
        elif isinstance(request, Outcome):
            if self.deliver(name, replace(request, answered=~request.answered), lie=True) is None:
                self.lies.add((name, request.batch_digest))  # it died, perhaps after it believed the lie

    def deliver(self, name: str, request, *, lie: bool = False) -> Answered | None:
        """The node's answer to one request, as it leaves the hospital; None if its process died."""
        self.frames += 1
        seat, ledger, centre = self.seats[name], self.ledgers[name], self.ledgers["coordinator"]
        about = (self.study.digest, name, centre.log.head(), centre.log.peer(name))
        before = None  # not known where the disk fails before the request is looked at
        try:
            before = ledger.balance(name).spent
            if self.kind.hidden:
                said = seat.answer(lambda: seat.party.handle(request))
            else:
                proof = sign(KEY, head_statement(self.study.digest, about[2]))
                ask = Ask(SESSION, self.frames, SESSION, *about, encode(request), proof)
                said = seat.answer(partial(reply, ask, b"signed", CENTRE, seat, today=TODAY))
        except Crash:
            self.open_party(name)
            return None
        except StorageFailed:
            said = Refusal("storage_failed", "nothing was answered")
        except Refused as error:  # the node ends the stream
            self.refused.append(error.code)
            return None
        try:
            heads = ledger.log.head(), ledger.log.peer("coordinator")
        except (Crash, StorageFailed):  # the node ends, and what it did stands
            self.open_party(name)
            return None
        self.witness(name, request, said, lie=lie, before=before)
        return Answered(b"asked", b"signed", Answer(SESSION, 1, self.study.digest, name, *heads, encode(said)))

    def witness(self, name: str, request, said, *, lie: bool, before: int | None) -> None:
        """Keeps what left a hospital. What it says about one request must never change."""
        if isinstance(said, Refusal):
            self.tried[f"hospital said {said.code}"] += 1
        if isinstance(said, VoteReply | ConcealedVotes):
            known = self.left[name].setdefault(said.batch_digest, encode(said))
            assert known == encode(said), "answered twice, differently"
        if isinstance(request, Outcome):
            if lie and not isinstance(said, Settled):
                spent = self.ledgers[name].balance(name).spent
                assert before in (None, spent), "a lie that was refused changed a ledger"
            elif lie:
                assert not self.kind.guarded, "an outcome was believed that the guardian did not sign"
                self.lies.add((name, request.batch_digest))
                self.tried["lie believed"] += 1
            elif isinstance(said, Settled):
                known = self.told[name].setdefault(request.batch_digest, request.answered)
                np.testing.assert_array_equal(known, request.answered, err_msg="two outcomes of one batch")

    def connect(self, name: str, *, tell: bool = True) -> bool:
        """Hello and Welcome, as the hub does them: both logs' heads are compared, then missed outcomes told."""
        if self.kind.hidden or name in self.connected:
            return True
        if self.opened.fault is not None:
            return False
        try:
            heads = seat_heads(self.seats[name])
        except Crash:
            self.open_party(name)
            heads = seat_heads(self.seats[name])
        except StorageFailed:
            return False
        try:
            check_heads(self.opened, name, heads, own=CENTRE)
        except Refused as error:
            self.refused.append(error.code)
            return False
        self.connected.add(name)
        self.untold[name] = heads.untold
        if tell:
            self.tell(name)
        return True

    def tell(self, name: str) -> None:
        """The outcomes that a hospital missed."""
        for digest in self.untold.pop(name, ()) if self.opened.fault is None else ():
            outcome = self.coordinator.outcome_for(name, digest)
            if outcome is not None and (answered := self.deliver(name, outcome)) is not None:
                centre = self.ledgers["coordinator"]
                record(self.study, centre, {name: outcome}, {name: answered}, on_event=lambda event, fields: None)

    def attempt(self, count: int, faults=(), cuts=()) -> Labelling | str:
        """Labels the first so many queries; or why the process ended: somebody starts it again."""
        self.faults, self.cuts = iter(faults), iter(cuts)
        self.away.clear()
        try:
            # All dial before the first is told anything: a hospital that an old copy spoke to knows that copy.
            for name in self.names:
                self.connect(name, tell=False)
            for name in self.names:
                self.tell(name)
            return self.coordinator.label(self.kind.pool(count))
        except Crash:
            return "crash"
        except StorageFailed:
            return "storage_failed"
        except Refused as error:
            return error.code
        finally:
            self.faults, self.cuts = iter(()), iter(())
            self.restart_the_dead()

    def restart_the_dead(self) -> None:
        """Everybody whose process ended starts again, with a disk that works."""
        for side, ledger in list(self.ledgers.items()):
            if ledger._database.dead:
                self.reopen(side)
            self.note_broken(side)
            self.ledgers[side]._database.left = None

    def note_broken(self, side: str) -> None:
        """Counts the statement at which a disk failed, if it did."""
        disk = self.ledgers[side]._database
        if disk.broke:
            role = side if side in ("coordinator", "guardian") else "hospital"
            self.tried[f"{disk.how}, {role}"] += 1
            self.broken.add((self.kind.name, role, disk.how, disk.broke))
            disk.broke = ""
