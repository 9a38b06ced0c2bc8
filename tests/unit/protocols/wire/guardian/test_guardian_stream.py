"""A channel out of pieces: messages of any size in order, waiting, silence, and every end of it."""

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.errors import ChannelClosed, MalformedMessage
from protocols.wire.guardian import CARRIED_BYTES, PIECE_BYTES, EndedByPeer, GuardianStream
from tests.harness.refusals import refuses

END, PART = b"\x01", b"\x00"


def joined(*, silence_s=300.0):
    """Two ends, each carried to the other by a thread."""
    here, there, _ = carried(silence_s)
    return here, there


def carried(silence_s=300.0):
    """`joined`, and the threads."""
    here, there = GuardianStream(silence_s=silence_s), GuardianStream(silence_s=silence_s)
    carriers = [
        threading.Thread(target=one.feed, args=(other.outgoing(),), daemon=True)
        for one, other in ((here, there), (there, here))
    ]
    for each in carriers:
        each.start()
    return here, there, carriers


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from([0, 1, 7, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 2 * PIECE_BYTES])))
def test_messages_of_every_size_arrive_whole_and_in_order(sizes):
    here, there, carriers = carried()
    messages = [bytes([at % 251]) * size for at, size in enumerate(sizes)]
    for message in messages:
        here.send(message)
    assert [there.recv(2 * PIECE_BYTES) for _ in messages] == messages
    here.close()
    with pytest.raises(ChannelClosed, match="closed the channel"):
        there.recv(1)
    there.close()
    # Checks of types in them draw from `random`, which hypothesis watches.
    for each in carriers:
        each.join(300)


def test_both_sides_may_send_before_either_reads():
    here, there = joined()
    large = bytes(40 * 2**20)
    here.send(large)
    there.send(large)
    assert len(there.recv(len(large))) == len(here.recv(len(large))) == len(large)
    here.close()
    there.close()


def test_a_message_above_the_limit_is_refused_before_all_of_it_is_kept_and_the_other_way_stays_open():
    here, there = joined()
    here.send(bytes(3 * PIECE_BYTES))
    with refuses(MalformedMessage, 99):
        there.recv(99)
    with pytest.raises(ChannelClosed, match="too large"):
        there.recv(10**9)
    there.send(b"no")
    assert here.recv(2) == b"no"
    here.abort("")
    there.abort("")


def test_a_silent_side_counts_as_gone():
    here, _ = joined(silence_s=0.05)
    with refuses(ChannelClosed, "0.05"):
        here.recv(1)
    with refuses(ChannelClosed, "0.01"):
        here.recv(1, within_s=0.01)


def test_a_side_that_reads_nothing_counts_as_gone():
    alone = GuardianStream(silence_s=0.05)
    alone.send(bytes(65 * 2**20))
    with pytest.raises(ChannelClosed, match="read nothing"):
        alone.send(b"one more")


def test_what_was_sent_before_a_close_arrives_and_what_was_sent_before_an_abort_need_not():
    here, there = joined()
    here.send(b"last words")
    here.close()
    assert here.carried(timeout_s=300)
    assert there.recv(99) == b"last words"
    with pytest.raises(ChannelClosed, match="this side closed"):
        here.send(b"more")
    broken = GuardianStream(silence_s=1.0)
    broken.send(b"lost")
    broken.abort("the line broke")
    assert list(broken.outgoing()) == []
    for use in (lambda: broken.send(b""), lambda: broken.recv(1)):
        with pytest.raises(ChannelClosed, match="the line broke"):
            use()


def test_a_goodbye_says_why_after_what_was_sent_before_it():
    here, there = joined()
    here.send(b"first")
    here.say_goodbye("busy", "later\x07")
    assert there.recv(9) == b"first"
    with refuses(EndedByPeer, "busy") as said:
        there.recv(9)
    assert said.value.code == "busy"
    there.say_goodbye("gone", "too")


@pytest.mark.parametrize(
    "piece",
    [b"", b"\x03", PART + b"not full", END + bytes(CARRIED_BYTES), b"\xff" * CARRIED_BYTES],
    ids=["empty", "unknown kind", "a part that is not full", "too long", "full and unknown"],
)
def test_a_piece_that_is_none_ends_the_stream(piece):
    stream = GuardianStream(silence_s=1.0)
    stream.feed(iter([END + b"fine", piece, END + b"never read"]))
    assert stream.recv(9) == b"fine"
    with pytest.raises(ChannelClosed, match="none of this wire"):
        stream.recv(9)


@given(st.lists(st.binary(max_size=30), max_size=8))
def test_any_pieces_give_messages_or_the_end_of_the_stream(pieces):
    stream = GuardianStream(silence_s=1.0)
    stream.feed(iter(pieces))
    with pytest.raises(ChannelClosed):
        list(iter(lambda: stream.recv(100), None))


def test_where_the_carrier_breaks_the_stream_says_so():
    def pieces():
        yield END + b"one"
        raise ChannelClosed("the cable was cut")

    stream = GuardianStream(silence_s=1.0)
    stream.feed(pieces())
    assert stream.recv(3) == b"one"
    with refuses(ChannelClosed, "cable"):
        stream.recv(3)


def test_a_flood_that_nobody_reads_is_not_taken_in():
    stream, taken = GuardianStream(silence_s=1.0), []

    def flood():
        while True:
            taken.append(1)
            yield END

    reader = threading.Thread(target=stream.feed, args=(flood(),), daemon=True)
    reader.start()
    reader.join(0.5)
    assert reader.is_alive()
    assert len(taken) <= 2**16 + 2
    stream.abort("enough")
    reader.join(300)
    assert not reader.is_alive()
