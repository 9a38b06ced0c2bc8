"""Coordinator and guardian over real mutual TLS on loopback: who may converse, with whom, and every way it ends."""

import datetime
import json
import os
import socket
import threading
from contextlib import contextmanager
from dataclasses import replace

import grpc
import pytest

from coordinator.connection.guardian_dialling import check_guardian, dial
from protocols.crypto.channel import Channel
from protocols.crypto.identity import GUARDIAN_HOST, key_to_pem, new_authority, new_key, to_pem
from protocols.errors import BudgetExceeded, ChannelClosed, InvalidInput, MalformedMessage, Refused, StorageFailed
from protocols.wire.guardian.greeting import CONVERSE_METHOD, Opening
from protocols.wire.guardian.stream import CARRIED_BYTES, EndedByPeer
from tests.harness.clocks import wait_until
from tests.harness.guardians import Echo, Guardianship, guarded_study
from tests.harness.studies import NOW, deployed_study


@pytest.fixture(scope="module")
def served():
    """One port for the tests that leave it as it was: its world and the coordinator's line to it."""
    world = Guardianship()
    with world.open() as line:
        yield world, line


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
        with pytest.raises(ChannelClosed, match="busy"), dial(world.study, line):
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

    with pytest.raises(RuntimeError, match="stop"):
        break_off()
    wait_until(lambda: not world.busy.locked())
    assert "conversation_broke" in world.codes()
    with dial(world.study, line) as channel:
        channel.send(b"end")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"role": "party"}, "wrong_role"),
        ({"name": "another-centre"}, "other_coordinator"),
        ({"name": "another-centre", "role": "party"}, "wrong_role"),
    ],
)
def test_only_the_coordinator_of_the_terms_is_let_in(served, changes, code):
    world, line = served
    with pytest.raises(Refused, match=code) as refused:
        check_guardian(world.study, world.line(line.address, **changes))
    assert refused.value.code == code
    assert world.codes()[-1] == code


def test_a_coordinator_with_a_guardians_certificate_is_not_let_in(served):
    world, line = served
    # A guardian's certificate is for servers alone: TLS does not take it from whoever dials.
    with pytest.raises(ChannelClosed, match="does not answer"):
        check_guardian(world.study, world.line(line.address, role="guardian"))


def test_an_expired_or_foreign_certificate_of_the_coordinator_is_not_let_in(served):
    world, line = served
    past = NOW - datetime.timedelta(days=9)
    expired = world.certify(world.key, "centre", "coordinator", days=3, now=past)
    with pytest.raises(ChannelClosed, match="does not answer"):
        check_guardian(world.study, replace(line, certificate=expired))
    stranger = Guardianship()
    with pytest.raises(Refused, match="wrong_authority"):
        check_guardian(world.study, stranger.line(line.address))
    wrong = replace(stranger.line(line.address), authority=world.authority)
    with pytest.raises(ChannelClosed, match="does not answer"):
        check_guardian(world.study, wrong)


def test_a_coordinator_that_the_guardian_denies_is_not_let_in():
    world = Guardianship(denied_there={"centre": "its key was read by others"})
    with world.open() as line, pytest.raises(Refused, match=r"revoked.*read by others"):
        check_guardian(world.study, line)


def test_a_study_that_was_not_approved_or_has_ended_is_refused(served):
    world, line = served
    with pytest.raises(Refused, match="unknown_study"):
        check_guardian(guarded_study(4), line)
    study = guarded_study()
    ended = replace(study, terms=replace(study.terms, ends="2020-01-01"))
    world = Guardianship(study=ended)
    with world.open() as line, pytest.raises(Refused, match="study_ended"):
        check_guardian(ended, line)


def test_a_guardian_of_another_name_than_the_terms_is_refused():
    other = Guardianship()
    with other.open(name="another-notary") as line, pytest.raises(Refused, match=r"wrong_guardian.*'notary'"):
        check_guardian(other.study, line)


def test_a_guardian_that_is_denied_is_refused():
    world = Guardianship(denied={"notary": "revoked by the operator"})
    with world.open() as line:
        with pytest.raises(Refused, match="revoked"):
            check_guardian(world.study, line)
        with pytest.raises(Refused, match="revoked"), dial(world.study, line):
            pass


@pytest.mark.parametrize("role", ["coordinator", "party"])
def test_whoever_answers_with_another_role_is_no_guardian(role):
    world = Guardianship(role=role)
    with world.open(name="centre") as line, pytest.raises(Refused, match="another organisation") as refused:
        check_guardian(world.study, line)
    assert refused.value.code == "wrong_role"


def test_a_guardian_with_the_coordinators_own_key_is_the_same_organisation():
    world = Guardianship()
    with world.open(key=world.key) as line, pytest.raises(Refused, match="same_organisation"):
        check_guardian(world.study, line)
    assert "same_organisation" in world.codes()  # the guardian sees it too


@pytest.mark.parametrize("name", ["centre", "hospital-1"])
def test_terms_that_name_the_coordinator_or_a_party_as_guardian_make_no_study(name):
    with pytest.raises(InvalidInput, match="another organisation"):
        guarded_study(guardian=name)


