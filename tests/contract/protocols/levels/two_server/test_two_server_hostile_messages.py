"""Whatever the other server sends, a side ends with an error that says so, or with a result: never else."""

import contextlib
import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.errors import ChannelClosed, MalformedMessage, Refused
from protocols.levels.two_server.shares import share_votes
from protocols.levels.two_server.sketch import Ballots, coordinator_checks, guardian_checks
from tests.harness.refusals import refuses
from tests.harness.seeded import seeded_source
from tests.harness.two_server_sides import coordinator_side, guardian_side

QUERIES, CLASSES, VOTERS = 3, 3, 2
VOTES = np.zeros((VOTERS, QUERIES), dtype=np.int64)
SHARES = share_votes(VOTES, classes=CLASSES, context=b"x", source=seeded_source(1))
BALLOTS = Ballots(np.ones((VOTERS, QUERIES), dtype=bool), CLASSES, False, b"x")
COUNTS = np.arange(QUERIES * CLASSES, dtype=np.uint32).reshape(QUERIES, CLASSES)
NOISE = np.zeros((QUERIES, CLASSES), dtype=np.int64)

SIDES = {
    "the coordinator's check": lambda channel: coordinator_checks(
        channel, SHARES[0], BALLOTS, secret=seeded_source(2)(32), pin=lambda step, value: None),
    "the guardian's check": lambda channel: guardian_checks(
        channel, SHARES[1], BALLOTS, secret=seeded_source(3)(32), pin=lambda step, value: None),
    "the coordinator's argmax": lambda channel: coordinator_side(
        channel, COUNTS, noise=NOISE, threshold=2, total_units=9, source=seeded_source(4),
    ),
    "the guardian's argmax": lambda channel: guardian_side(
        channel, COUNTS, noise=NOISE, threshold=2, total_units=9, source=seeded_source(5)
    ),
}  # fmt: skip
OTHER = {
    "the coordinator's check": "the guardian's check", "the guardian's check": "the coordinator's check",
    "the coordinator's argmax": "the guardian's argmax", "the guardian's argmax": "the coordinator's argmax",
}  # fmt: skip


class Scripted:
    """A channel that gives prepared messages and then is closed; keeps what it was sent."""

    def __init__(self, messages):
        self.messages, self.sent = list(messages), []

    def send(self, data):
        self.sent.append(bytes(data))

    def recv(self, limit):
        if not self.messages:
            raise ChannelClosed("the other side closed the channel")
        data = self.messages.pop(0)
        if len(data) > limit:
            raise MalformedMessage(f"message has {len(data)} bytes; allowed: at most {limit}")
        return data


@functools.cache
def honest_messages():
    """What each side receives in an honest run, found by letting both go on as far as they can, again and again."""
    received = {name: [] for name in SIDES}
    for name, other in OTHER.items():
        while True:
            channel = Scripted(received[name])
            with contextlib.suppress(ChannelClosed):
                SIDES[name](channel)
            there = Scripted(channel.sent)
            with contextlib.suppress(ChannelClosed):
                SIDES[other](there)
            if there.sent == received[name]:
                break
            received[name] = there.sent
    return received


def ends_cleanly(name, messages):
    """Whether the side gave a result; anything but the errors that a run may end with is raised."""
    try:
        SIDES[name](Scripted(messages))
    except (MalformedMessage, ChannelClosed, Refused):
        return False
    return True


@pytest.mark.parametrize("name", SIDES)
def test_an_honest_run_ends_with_a_result(name) -> None:
    assert ends_cleanly(name, honest_messages()[name])


@pytest.mark.parametrize("name", SIDES)
@given(messages=st.lists(st.binary(max_size=200), max_size=4))
@settings(max_examples=8)
def test_random_bytes_are_refused(name, messages) -> None:
    assert not ends_cleanly(name, messages)


@pytest.mark.parametrize("name", SIDES)
@given(data=st.data())
@settings(max_examples=8)
def test_random_bytes_of_the_right_length_do_no_harm(name, data) -> None:
    """Honest messages up to one, and from there on bytes of the lengths that are expected."""
    honest = honest_messages()[name]
    kept = data.draw(st.integers(0, len(honest) - 1))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    ends_cleanly(name, honest[:kept] + [rng.bytes(len(message)) for message in honest[kept:]])


@pytest.mark.parametrize("name", SIDES)
@given(data=st.data())
@settings(max_examples=8)
def test_a_message_cut_or_lengthened_is_refused(name, data) -> None:
    messages = list(honest_messages()[name])
    position = data.draw(st.integers(0, len(messages) - 1))
    cut = data.draw(st.integers(0, len(messages[position]) + 3).filter(lambda n: n != len(messages[position])))
    messages[position] = (messages[position] + b"abc")[:cut]
    assert not ends_cleanly(name, messages)


@pytest.mark.parametrize("name", SIDES)
def test_messages_that_stop_close_the_run(name) -> None:
    for kept in range(len(honest_messages()[name])):
        with pytest.raises(ChannelClosed):
            SIDES[name](Scripted(honest_messages()[name][:kept]))


def test_what_was_not_committed_to_is_refused() -> None:
    first, *rest = honest_messages()["the guardian's check"]
    for at, message in enumerate(rest):
        changed = bytes([message[0] ^ 1]) + message[1:]
        with refuses(MalformedMessage, "committed"):
            SIDES["the guardian's check"](Scripted([first, *rest[:at], changed]))


def test_an_element_of_p_or_more_is_refused() -> None:
    number, *messages = honest_messages()["the coordinator's check"]
    for at, message in enumerate(messages):
        for changed in (message[:-4] + b"\xff" * 4, b"\xff\xff\xff\x7f" + message[4:]):
            with refuses(MalformedMessage, "field element"):
                SIDES["the coordinator's check"](Scripted([number, *messages[:at], changed]))
