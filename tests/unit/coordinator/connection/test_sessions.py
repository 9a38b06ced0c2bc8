"""What a party is told when it connects, and what of its answers counts as its fault."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from coordinator.connection.admission import FAULTS
from coordinator.connection.open_study import OpenStudy
from coordinator.connection.sessions import Session, Sessions
from protocols.crypto.identity import Identity, new_authority, new_key
from protocols.ledger.audit_log import EMPTY
from protocols.ledger.ledger import Ledger
from protocols.wire.frames import NONCE_BYTES, Answer, SeatHeads
from protocols.wire.messages import Outcome, Refusal, Settled, encode
from tests.harness.studies import NOW, deployed_study

STUDY = deployed_study(2)
SEAT = STUDY.roster[0].party
CERTIFICATE = new_authority(new_key(), name="test", now=NOW, days=9)
MISSED = tuple(bytes([each]) * 32 for each in range(3))


@pytest.fixture
def ledger():
    with Ledger(":memory:") as made:
        yield made


async def aside(function, *args):
    return function(*args)


class Telling:
    """A coordinator that tells one party what it missed, at each of its sessions. reply: what it answers."""

    def __init__(self, ledger, reply, *, study=STUDY):
        self.reply, self.asked, self.study = reply, 0, study
        self.sessions = Sessions(seal=lambda frame: frame, on_event=lambda *_: None)

        def outcome_for(seat, digest):
            return Outcome(study.digest, digest, np.ones(3, bool))

        self.opened = {study.digest: OpenStudy(study, ledger, outcome_for)}

    def connect(self, times=1):
        """Whether the last session stays."""

        async def once():
            async def send(ask):
                self.asked += 1
                answer = Answer(ask.nonce, ask.round, ask.study, ask.seat, EMPTY, EMPTY, encode(self.reply))
                session.answered(answer, b"signed")

            session = Session(Identity(SEAT, "party", CERTIFICATE), bytes(NONCE_BYTES), send, "", "", 1, serves=True)
            await self.sessions.add(session)
            heads = SeatHeads(self.study.digest, SEAT, EMPTY, EMPTY, MISSED)
            await self.sessions.tell(session, self.opened, [heads], aside)
            assert session.told.is_set()
            return self.sessions.remove(session)

        return [asyncio.run(once()) for _ in range(times)][-1]

    @property
    def faults(self):
        """How many faults were counted."""
        left = 0
        while self.sessions.admission.fault(SEAT):
            left += 1
        return FAULTS - left


@pytest.mark.parametrize("code", ["storage_failed", "study_ended", "withdrawn", "unknown_study"])
def test_a_party_that_cannot_take_an_outcome_says_so_once_and_is_not_at_fault(ledger, code):
    telling = Telling(ledger, Refusal(code, "no"))
    assert telling.connect(times=2)
    assert telling.asked == 2
    assert telling.faults == 0


def test_a_study_that_ended_is_told_of_no_more(ledger):
    telling = Telling(ledger, Refusal("study_ended", "no"), study=replace_end("2020-01-01"))
    assert telling.connect()
    assert telling.asked == 0


def replace_end(day):
    return replace(STUDY, terms=replace(STUDY.terms, ends=day))


LIES = {"bad_receipt": Settled(bytes(range(32)), 1), "malformed": Outcome(STUDY.digest, MISSED[0], np.ones(3, bool))}


@pytest.mark.parametrize("lie", LIES)
def test_what_no_honest_party_answers_is_one_fault_of_its_session_and_shuts_it_out_in_the_end(ledger, lie):
    telling = Telling(ledger, LIES[lie])
    assert telling.connect(times=4)
    assert telling.asked == 4
    assert telling.faults == 4
    assert not telling.connect()
