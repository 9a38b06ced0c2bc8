"""The in-memory channel keeps order, limits and endings."""

import pytest

from protocols.crypto.channel import pair
from protocols.errors import ChannelClosed, MalformedMessage
from tests.harness.refusals import refuses


def test_messages_arrive_in_order_and_both_ways() -> None:
    here, there = pair()
    for message in (b"one", b"", b"three"):
        here.send(message)
    there.send(b"back")
    assert [there.recv(10) for _ in range(3)] == [b"one", b"", b"three"]
    assert here.recv(4) == b"back"
    assert here.sent == 8


def test_a_message_above_the_limit_is_malformed() -> None:
    here, there = pair()
    here.send(b"12345")
    with refuses(MalformedMessage, 5, 4):
        there.recv(4)


def test_a_closed_end_is_said_each_time_after_what_was_sent() -> None:
    here, there = pair()
    here.send(b"last")
    here.close()
    assert there.recv(4) == b"last"
    for _ in range(2):
        with pytest.raises(ChannelClosed):
            there.recv(4)


def test_silence_ends_the_wait() -> None:
    _, there = pair(wait_s=0.01)
    with pytest.raises(ChannelClosed, match="the other side sent nothing"):
        there.recv(4)
