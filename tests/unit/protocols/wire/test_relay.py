"""Frames that are passed on: pieces, limits, and what comes back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.errors import MalformedMessage
from protocols.wire.relay import RELAY_PIECE_BYTES, RELAYED_BYTES, Joined, passed_back, pieces, read_passed_back
from tests.harness.refusals import refuses


@pytest.mark.parametrize("size", [0, 1, RELAY_PIECE_BYTES - 1, RELAY_PIECE_BYTES, 2 * RELAY_PIECE_BYTES + 7])
def test_a_frame_comes_together_again_whatever_its_size(size):
    data, joined = bytes(range(256)) * (size // 256) + bytes(size % 256), Joined()
    for piece in pieces(data):
        assert len(piece) <= RELAY_PIECE_BYTES
        joined.add(piece)
    assert joined.data == data


def test_a_frame_that_never_ends_is_refused_once_it_is_too_large():
    joined = Joined()
    for _ in range(RELAYED_BYTES // RELAY_PIECE_BYTES):
        joined.add(bytes(RELAY_PIECE_BYTES))
    with refuses(MalformedMessage, "at most that"):
        joined.add(b"xx" * RELAY_PIECE_BYTES)


@given(st.binary(max_size=300), st.sampled_from(["", "absent", "not_querier"]), st.text(max_size=80))
def test_an_answer_or_a_code_comes_back_as_it_was_given(answer, code, reason):
    got, got_code, got_reason = read_passed_back(passed_back(answer, code=code, reason=reason))
    assert got_code == code
    assert got == (b"" if code else answer)
    assert got_reason.isprintable()


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data):
    try:
        answer, code, reason = read_passed_back(data)
    except MalformedMessage:
        return
    assert bool(answer) != bool(code) or not answer
    assert reason.isprintable()
