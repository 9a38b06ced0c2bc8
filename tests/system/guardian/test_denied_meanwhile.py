"""Whoever is denied while a conversation or a relayed call is open loses it within a poll, on all three sides."""

import asyncio

import pytest

from coordinator.connection.hub import _unless_denied
from coordinator.serving import dial
from protocols.errors import Refused
from tests.harness.clocks import wait_until
from tests.harness.refusals import refused_for, refuses


@pytest.fixture
def sides(served):
    world, line = served
    yield world, line
    world.denied.clear()
    world.denied_there.clear()


def denied_meanwhile(world, line, deny):
    """A conversation in which one side is denied, and then waits for the other's next message."""
    with dial(world.study, line) as channel:
        channel.send(b"heard")
        assert channel.recv(9) == b"heard"
        deny()
        channel.recv(9)


def test_a_guardian_cuts_an_open_conversation_with_a_coordinator_that_it_denies(sides):
    world, line = sides
    with refuses(Refused, "centre"):
        denied_meanwhile(world, line, lambda: world.denied_there.update(centre="leaked"))
    wait_until(lambda: not world.busy.locked())
    assert ("conversation_cut", "revoked") in [(event, fields.get("code")) for event, fields in world.events]


def test_a_coordinator_cuts_an_open_conversation_with_a_guardian_that_it_denies(sides):
    world, line = sides
    with refuses(Refused, "notary"):
        denied_meanwhile(world, line, lambda: world.denied.update(notary="leaked"))
    wait_until(lambda: not world.busy.locked())
    world.denied.clear()
    with dial(world.study, line) as channel:
        channel.send(b"end")


def test_a_guardian_hears_nothing_more_of_a_coordinator_that_it_denied(sides):
    world, line = sides

    def talk():
        with dial(world.study, line) as channel:
            world.denied_there["centre"] = "leaked"
            wait_until(lambda: not world.busy.locked())
            heard.append(world.guardian.heard)
            while True:
                channel.send(b"x")
                channel.recv(9)

    heard = []
    with refused_for("revoked"):
        talk()
    assert heard == [world.guardian.heard]


def test_a_relay_cuts_the_open_call_of_a_querying_hospital_that_is_revoked():
    reached = []

    async def answer() -> bytes:
        try:
            await asyncio.Event().wait()  # a hospital that does not answer
        finally:
            reached.append("ended")
        return b""

    async def check() -> None:
        reached.append("looked")
        if len(reached) == 2:
            raise Refused("revoked", "the party 'asker' is denied: leaked")

    with refused_for("revoked"):
        asyncio.run(_unless_denied(answer(), check))
    assert reached == ["looked", "looked", "ended"]


def test_a_relayed_call_that_is_answered_is_not_held_up_by_the_looks():
    async def answer() -> bytes:
        return b"answer"

    async def check() -> None:
        raise AssertionError

    assert asyncio.run(_unless_denied(answer(), check)) == b"answer"
