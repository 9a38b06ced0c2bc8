import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from protocols.errors import InvalidInput, MalformedMessage
from protocols.study.queries import QueryBatch
from protocols.wire import wire_pb2
from protocols.wire.messages import (
    ConcealedVotes,
    Outcome,
    Refusal,
    Settled,
    StepReply,
    StepRequest,
    VoteReply,
    VoteRequest,
    decode,
    decode_arrays,
    encode,
    encode_arrays,
)
from tests.harness.refusals import refuses

DIGEST = bytes(range(32))
finite = st.floats(-1e6, 1e6, width=32)
batches = st.integers(1, 5).flatmap(
    lambda n: st.builds(
        QueryBatch,
        st.integers(0, 2**40 - 1),
        st.just(np.arange(n) * 3),
        arrays(np.float32, st.tuples(st.just(n), st.integers(1, 4)), elements=finite),
    )
)
DTYPES = ("|u1", "<u2", "<u4", "<u8", "<i8", "<f4")
several = st.lists(
    st.sampled_from(DTYPES).flatmap(
        lambda kind: arrays(kind, st.tuples(st.integers(0, 3), st.integers(1, 2)), elements=st.just(0))
    ),
    max_size=3,
).map(tuple)
steps = st.text("abc_", min_size=1, max_size=40)
# Made in the tests: run-time checks of tuples draw from `random`, which no strategy may do.
messages = st.one_of(
    st.tuples(st.just(VoteRequest), st.just(DIGEST), st.binary(max_size=64), batches, several),
    st.tuples(st.just(ConcealedVotes), st.just(DIGEST), several),
    st.tuples(st.just(StepRequest), st.just(DIGEST), st.just(DIGEST), steps, several),
    st.tuples(st.just(StepReply), st.just(DIGEST), steps, several),
    st.tuples(st.just(VoteReply), st.just(DIGEST), arrays(np.int64, (2, 3), elements=st.integers(-1, 9))),
    st.tuples(
        st.just(Outcome), st.just(DIGEST), st.just(DIGEST), arrays(np.bool_, 7), st.sampled_from([b"", bytes(64)])
    ),
    st.tuples(st.just(Settled), st.just(DIGEST), st.integers(0, 2**52)),
    st.tuples(st.just(Refusal), st.text(max_size=9), st.text(max_size=40)),
)


@given(messages)
def test_decoding_gives_back_what_was_encoded(made):
    message = made[0](*made[1:])
    data = encode(message)
    again = decode(data)
    assert type(again) is type(message)
    assert encode(again) == data
    if isinstance(message, VoteRequest):
        assert again.digest == message.digest
        np.testing.assert_array_equal(again.batch.inputs, message.batch.inputs)
    if isinstance(message, VoteReply):
        np.testing.assert_array_equal(again.votes, message.votes)


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_a_message_or_malformed_and_nothing_else(data):
    try:
        message = decode(data)
    except MalformedMessage:
        return
    assert encode(decode(encode(message))) == encode(message)


@given(messages, st.data())
def test_a_message_with_one_byte_changed_is_a_message_or_malformed(made, data):
    message = made[0](*made[1:])
    raw = bytearray(encode(message))
    position = data.draw(st.integers(0, len(raw) - 1))
    raw[position] ^= data.draw(st.integers(1, 255))
    try:
        message = decode(bytes(raw))
    except MalformedMessage:
        return
    assert encode(decode(encode(message))) == encode(message)


def envelope(**array) -> bytes:
    message = wire_pb2.Envelope()
    message.vote_reply.batch_digest = DIGEST
    votes = message.vote_reply.votes
    votes.dtype, votes.data = array["dtype"], array["data"]
    votes.shape.extend(array["shape"])
    return message.SerializeToString()


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        ({"dtype": "<i8", "shape": (1, 2), "data": bytes(15)}, (15,)),
        ({"dtype": "<f8", "shape": (1, 2), "data": bytes(16)}, ("<i8",)),
        ({"dtype": "|O", "shape": (1, 2), "data": bytes(16)}, ("<i8",)),
        ({"dtype": "<i8", "shape": (2,), "data": bytes(16)}, ("rank 1",)),
        ({"dtype": "<i8", "shape": (), "data": b""}, ("rank 0",)),
        ({"dtype": "<i8", "shape": (0, 2**60), "data": b""}, ("shape", 1152921504606846976)),
        ({"dtype": "<i8", "shape": (2**31, 2**31), "data": b""}, ("shape", 2147483648)),
    ],
)
def test_an_array_that_is_not_what_it_declares_is_refused_before_it_is_made(array, reason):
    with refuses(MalformedMessage, *reason):
        decode(envelope(**array))