def test_a_missing_address_an_absent_guardian_and_a_level_without_one_are_named():
    world = Guardianship()
    with pytest.raises(InvalidInput, match='allowed: guardian = "HOST:PORT"'):
        check_guardian(world.study, world.line(""))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ChannelClosed, match=f"the guardian at {address} does not answer"):
            check_guardian(world.study, world.line(address))
    with pytest.raises(InvalidInput, match="level is 'clear'"):
        check_guardian(deployed_study(3), world.line("127.0.0.1:1"))


def test_a_guardian_of_another_consortium_is_refused(served):
    world, line = served
    foreign = new_authority(new_key(), name="other", now=NOW, days=9)
    with pytest.raises(Refused, match="wrong_authority"):
        check_guardian(world.study, replace(line, authority=foreign))


@pytest.mark.parametrize(
    ("error", "event", "ends"),
    [
        (Refused("other_submission", "submitted before"), "other_submission", ChannelClosed),
        (BudgetExceeded("cap"), "budget_exceeded", ChannelClosed),
        (MalformedMessage("share 17"), "malformed", ChannelClosed),
        (ChannelClosed("gone"), "conversation_broke", ChannelClosed),
        (StorageFailed("/secret/path is full"), "storage_failed", EndedByPeer),
        (ValueError("share 17"), "ValueError", Refused),
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
        assert "17" not in str(said.value)
        assert "/secret" not in str(said.value)
        wait_until(lambda: not world.busy.locked())
        assert event in world.codes()
        assert "17" not in json.dumps(world.events)
        assert check_guardian(world.study, line).name == "notary"


def test_a_guardian_that_is_silent_counts_as_gone():
    world, hold = Guardianship(silence_s=0.3), threading.Event()

    class Silent:
        def serve(self, channel):
            hold.wait(300)

    world.guardian = Silent()
    with world.open() as line:
        with pytest.raises(ChannelClosed, match="sent nothing"), dial(world.study, line) as channel:
            channel.recv(9)
        hold.set()


def test_a_coordinator_that_is_silent_counts_as_gone():
    world = Guardianship(silence_s=0.3)
    with world.open() as line, dial(world.study, line):
        wait_until(lambda: not world.busy.locked() and "conversation_broke" in world.codes())


def test_a_guardian_that_stops_says_so_and_one_that_comes_back_is_asked_again():
    world = Guardianship()
    with world.open() as line:
        conversation = dial(world.study, line)
        channel = conversation.__enter__()
        channel.send(b"heard")
        assert channel.recv(9) == b"heard"
    with pytest.raises(ChannelClosed, match="going_away"):
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
    with world.open() as line, pytest.raises(Refused, match="certificate_expired"):
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


@contextmanager
def raw_stream(line, pieces):
    """The pieces that a port answers to any pieces, from whoever holds this line's key."""
    credentials = grpc.ssl_channel_credentials(to_pem(line.authority), key_to_pem(line.key), to_pem(line.certificate))
    options = [("grpc.ssl_target_name_override", GUARDIAN_HOST), ("grpc.max_send_message_length", 2**24)]
    with grpc.secure_channel(line.address, credentials, options) as channel:
        yield channel.stream_stream(CONVERSE_METHOD)(iter(pieces), timeout=300)


@pytest.mark.parametrize(
    "pieces",
    [
        [],
        [b""],
        [b"\x07"],
        [b"\x01"],
        [b"\x01" + bytes(50)],
        [b"\x01" + bytes(CARRIED_BYTES)],
        [b"\x00" + bytes(CARRIED_BYTES - 1)],
        [b"\x02busy\nnobody"],
        [b"\x01"] * 1000,
        [bytes(2**23)],
    ],
    ids=["nothing", "no kind", "no such kind", "empty", "zeros", "too long", "a part alone", "goodbye", "many", "huge"],
)
def test_whatever_a_coordinator_sends_the_port_answers_or_hangs_up_and_serves_on(served, pieces):
    world, line = served
    with raw_stream(line, pieces) as answers:
        try:
            assert all(len(piece) <= CARRIED_BYTES for piece in answers)
        except grpc.RpcError as error:
            assert error.code() in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.CANCELLED)  # noqa: PT017
    check_guardian(world.study, line)


def test_without_a_certificate_nobody_gets_through(served):
    world, line = served
    credentials = grpc.ssl_channel_credentials(to_pem(world.authority))
    options = [("grpc.ssl_target_name_override", GUARDIAN_HOST)]
    with grpc.secure_channel(line.address, credentials, options) as channel:
        call = channel.stream_stream(CONVERSE_METHOD)(iter([b""]), timeout=300)
        with pytest.raises(grpc.RpcError) as refused:
            list(call)
    assert refused.value.code() == grpc.StatusCode.UNAVAILABLE


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


def test_an_opening_of_another_version_is_refused(served, monkeypatch):
    world, line = served
    real = Opening.encode
    monkeypatch.setattr(Opening, "encode", lambda opening: b"\x02" + real(opening)[1:])
    with pytest.raises(Refused, match="wire_version"):
        check_guardian(world.study, line)
    monkeypatch.setattr(Opening, "encode", lambda opening: b"\x01")
    with pytest.raises(Refused, match="malformed"):
        check_guardian(world.study, line)
