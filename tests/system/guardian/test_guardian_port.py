"""Conversations of coordinator and guardian over real mutual TLS on loopback, and every way in which one ends."""

import datetime
import json
import os
import socket
import threading
from dataclasses import replace

import pytest

from coordinator.serving import check_guardian, dial
from protocols.crypto.channel import Channel
from protocols.errors import BudgetExceeded, ChannelClosed, InvalidInput, MalformedMessage, Refused, StorageFailed
from protocols.wire.guardian import EndedByPeer
from tests.harness.clocks import wait_until
from tests.harness.guardians import Echo, Guardianship
from tests.harness.refusals import refused_for, refuses
from tests.harness.studies import NOW, deployed_study


def test_a_conversation_carries_messages_both_ways_and_is_a_channel(served):
    world, line = served
    with dial(world.study, line) as channel:
        assert isinstance(channel, Channel)
        for message in (b"", b"a message", bytes(range(256)) * 40_000):
            channel.send(message)
            assert channel.recv(2**28) == message
        channel.send(b"end")
    wait_until(lambda: world.codes()[-1] == "conversation_ended")


def test_the_check_says_who_the_guardian_is_and_starts_nothing(served):
    world, line = served
    before = world.guardian.heard
    with dial(world.study, line):  # a check is no second conversation
        assert check_guardian(world.study, line).name == "notary"
    assert world.guardian.heard == before


def test_a_second_conversation_about_a_study_is_refused_while_one_is_open(served):
    world, line = served
    with dial(world.study, line) as channel:
        with refuses(ChannelClosed, "busy"), dial(world.study, line):
            pass
        channel.send(b"end")
    wait_until(lambda: not world.busy.locked())
    with dial(world.study, line) as channel:
        channel.send(b"end")


def test_a_coordinator_that_breaks_off_leaves_the_guardian_free_for_the_next(served):
    world, line = served

    def break_off():
        with dial(world.study, line) as channel:
            channel.send(b"heard")
            assert channel.recv(9) == b"heard"
            raise RuntimeError("stop")

    with refuses(RuntimeError, "stop"):
        break_off()
    wait_until(lambda: not world.busy.locked() and "conversation_broke" in world.codes())
    with dial(world.study, line) as channel:
        channel.send(b"end")


def test_a_missing_address_an_absent_guardian_and_a_level_without_one_are_named():
    world = Guardianship()
    with refuses(InvalidInput, "HOST", "PORT"):
        check_guardian(world.study, world.line(""))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with refuses(ChannelClosed, address):
            check_guardian(world.study, world.line(address))
    with refuses(InvalidInput, "level", "clear"):
        check_guardian(deployed_study(3), world.line("127.0.0.1:1"))


@pytest.mark.parametrize(
    ("error", "event", "ends"),
    [
        (Refused("other_submission", "submitted before"), "other_submission", ChannelClosed),
        (BudgetExceeded("cap"), "budget_exceeded", ChannelClosed),
        (MalformedMessage("share 8642097531"), "malformed", ChannelClosed),
        (ChannelClosed("gone"), "conversation_broke", ChannelClosed),
        (StorageFailed("/secret/path is full"), "storage_failed", EndedByPeer),
        (ValueError("share 8642097531"), "ValueError", Refused),
    ],
)
def test_however_a_conversation_fails_the_coordinator_is_told_no_more_than_it_may_know(error, event, ends):
    world = Guardianship(guardian=Echo({b"fail": error}))

    def converse(line):
        with dial(world.study, line) as channel:
            channel.send(b"fail")
            channel.recv(99)

    with world.open() as line:
        with pytest.raises(ends) as said:
            converse(line)
        assert "8642097531" not in str(said.value)
        assert "/secret" not in str(said.value)
        wait_until(lambda: not world.busy.locked() and event in world.codes())
        assert "8642097531" not in json.dumps(world.events)
        assert check_guardian(world.study, line).name == "notary"


def test_a_guardian_that_is_silent_counts_as_gone():
    world, hold = Guardianship(), threading.Event()

    class Silent:
        def serve(self, channel):
            hold.wait(300)

    world.guardian = Silent()
    with world.open() as line:
        impatient = replace(line, silence_s=0.3)
        with pytest.raises(ChannelClosed, match="sent nothing"), dial(world.study, impatient) as channel:
            channel.recv(9)
        hold.set()


def test_a_coordinator_that_is_silent_counts_as_gone():
    world = Guardianship(silence_s=1.0)
    with world.open() as line, dial(world.study, replace(line, silence_s=300.0)):
        wait_until(lambda: not world.busy.locked() and "conversation_broke" in world.codes())


def test_a_guardian_that_stops_says_so_and_one_that_comes_back_is_asked_again():
    world = Guardianship()
    with world.open() as line:
        conversation = dial(world.study, line)
        channel = conversation.__enter__()
        channel.send(b"heard")
        assert channel.recv(9) == b"heard"
    with refuses(ChannelClosed, "going_away"):
        channel.recv(9)
    conversation.__exit__(None, None, None)
    with pytest.raises(ChannelClosed, match="does not answer"):
        check_guardian(world.study, line)
    with world.open(listen=line.address):
        assert check_guardian(world.study, line).name == "notary"


def test_a_port_that_stops_waits_for_a_conversation_that_computes():
    world, computing, done = Guardianship(), threading.Event(), []

    class Computes:
        def serve(self, channel):
            computing.set()
            hold.wait(300)
            done.append(True)
            channel.send(b"late")

    world.guardian, hold = Computes(), threading.Event()
    with world.open() as line:
        conversation = dial(world.study, line)
        conversation.__enter__()
        assert computing.wait(300)
        threading.Timer(0.3, hold.set).start()
    assert done == [True]
    conversation.__exit__(None, None, None)


def test_a_port_that_is_taken_is_named(served):
    world, line = served
    with pytest.raises(InvalidInput, match="cannot listen on"), world.open(listen=line.address):
        pass


def test_a_guardian_whose_certificate_has_ended_is_named_as_such():
    world = Guardianship(days=3, since=NOW - datetime.timedelta(days=9))
    with world.open() as line, refused_for("certificate_expired"):
        check_guardian(world.study, line)


def test_a_study_that_the_guardian_can_no_longer_open_is_an_error_without_its_files(monkeypatch):
    world = Guardianship()

    def find(digest):
        raise InvalidInput("/secret/path was changed")

    monkeypatch.setattr(world, "find", find)
    with world.open() as line, pytest.raises(Refused, match="log says why") as refused:
        check_guardian(world.study, line)
    assert refused.value.code == "error"
    assert "/secret" not in str(refused.value)
    assert "/secret" in json.dumps(world.events)


def test_a_conversation_leaves_no_thread_and_no_file_open(served):
    world, line = served

    def converse():
        with dial(world.study, line) as channel:
            channel.send(b"end")
        wait_until(lambda: not world.busy.locked())

    def held():
        ours = ("guardian-conversation", "guardian-reader")
        return sum(each.name in ours for each in threading.enumerate()), len(os.listdir("/proc/self/fd"))

    converse()
    wait_until(lambda: held()[0] == 0)
    before = held()[1]
    for _ in range(20):
        converse()
    wait_until(lambda: held()[0] == 0)
    wait_until(lambda: held()[1] <= before + 4)
