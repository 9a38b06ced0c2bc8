"""Whatever arrays arrive: a refusal that says why, or an answer; nothing else."""

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from protocols.errors import MalformedMessage, Refused
from protocols.levels.secure_sum.aggregation import open_sum
from protocols.levels.secure_sum.collecting import QuorumLost, collect_agreement, collect_keys, collect_masked
from protocols.levels.secure_sum.judging import collect_checks, collect_dealings
from tests.harness.refusals import refuses
from tests.harness.sum_parties import USUAL_STEPS, Member, Sum, make_context, verify

# More parties and cells than random arrays have sides, so that none is of the right shape by chance.
CONTEXT = make_context(8, 2, 1, cells=9)
VALUES = np.arange(72, dtype=np.int64).reshape(8, 9)
DTYPES = ["|b1", "|u1", "<u2", "<u4", "<u8", "<i8", "<f4", ">u4", "<f8"]

any_array = st.sampled_from(DTYPES).flatmap(
    lambda dtype: arrays(dtype=dtype, shape=array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=7))
)
any_arrays = st.lists(any_array, max_size=9).map(tuple)


@pytest.fixture(scope="module")
def honest():
    running = Sum(CONTEXT, VALUES, absent={"mask": [2]})
    running.run()
    return running


def request_of(running, step):
    requests = {
        "share": lambda: running.advertised.request(0),
        "check": lambda: running.dealt.request(0),
        "mask": lambda: running.shared.request(0),
        "agree": lambda: running.masked.request,
        "unmask": lambda: running.agreed.request(0),
    }
    return requests[step]()


def fresh(running):
    member = Member(CONTEXT, 0, VALUES[0])
    member.notes = dict(running.members[0].notes)
    return member


@pytest.mark.parametrize("step", USUAL_STEPS[1:])
@given(request_arrays=any_arrays)
@settings(max_examples=15)
def test_random_arrays_are_malformed_to_a_party(honest, step, request_arrays) -> None:
    with refuses(MalformedMessage, "allowed"):
        fresh(honest).answer(step, request_arrays)


@pytest.mark.parametrize("step", USUAL_STEPS[1:])
@given(
    place=st.integers(0, 9),
    at=st.integers(0, 2**16),
    change=st.integers(1, 255),
    fill=st.none() | st.binary(min_size=8),
)
@settings(max_examples=15)
def test_a_request_with_other_bytes_is_refused_or_answered(honest, step, place, at, change, fill) -> None:
    request = [array.copy() for array in request_of(honest, step)]
    changed = request[place % len(request)].reshape(-1)
    if fill is None:
        changed[at % changed.size] ^= change
    else:
        changed[:] = np.resize(np.frombuffer(fill, dtype=np.uint8), changed.size)
    with contextlib.suppress(MalformedMessage, Refused):
        good, answer = honest.replies[step][0], fresh(honest).answer(step, tuple(request))
        assert [(array.dtype, array.shape) for array in answer] == [(array.dtype, array.shape) for array in good]


COLLECT = {
    "advertise": lambda run, replies: collect_keys(CONTEXT, replies, verify=verify).keys,
    "share": lambda run, replies: collect_dealings(run.keys, replies),
    "check": lambda run, replies: collect_checks(run.dealt, replies, verify=verify),
    "mask": lambda run, replies: collect_masked(run.shared, replies, verify=verify),
    "agree": lambda run, replies: collect_agreement(run.masked, replies),
    "unmask": lambda run, replies: open_sum(run.agreed, replies),
}


@pytest.mark.parametrize("step", USUAL_STEPS)
@given(reply=any_arrays)
@settings(max_examples=15)
def test_random_arrays_of_a_party_are_malformed_to_the_coordinator_and_the_rest_goes_on(honest, step, reply) -> None:
    collected = COLLECT[step](honest, honest.replies[step] | {0: reply})
    faults = collected.faults if step == "unmask" else collected.left_out
    assert faults[CONTEXT.members[0]] == "malformed"


@pytest.mark.parametrize("step", USUAL_STEPS)
@given(at=st.integers(0, 2**16), place=st.integers(0, 6), change=st.integers(1, 255))
@settings(max_examples=15)
def test_a_reply_with_another_byte_is_named_or_taken_and_never_stops_the_coordinator(
    honest, step, at, place, change
) -> None:
    reply = [array.copy() for array in honest.replies[step][0]]
    octets = reply[place % len(reply)].view(np.uint8).reshape(-1)
    octets[at % octets.size] ^= change
    with contextlib.suppress(QuorumLost):
        collected = COLLECT[step](honest, honest.replies[step] | {0: tuple(reply)})
        if step == "unmask":
            np.testing.assert_array_equal(collected.sums, np.delete(VALUES, 2, axis=0).sum(axis=0))