def test_a_short_digest_a_bad_boolean_and_an_empty_envelope_are_refused():
    message = wire_pb2.Envelope()
    message.settled.batch_digest = b"short"
    with refuses(MalformedMessage, 5, 32):
        decode(message.SerializeToString())
    raw = encode(Outcome(DIGEST, DIGEST, np.array([True, True, True])))
    with refuses(MalformedMessage, 0, 1):
        decode(raw.replace(b"\x01\x01\x01", b"\x01\x07\x01"))
    with pytest.raises(MalformedMessage, match="no body"):
        decode(b"")


def test_a_batch_with_repeated_ids_or_nan_is_refused():
    with refuses(InvalidInput, "ascending"):
        QueryBatch(0, np.array([1, 1]), np.zeros((2, 1), np.float32))
    with refuses(InvalidInput, "finite"):
        QueryBatch(0, np.array([1]), np.array([[np.nan]], np.float32))
    with refuses(InvalidInput, "one each"):
        QueryBatch(0, np.array([1]), np.zeros((2, 1), np.float32))


def test_the_digest_of_a_batch_changes_with_every_part_of_it():
    ids, inputs = np.arange(2), np.ones((2, 3), np.float32)
    digests = {
        QueryBatch(0, ids, inputs).digest,
        QueryBatch(1, ids, inputs).digest,
        QueryBatch(0, ids + 1, inputs).digest,
        QueryBatch(0, ids, inputs * 2).digest,
        QueryBatch(0, ids, inputs.reshape(2, 3, 1)).digest,
    }
    assert len(digests) == 5


def test_a_shape_with_a_zero_and_a_huge_rest_is_refused():
    message = wire_pb2.Envelope()
    message.vote_request.study = DIGEST
    message.vote_request.ids.dtype, message.vote_request.inputs.dtype = "<i8", "<f4"
    message.vote_request.ids.shape.extend((0,))
    message.vote_request.inputs.shape.extend((1, 2**28, 2**28, 2**28, 0))
    with refuses(MalformedMessage, "elements"):
        decode(message.SerializeToString())


def test_the_digest_of_a_request_names_study_run_and_batch():
    batch = QueryBatch(0, np.arange(2), np.ones((2, 3), np.float32))
    other = QueryBatch(1, np.arange(2), np.ones((2, 3), np.float32))
    requests = [(DIGEST, b"a", batch), (bytes(32), b"a", batch), (DIGEST, b"b", batch), (DIGEST, b"a", other)]
    assert len({VoteRequest(*parts).digest for parts in requests}) == 4


@pytest.mark.parametrize("number", [-1, 2**40, 2**63])
def test_a_batch_number_that_no_ledger_can_hold_is_refused(number):
    with refuses(InvalidInput, "VoteRequest"):
        QueryBatch(number, np.arange(1), np.zeros((1, 1), np.float32))


@given(st.binary(max_size=100))
def test_any_bytes_are_arrays_or_malformed(data):
    try:
        made = decode_arrays(data)
    except MalformedMessage:
        return
    assert encode_arrays(decode_arrays(encode_arrays(made))) == encode_arrays(made)


def test_a_statement_that_is_too_long_a_strange_step_and_a_strange_dtype_are_malformed():
    step = encode(StepRequest(DIGEST, DIGEST, "Keys!", ()))
    with refuses(MalformedMessage, "step", "Keys!"):
        decode(step)
    with refuses(MalformedMessage, "guardian", 1048577):
        decode(encode(Outcome(DIGEST, DIGEST, np.ones(2, bool), bytes(2**20 + 1))))
    with refuses(MalformedMessage, "array", "<c16"):
        decode(encode(ConcealedVotes(DIGEST, (np.zeros(2, complex),))))


def test_concealed_votes_do_not_show_in_their_text():
    assert "7" not in repr(ConcealedVotes(bytes(32), (np.full(3, 7),)))
