"""Whole batches: private labels are plain_inference's, for any model; several parties at once; what must be refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.errors import InvalidInput, MalformedMessage
from protocols.levels.hidden_queries.inference.architecture import Precision
from protocols.levels.hidden_queries.inference.model import AveragePool, Model, ReLU, plain_inference, quantise
from tests.harness.inference_parties import (
    cnn,
    convolution,
    dense,
    linear_model,
    mlp,
    parties,
    private_votes,
    run,
    votes,
)
from tests.harness.refusals import refuses

COARSE = Precision(input_bits=5, weight_bits=6, accumulator_bits=24, input_bound=4.0)


def one_hot(model, inputs):
    return np.eye(model.architecture.classes, dtype=np.int64)[plain_inference(model, inputs)]


@given(st.integers(1, 12), st.integers(1, 9), st.integers(2, 6), st.integers(1, 11), st.integers(0, 2**32))
@settings(max_examples=10)
def test_private_labels_of_random_mlps_are_those_of_plain_arithmetic(features, hidden, classes, queries, seed) -> None:
    rng = np.random.default_rng(seed)
    model = quantise(mlp(rng, features, hidden, classes), COARSE)
    inputs = rng.uniform(-4, 4, (queries, features))
    assert (private_votes(model, inputs, seed) == one_hot(model, inputs)).all()


@pytest.mark.parametrize("build", [linear_model, mlp, cnn])
def test_every_kind_of_model_gives_exactly_the_plain_labels(build) -> None:
    rng = np.random.default_rng(8)
    plain = build(rng)
    model = quantise(plain, Precision())
    inputs = rng.uniform(-1, 1, (37, *plain.input_shape)).astype(np.float32)
    assert len(set(plain_inference(model, inputs).tolist())) > 1
    assert (private_votes(model, inputs, 1) == one_hot(model, inputs)).all()


def test_an_mlp_of_real_size_gives_exactly_the_plain_labels() -> None:
    rng = np.random.default_rng(5)
    model = quantise(mlp(rng, 784, 128, 10), Precision())
    inputs = rng.random((100, 784), dtype=np.float32)
    assert (private_votes(model, inputs, 5) == one_hot(model, inputs)).all()


def test_layers_in_unusual_orders_give_exactly_the_plain_labels() -> None:
    rng = np.random.default_rng(2)
    layers = (
        AveragePool(2), ReLU(), convolution(rng, 2, 3, 2), convolution(rng, 3, 4, 3, stride=2, padding="same"),
        AveragePool(2), ReLU(), ReLU(), dense(rng, 4, 5), dense(rng, 5, 3), ReLU(),
    )  # fmt: skip
    model = quantise(Model((2, 10, 10), layers), Precision(5, 5, 32, 1.0))
    inputs = rng.uniform(-1, 1, (9, 2, 10, 10))
    querier, answerer = parties(model, inputs, 3)
    assert len(run(querier, answerer)) == 12
    assert (votes(querier, answerer) == one_hot(model, inputs)).all()


def test_equal_scores_vote_for_the_lowest_class() -> None:
    rng = np.random.default_rng(4)
    layer = dense(rng, 3, 4)
    same = np.repeat(layer.weights[:1], 4, axis=0)
    model = quantise(Model((3,), (type(layer)(same, np.array([0.0, 0.5, 0.5, 0.25])),)), Precision())
    assert private_votes(model, rng.uniform(-1, 1, (5, 3)), 1).argmax(axis=1).tolist() == [1] * 5


def test_the_guardians_share_is_there_only_at_the_end() -> None:
    rng = np.random.default_rng(7)
    querier, answerer = parties(quantise(linear_model(rng), Precision()), rng.uniform(-1, 1, (2, 6)), 1)
    name, arrays = querier.start()
    answerer.step(name, arrays)
    with refuses(MalformedMessage, "vote: signs"):
        _ = answerer.guardian_share
    with refuses(MalformedMessage, "weights"):
        _ = querier.share


def test_inputs_outside_the_bound_are_refused_before_anything_is_sent() -> None:
    rng = np.random.default_rng(9)
    model = quantise(linear_model(rng), Precision(input_bound=2.0))
    inputs = rng.uniform(-1, 1, (3, 6))
    for bad in (2.5, -2.01, np.nan, np.inf):
        inputs[1, 2] = bad
        with refuses(InvalidInput, 1, 3, -2, 2):
            parties(model, inputs, 1)
    with refuses(InvalidInput, 5, 6):
        parties(model, np.zeros((3, 5)), 1)
    with refuses(InvalidInput, "0 queries"):
        parties(model, np.zeros((0, 6)), 1)
