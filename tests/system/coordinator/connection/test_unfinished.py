"""Strangers that begin calls and never finish them keep nobody from enrolling."""

import asyncio
import threading

import grpc
import pytest

from coordinator.connection import hub
from coordinator.connection.admission import Unfinished, network_of
from protocols.crypto.identity import COORDINATOR_HOST, to_pem
from protocols.wire.enrolment import ENROL_METHOD, Enrol, decode_enrolled, encode_enrol
from tests.harness.clocks import wait_until
from tests.harness.consortium import Consortium
from tests.harness.studies import deployed_study


def channel(consortium):
    credentials = grpc.ssl_channel_credentials(to_pem(consortium.authority))
    # Each channel has a connection of its own.
    options = [("grpc.ssl_target_name_override", COORDINATOR_HOST), ("grpc.use_local_subchannel_pool", 1)]
    return grpc.secure_channel(f"127.0.0.1:{consortium.enrol_port}", credentials, options)


def enrol(consortium):
    with channel(consortium) as line:
        message = encode_enrol(Enrol("hospital-7", b"t" * 32, b"request"))
        return decode_enrolled(line.unary_unary(ENROL_METHOD)(message, timeout=300)).code


def test_forty_calls_that_are_never_finished_do_not_keep_a_hospital_from_enrolling(tmp_path, monkeypatch):
    monkeypatch.setattr(hub, "_UNFINISHED_S", 600.0)
    over = threading.Event()

    def nothing():
        over.wait(300)
        yield from ()

    with Consortium(deployed_study(1), tmp_path) as consortium:
        lines = [channel(consortium) for _ in range(40)]
        try:
            calls = [line.stream_unary(ENROL_METHOD).future(nothing(), timeout=300) for line in lines]
            # The oldest of them gave way to those that came last.
            wait_until(lambda: sum(call.done() for call in calls) == 40 - hub._UNFINISHED)
            ended = [call for call in calls if call.done()]
            assert {call.exception().code() for call in ended} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
            assert [enrol(consortium) for _ in range(3)] == ["pending"] * 3
        finally:
            over.set()
            for line in lines:
                line.close()


def test_a_call_whose_message_does_not_come_ends_by_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(hub, "_UNFINISHED_S", 0.2)
    over = threading.Event()
    with Consortium(deployed_study(1), tmp_path) as consortium, channel(consortium) as line:
        call = line.stream_unary(ENROL_METHOD).future(iter(lambda: over.wait(300) and None, None), timeout=300)
        assert call.exception(timeout=300).code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        over.set()


def test_the_oldest_call_of_the_busiest_address_gives_way_and_nobody_elses():
    ended = []

    async def begin(calls, peer, name):
        try:
            async with calls.call(peer):
                await asyncio.Event().wait()
        except TimeoutError:
            ended.append(name)

    async def run():
        calls = Unfinished(most=4, longest_s=60.0)
        peers = ["ipv4:10.0.0.1:1", *[f"ipv4:10.0.0.9:{port}" for port in range(8)]]
        tasks = []
        for name, peer in enumerate(peers):
            tasks.append(asyncio.create_task(begin(calls, peer, name)))
            for _ in range(5):
                await asyncio.sleep(0)
        assert ended == [1, 2, 3, 4, 5]
        assert not tasks[0].done()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(run())


def test_a_call_that_begins_in_the_step_in_which_the_oldest_expires_goes_on():
    began, ended = [], []

    async def honest(calls):
        async with calls.call("ipv4:10.0.0.1:1"):
            began.append("honest")

    async def stranger(calls):
        try:
            async with calls.call("ipv4:10.0.0.9:1"):
                await asyncio.Event().wait()
        except TimeoutError:
            ended.append("stranger")

    async def run():
        calls = Unfinished(most=1, longest_s=0.05)
        first = asyncio.create_task(stranger(calls))
        await asyncio.sleep(0)
        (until,) = calls._calls
        until._on_timeout()  # as the loop calls it, before the one that it ends goes on
        assert until.expired()
        await honest(calls)
        await first

    asyncio.run(run())
    assert (began, ended) == (["honest"], ["stranger"])


@pytest.mark.parametrize(
    ("peer", "network"),
    [
        ("ipv4:127.0.0.1:99", "127.0.0.1"),
        ("ipv6:%5B2001:db8::1%5D:99", "2001:db8::/64"),
        ("ipv6:%5B2001:db8::2:3%5D:98", "2001:db8::/64"),
        ("unix:", "unix:"),
    ],
)
def test_addresses_that_one_stranger_may_have_count_as_one(peer, network):
    assert network_of(peer) == network
