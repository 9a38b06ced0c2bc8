"""A hospital of the consortium as the attacker: it holds the guardian's port so that nobody else is served."""

import threading
from contextlib import ExitStack, contextmanager

import grpc

from coordinator.serving import check_guardian
from guardian.port import _EACH
from protocols.crypto.identity import GUARDIAN_HOST, key_to_pem, new_key, to_pem
from protocols.wire.guardian import CONVERSE_METHOD
from tests.harness.clocks import wait_until
from tests.harness.refusals import refused_for

STREAMS = 40


@contextmanager
def held_streams(line, count):
    """So many streams to the port that say nothing until the end; the calls."""
    credentials = grpc.ssl_channel_credentials(to_pem(line.authority), key_to_pem(line.key), to_pem(line.certificate))
    options = [("grpc.ssl_target_name_override", GUARDIAN_HOST), ("grpc.use_local_subchannel_pool", 1)]
    over = threading.Event()

    def pieces():
        over.wait(300)
        yield from ()

    with ExitStack() as stack:
        stack.callback(over.set)
        calls = []
        for _ in range(count):
            channel = stack.enter_context(grpc.secure_channel(line.address, credentials, options))
            calls.append(channel.stream_stream(CONVERSE_METHOD)(pieces(), timeout=300))
        yield calls
        for call in calls:
            call.cancel()


def test_a_hospital_that_asks_in_no_study_cannot_keep_the_coordinator_out(served):
    """Before, 16 silent streams of any hospital were enough: the coordinator got RESOURCE_EXHAUSTED for ever."""
    world, line = served
    before, key = len(world.events), new_key()
    hospital = world.line(line.address, key=key, certificate=world.certify(key, "hospital-1", "party"))
    with held_streams(hospital, STREAMS) as calls:
        assert check_guardian(world.study, line).name == "notary"
        for call in calls:
            assert b"not_querier" in next(call)
    logged = [fields["times"] for _, fields in world.events[before:] if fields.get("code") == "not_querier"]
    assert logged == [1, 2, 4, 8, 16, 32]
    assert world.guardian.heard == 0


def test_one_that_may_ask_holds_so_many_places_and_leaves_the_others(served):
    world, line = served
    with held_streams(line, STREAMS):
        busy = STREAMS - _EACH
        wait_until(lambda: any(busy // 2 < fields.get("times", 0) <= busy for _, fields in said(world, "busy")))
        key = new_key()
        other = world.line(line.address, key=key, certificate=world.certify(key, "hospital-2", "party"))
        with refused_for("not_querier"):  # which is an answer, from a port that has room
            check_guardian(world.study, other)
        assert world.guardian.heard == 0


def said(world, code):
    return [each for each in world.events if each[1].get("code") == code]
