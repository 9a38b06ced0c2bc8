"""The operator's relay between an asking hospital and the others: whom it serves, and what it refuses."""

import os
import threading
from dataclasses import replace

import pytest

from party.asking.asking import Relayed
from party.connection.dialling import RelayLine
from protocols.crypto.identity import new_key
from protocols.errors import Refused
from protocols.ledger.ledger import Ledger
from protocols.levels.hidden_queries.sealing import Beginning, Computation
from protocols.wire.messages import Refusal, StepReply, StepRequest
from tests.harness.askers import ASKER_KEY, asked_study
from tests.harness.refusals import refused_for

STUDY = asked_study()


def first_step(study=STUDY, queries=4):
    """The first step of a computation with hospital-0."""
    computation = Computation(study, bytes(32), "hospital-0", queries)
    arrays = Beginning(computation, key=ASKER_KEY, source=os.urandom).arrays()
    return StepRequest(study.digest, bytes(32), "architecture", arrays)


def passed(consortium, line, seat="hospital-0", study=STUDY, request=None, folder=None):
    """What comes back for one step of a party."""
    step = request or first_step(study)
    with (
        Ledger(":memory:") as own,
        RelayLine(address=line.hub, key=line.key, certificate=line.certificate, authority=line.authority) as relay,
    ):
        return Relayed(study, line, own, relay)({seat: step})[seat]


def test_the_relay_serves_the_querier_of_the_study_alone(consortium):
    assert isinstance(passed(consortium, consortium.line()), StepReply)
    with refused_for("not_querier"):
        passed(consortium, consortium.line(name="hospital-0", key=new_key()))
    consortium.denied["asker"] = "it left"
    with refused_for("revoked"):
        passed(consortium, consortium.line())


def test_the_relay_refuses_other_studies_seats_and_replies_that_come_as_requests(consortium):
    line = consortium.line()
    for changes, code in (
        ({"study": asked_study(name="other")}, "unknown_study"),
        ({"seat": "hospital-9"}, "wrong_seat"),
        ({"request": StepReply(bytes(32), "architecture", ())}, "malformed"),
        ({"request": replace(first_step(), study=bytes(32))}, "malformed"),
    ):
        with pytest.raises(Refused) as refused:
            passed(consortium, line, **changes)
        assert refused.value.code == code


def test_a_party_refuses_what_it_would_refuse_from_its_operator(consortium):
    many = first_step(queries=11)
    reply = passed(consortium, consortium.line(), request=many)
    assert isinstance(reply, Refusal)
    assert reply.code == "batch_too_large"


class SilentRelay:
    """A party's answer that never comes, until the line is closed."""

    def __init__(self):
        self.closed = threading.Event()
        self.close = self.closed.set

    def passed(self, frame, *, timeout_s):
        self.closed.wait(timeout=300)


def test_ctrl_c_while_requests_are_being_sent_waits_for_no_answer(consortium):
    class Interrupted(dict):
        def __iter__(self):
            yield "hospital-0"
            raise KeyboardInterrupt

    relay = SilentRelay()
    step = first_step()
    with Ledger(":memory:") as own, pytest.raises(KeyboardInterrupt):
        Relayed(STUDY, consortium.line(), own, relay)(Interrupted({"hospital-0": step}))
    assert relay.closed.is_set()
