"""A consortium without sockets, in which everything that can break is broken on purpose, one step at a time.

Nodes, sessions, coordinator and ledgers are the real ones; what stands in for the network hands frames from one to
the other, loses, repeats and delays them, and what stands in for the disk ends a process, or is full, at a chosen
statement. After every attempt the promises are checked: nothing is spent that is not recorded, no cap is passed, and
what was released once is never released otherwise.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from coordinator.connection.open_study import OpenStudy, check_heads, record
from coordinator.connection.sessions import Session, SessionEnded, Sessions
from party.connection.node import Node, _Session
from party.connection.seat import ServedSeat, seat_heads
from party.party import Party
from protocols.crypto.identity import Identity, identify, issue, new_authority, new_key
from protocols.errors import MalformedMessage, Refused, StorageFailed
from protocols.labelling.coordinator import Coordinator, Labelling
from protocols.ledger.ledger import Ledger
from protocols.levels.clear import ClearAggregation
from protocols.noise import simulated
from protocols.study.study import Study
from protocols.wire.frames import Answer, Ask, read_frame, sign_frame
from protocols.wire.messages import Outcome, Settled, VoteReply, VoteRequest, decode, encode
from tests.harness.clocks import idle_loop
from tests.harness.failing_disk import Crash, open_ledger
from tests.harness.studies import pool_of, voter

NOW = datetime.datetime.now(datetime.UTC)
AUTHORITY_KEY, KEY = new_key(), new_key()
AUTHORITY = new_authority(AUTHORITY_KEY, name="test", now=NOW, days=9)


def certify(key, name, role):
    return issue(
        authority=AUTHORITY,
        authority_key=AUTHORITY_KEY,
        public_key=key.public_key(),
        name=name,
        role=role,
        now=NOW,
        days=9,
    )


CERTIFICATE = certify(KEY, "centre", "coordinator")
KEYS = {f"hospital-{number}": new_key() for number in range(4)}
CERTIFICATES = {name: certify(key, name, "party") for name, key in KEYS.items()}


class World:
    """Parties, a coordinator and what lies between. faults: what happens to each frame that is sent, in order.

    A fault: "" delivered; "lost": the stream ends before; "answer lost": after; "twice": delivered twice; "old": an
    older question comes first; "altered": one byte differs; "away": the party is gone until the next attempt.
    """

    def __init__(self, study: Study, folder: Path, *, settles: bool = True) -> None:
        self.study, self.folder, self.settles = study, folder, settles
        self.faults: Iterator[str] = iter(())
        self.loop = idle_loop()
        self.ledgers: dict[str, Ledger] = {}
        self.nodes: dict[str, Node] = {}
        self.seats: dict[str, ServedSeat] = {}
        self.sessions_of: dict[str, tuple[Session, _Session]] = {}
        self.old: dict[str, bytes] = {}
        self.away: set[str] = set()
        self.refusals: list[str] = []
        # What left each party, and what was said about each request: the truth that ledgers are held against.
        self.left: dict[str, set[bytes]] = {name: set() for name in KEYS}
        self.asked: dict[bytes, int] = {}
        self.frames = 0
        self.outcomes: dict[bytes, np.ndarray] = {}
        self.released: dict[int, np.ndarray] = {}
        for seat in study.roster:
            self.open_party(seat.party)
        self.open_coordinator()

    def open_party(self, name: str) -> None:
        if name in self.ledgers:
            self.ledgers[name].close()
        ledger = self.ledgers[name] = open_ledger(self.folder / f"{name}.sqlite", lambda: self.frames)
        party = Party(name, study=self.study, ledger=ledger, voter=voter(name), coins_from=None, settles=self.settles)
        self.seats[name] = ServedSeat(self.study, party, ledger, anchor=lambda: None)
        self.nodes[name] = Node(
            key=KEYS[name],
            certificate=CERTIFICATES[name],
            authority=AUTHORITY,
            address="nowhere:1",
            seats=lambda: [self.seats[name]],
            save_certificate=lambda pem: None,
            on_event=lambda event, fields: None,
            renew_days_left=0,
        )
        self.sessions_of.pop(name, None)

    def open_coordinator(self) -> None:
        if hasattr(self, "ledger"):
            self.ledger.close()
        self.ledger = open_ledger(self.folder / "coordinator.sqlite", lambda: self.frames)
        self.sessions_of.clear()
        self.sessions = Sessions(seal=self.seal, on_event=lambda event, fields: None)
        self.coordinator = Coordinator(
            self.study,
            ledger=self.ledger,
            aggregation=ClearAggregation(simulated(np.random.default_rng())),
            exchange=self.exchange,
            run=os.urandom(16),
        )

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.close()
        for ledger in (self.ledger, *self.ledgers.values()):
            ledger.close()

    def seal(self, frame) -> bytes:
        return sign_frame(frame, key=KEY, certificate=CERTIFICATE)

    def exchange(self, requests):
        async def ask():
            opened = OpenStudy(self.study, self.ledger, self.coordinator.outcome_for)
            for name in requests:
                await self.connect(name, opened)
            return opened, await self.sessions.ask_all(opened, requests)

        for request in requests.values():
            if isinstance(request, VoteRequest):
                self.asked[request.digest] = len(request.batch.ids)
        opened, answers = self.loop.run_until_complete(ask())
        return record(opened.study, opened.ledger, requests, answers, on_event=lambda event, fields: None)

    async def connect(self, name: str, opened: OpenStudy) -> None:
        """Hello and Welcome, as the hub does them; a party that is refused stays away."""
        self.frames += 1
        if name in self.away or name in self.sessions.open:
            return
        try:
            heads = seat_heads(self.seats[name])
        except Crash:
            self.open_party(name)
            return await self.connect(name, opened)
        except StorageFailed:  # the node ends, and says so; somebody starts it again
            self.away.add(name)
            return None
        node_session = _Session(welcomed_at=0.0)
        identity = identify(CERTIFICATES[name], authority=AUTHORITY, now=NOW, role="party")

        async def send(frame: bytes) -> None:
            await self.deliver(name, frame, session, node_session, opened)

        session = Session(identity, node_session.nonce, send, "", "", 1)
        session.told.set()
        try:
            check_heads(opened, name, heads, own=Identity("centre", "coordinator", CERTIFICATE))
        except Refused as error:
            self.refusals.append(error.code)
            session.refused.add((heads.study, heads.seat))
            self.away.add(name)
            return None
        await self.sessions.add(session)
        for digest in heads.untold:
            outcome = self.coordinator.outcome_for(name, digest)
            if outcome is not None:
                try:
                    answered = await self.sessions.ask(session, opened, name, outcome, encode(outcome), None)
                except SessionEnded:
                    return None
                record(self.study, self.ledger, {name: outcome}, {name: answered}, on_event=lambda event, fields: None)

    async def deliver(self, name, frame, session, node_session, opened) -> None:
        """One question on its way to a node, and its answer on the way back."""
        self.frames += 1
        fault = next(self.faults, "")
        if fault == "lost":
            await self.broken(name, session, opened)
        if fault == "away":
            self.away.add(name)
            await self.broken(name, session, opened)
        frames = [frame]
        if fault == "twice":
            frames = [frame, frame]
        if fault == "old" and name in self.old:
            frames = [self.old[name], frame]
        if fault == "altered":
            spoilt = bytearray(frame)
            spoilt[len(frame) // 3] ^= 4
            frames = [bytes(spoilt)]
        self.old.setdefault(name, frame)
        answers = []
        for each in frames:
            try:
                answers.append(self.answer(name, each, node_session))
            except Crash:
                self.open_party(name)
                await self.broken(name, session, opened)
            except Refused as error:  # the node ends the stream
                self.refusals.append(error.code)
                break
        if fault == "answer lost" or not answers or answers[0] is None:
            await self.broken(name, session, opened)
        for answered in answers:
            got, _ = read_frame(answered, authority=AUTHORITY, now=NOW, role="party")
            session.answered(got, answered)
        if len(answers) < len(frames):
            self.sessions.remove(session)

    async def broken(self, name, session, opened) -> None:
        """The stream ends; the node dials again."""
        self.sessions.remove(session)
        await self.connect(name, opened)
        raise SessionEnded

    def answer(self, name: str, frame: bytes, node_session: _Session) -> bytes | None:
        """What the node says to one frame. Whatever it says has left the hospital."""
        try:
            ask, sender = read_frame(frame, authority=AUTHORITY, now=NOW, role="coordinator")
        except MalformedMessage:
            return None
        assert isinstance(ask, Ask)
        seats = {(self.study.digest, name): self.seats[name]}
        answer = self.nodes[name]._answer(ask, frame, sender, node_session, seats)
        assert isinstance(answer, Answer)
        self.witness(name, answer, decode(ask.envelope))
        self.frames += 1
        return sign_frame(answer, key=KEYS[name], certificate=CERTIFICATES[name])

    def witness(self, name: str, answer: Answer, request) -> None:
        reply = decode(answer.envelope)
        if isinstance(reply, VoteReply):
            self.left[name].add(reply.batch_digest)
        if isinstance(request, Outcome):
            known = self.outcomes.setdefault(request.batch_digest, request.answered)
            np.testing.assert_array_equal(known, request.answered, err_msg="two outcomes of one batch")
        if isinstance(reply, Settled) and self.settles:
            assert reply.spent == self.ledgers[name].balance(name).spent

    def attempt(self, faults=()) -> Labelling | None:
        """Runs the study until it ends, or somebody must start again: then it is started again, and None returned."""
        self.faults = iter(faults)
        self.away.clear()
        terms = self.study.terms
        try:
            labelled = self.coordinator.label(pool_of(terms.pool_size, terms.input_shape[0]))
        except (Crash, StorageFailed):
            labelled = None
            self.open_coordinator()
        self.check()
        return labelled

    def check(self) -> None:
        """The promises."""
        for name, ledger in self.ledgers.items():
            ledger._database.left = None
            if ledger._database.dead:
                self.open_party(name)
        self.ledger._database.left = None
        if self.ledger._database.dead:
            self.open_coordinator()
        number = 0
        while (stored := self.ledger.stored(number)) is not None:
            if stored.settled:
                known = self.released.setdefault(number, np.frombuffer(stored.payload, dtype="<i8"))
                np.testing.assert_array_equal(
                    known, np.frombuffer(stored.payload, dtype="<i8"), err_msg="released otherwise"
                )
            number += 1
        by_digest = {}
        for each, labels in self.released.items():
            by_digest[self.ledger.stored(each).digest] = labels
        for name in self.seats:
            happened = 0
            for digest in self.left[name]:
                labels = by_digest.get(digest)
                # What was never released told nobody outside anything; it stays reserved all the same.
                answered = self.asked[digest] if labels is None else int((labels >= 0).sum())
                seat = self.study.seats[name]
                happened += int(self.study.budgets.amount(self.asked[digest], answered)[seat])
            balance = self.ledgers[name].balance(name)
            assert happened <= balance.spent <= balance.cap
            if not self.study.budgets.settles:
                # A batch is charged its one price or not at all, whatever was answered, told or lost.
                sizes = [len(self.ledgers[name].queries(each)) for each in range(self.study.query_limit)]
                prices = [int(self.study.budgets.amount(size, 0)[self.study.seats[name]]) for size in sizes if size]
                assert (balance.settled, balance.reserved) == (sum(prices), 0)
            assert self.ledger.balance(name).spent <= self.ledger.balance(name).cap
            list(self.ledgers[name].log.entries())
        list(self.ledger.log.entries())
