"""Every array of every message: a fault is a MalformedMessage that names it, and ends the batch."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from protocols.crypto.field import P
from protocols.errors import MalformedMessage
from protocols.levels.hidden_queries.inference.architecture import Precision
from protocols.levels.hidden_queries.inference.computing import Answerer, Querier, deal
from protocols.levels.hidden_queries.inference.model import quantise
from protocols.levels.hidden_queries.inference.plan import LAST_REQUEST
from tests.harness.inference_parties import mlp, parties
from tests.harness.refusals import refuses
from tests.harness.seeded import seeded_source

MODEL = quantise(mlp(np.random.default_rng(0), 3, 2, 3), Precision())
INPUTS = np.array([[0.5, -0.25, 1.0], [0.0, 0.125, -1.0]])
STEPS = ("weights", "layer 2: signs", "layer 2: choices", "vote: signs", "vote: wins", LAST_REQUEST)


def faults(arrays):
    """(what is wrong, the altered message), one fault each."""
    yield "arrays; expected", (*arrays, np.zeros(1, np.uint8))
    if arrays:
        yield "arrays; expected", arrays[:-1]
    for at, array in enumerate(arrays):
        for said, bad in (
            ("expected", array.astype(np.int64)),
            ("expected", array.astype(np.float32)),
            ("expected", array.astype(array.dtype.newbyteorder(">")) if array.itemsize > 1 else array.astype("<u2")),
            ("has shape", array[:-1]),
            ("has shape", array[None]),
            ("has shape", np.zeros((0,), array.dtype)),
        ):
            yield said, (*arrays[:at], bad, *arrays[at + 1 :])


def until(step):
    """(querier, answerer, request, reply) with `step` next for the answerer, its reply not yet known to the querier."""
    querier, answerer = parties(MODEL, INPUTS, 1)
    request = querier.start()
    while request[0] != step:
        request = querier.step(answerer.step(*request))
    return querier, answerer, request


@pytest.mark.parametrize("step", STEPS)
def test_a_malformed_request_is_refused_and_ends_the_batch(step) -> None:
    for said, bad in faults(until(step)[2][1]):
        _, answerer, (name, arrays) = until(step)
        with refuses(MalformedMessage, step, said):
            answerer.step(name, bad)
        with pytest.raises(MalformedMessage, match="after the batch was over"):
            answerer.step(name, arrays)


@pytest.mark.parametrize("step", STEPS)
def test_a_malformed_reply_is_refused_and_ends_the_batch(step) -> None:
    _, answerer, request = until(step)
    for said, bad in faults(answerer.step(*request)):
        querier, answerer, request = until(step)
        with refuses(MalformedMessage, step, said):
            querier.step(bad)
        with pytest.raises(MalformedMessage, match="after the batch was over"):
            querier.step(answerer.step(*request))
        with refuses(MalformedMessage, "vote"):
            _ = querier.share


def test_a_share_outside_the_field_is_refused() -> None:
    _, answerer, request = until(LAST_REQUEST)
    reply = answerer.step(*request)
    for at in range(len(reply) - 1):
        querier, _, _ = until(LAST_REQUEST)
        changed = reply[at].copy()
        changed.flat[-1] = P
        with refuses(MalformedMessage, "field element"):
            querier.step((*reply[:at], changed, *reply[at + 1 :]))


def test_steps_out_of_order_or_repeated_are_refused_and_end_the_batch() -> None:
    _, answerer, (name, arrays) = until("layer 2: choices")
    with refuses(MalformedMessage, "vote: signs", "layer 2: choices"):
        answerer.step("vote: signs", arrays)
    with pytest.raises(MalformedMessage, match="after the batch was over"):
        answerer.step(name, arrays)
    _, answerer, _ = until("layer 2: signs")
    with pytest.raises(MalformedMessage, match="out of order"):
        answerer.step("weights", ())


def test_a_finished_batch_takes_nothing_more() -> None:
    querier, answerer, request = until(LAST_REQUEST)
    reply = answerer.step(*request)
    assert querier.step(reply) is None
    with pytest.raises(MalformedMessage, match="after the batch was over"):
        answerer.step(*request)
    with pytest.raises(MalformedMessage, match="after the batch was over"):
        querier.step(reply)


def test_malformed_dealt_randomness_is_refused() -> None:
    for_querier, for_answerer = deal(MODEL.architecture, 2, source=seeded_source(1))
    for said, bad in faults(for_answerer):
        with refuses(MalformedMessage, said):
            Answerer(MODEL, 2, bad, context=b"", source=seeded_source(2))
    for said, bad in faults(for_querier):
        with refuses(MalformedMessage, said):
            Querier(MODEL.architecture, INPUTS, bad)
    with refuses(MalformedMessage, "dealt randomness"):
        Answerer(MODEL, 3, for_answerer, context=b"", source=seeded_source(2))


any_array = arrays_of.arrays(
    st.sampled_from([np.uint8, np.uint32, np.int64, np.float32]),
    arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=7),
)


@given(st.sampled_from(STEPS[1:]), st.lists(any_array, max_size=3))
@settings(max_examples=25)
def test_whatever_arrays_arrive_nothing_but_a_malformed_message_is_raised(step, found) -> None:
    querier, answerer, _ = until(step)
    with pytest.raises(MalformedMessage):
        answerer.step(step, tuple(found))
    with pytest.raises(MalformedMessage):
        querier.step(tuple(found))
