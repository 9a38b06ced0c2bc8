"""Fixed point: integers against Python's, agreement with floats, and overflow, refused just where it begins."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.float_inference import agreement
from protocols.errors import InvalidInput
from protocols.levels.hidden_queries.inference.architecture import (
    Architecture,
    ConvolutionShape,
    DenseShape,
    Precision,
    ReLUShape,
)
from protocols.levels.hidden_queries.inference.model import (
    AveragePool,
    Dense,
    Model,
    ReLU,
    plain_inference,
    quantise,
    quantised_inputs,
)
from tests.harness.inference_parties import cnn, linear_model, mlp, private_votes
from tests.harness.refusals import refuses


def scores_in_python(model, precision, inputs):
    """An MLP's scores with Python's integers and exact rounding of halves upwards after its ReLU."""
    first, _, last = model.layers
    unit = 2**precision.weight_bits

    def applied(layer, values):
        bias = np.rint(layer.bias * unit * 2**precision.input_bits).astype(int).tolist()
        rows = np.rint(layer.weights * unit).astype(int).tolist()
        return [sum(w * v for w, v in zip(row, values, strict=True)) + b for row, b in zip(rows, bias, strict=True)]

    hidden = [max(0, 2 * y + unit) // (2 * unit) for y in applied(first, inputs)]
    return applied(last, hidden)


@given(st.integers(0, 2**32))
@settings(max_examples=12)
def test_plain_inference_is_integer_arithmetic_with_rounding(seed) -> None:
    rng = np.random.default_rng(seed)
    precision = Precision(input_bits=3, weight_bits=4)
    model = mlp(rng, 4, 6, 3)
    inputs = rng.uniform(-1, 1, (8, 4))
    quantised = quantise(model, precision)
    expected = [np.argmax(scores_in_python(model, precision, row)) for row in np.rint(inputs * 8).astype(int).tolist()]
    assert plain_inference(quantised, inputs).tolist() == expected


@pytest.mark.parametrize("build", [linear_model, mlp, cnn])
def test_the_default_precision_agrees_with_floats_on_nearly_all_queries(build) -> None:
    rng = np.random.default_rng(1)
    model = build(rng)
    inputs = rng.uniform(-1, 1, (2000, *model.input_shape))
    coarse = agreement(model, quantise(model, Precision(input_bits=2, weight_bits=2)), inputs)
    fine = agreement(model, quantise(model, Precision()), inputs)
    assert coarse < fine
    assert fine > 0.99


def test_pools_of_any_size_keep_the_scale_of_what_follows() -> None:
    rng = np.random.default_rng(2)
    layers = (AveragePool(3), Dense(rng.normal(size=(3, 4)), np.array([1.0, -1.0, 0.5])))
    model = Model((6, 6), layers)
    inputs = rng.uniform(-1, 1, (2000, 6, 6))
    assert agreement(model, quantise(model, Precision()), inputs) > 0.99


def test_a_model_just_within_the_accumulators_is_exact_on_its_worst_inputs_and_one_beyond_is_refused() -> None:
    precision = Precision(input_bits=4, weight_bits=4, accumulator_bits=12, input_bound=1.0)
    # Sums of 2 x 16 x weight, and half a unit of 16 before rounding: 2,047 is the largest that 12 bits hold.
    hidden = Dense(np.full((1, 2), 63 / 16), np.array([23 / 256]))
    out = Dense(np.array([[0.25], [0.0]]), np.array([0.0, 0.5]))
    model = quantise(Model((2,), (hidden, ReLU(), out)), precision)
    inputs = np.array([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]])
    assert plain_inference(model, inputs).tolist() == [0, 1, 1]
    assert private_votes(model, inputs, 1).argmax(axis=1).tolist() == [0, 1, 1]
    larger = Dense(np.full((1, 2), 63 / 16), np.array([24 / 256]))
    with pytest.raises(InvalidInput, match=re.escape("layer 1 (Dense) can reach 2**11.0 for inputs up to 1; allowed:")):
        quantise(Model((2,), (larger, ReLU(), out)), precision)


@pytest.mark.parametrize("size", [1e3, 1e12, 1e300])
def test_overflow_in_a_later_layer_is_named_whatever_its_size(size) -> None:
    layers = (Dense(np.eye(2), np.zeros(2)), ReLU(), Dense(np.full((2, 2), size), np.zeros(2)))
    with refuses(InvalidInput, "layer 3 (Dense)"):
        quantise(Model((2,), layers), Precision(accumulator_bits=24))


def test_scores_whose_differences_overflow_are_refused() -> None:
    layer = Dense(np.array([[0.9], [-0.9]]), np.zeros(2))
    with refuses(InvalidInput, 1, "2**8.8", "2**8"):
        quantise(Model((1,), (layer,)), Precision(input_bits=4, weight_bits=4, accumulator_bits=9))
    quantise(Model((1,), (layer,)), Precision(input_bits=4, weight_bits=4, accumulator_bits=10))


@pytest.mark.parametrize(
    "given",
    [
        {"input_bits": 17}, {"weight_bits": 0}, {"accumulator_bits": 33}, {"accumulator_bits": 7},
        {"input_bound": 0.0}, {"input_bound": float("nan")}, {"input_bound": 2.0**21},
    ],
)  # fmt: skip
def test_precisions_out_of_range_are_refused(given) -> None:
    with refuses(InvalidInput, next(iter(given))):
        Precision(**given)


@pytest.mark.parametrize(
    ("features", "layers", "said"),
    [
        (3, (DenseShape(4, 2),), "layer 1 takes 4 values; the layer before it gives 3"),
        (3, (ReLUShape(3, 0),), "no layer with weights"),
        (3, (DenseShape(3, 1),), "1 classes; allowed: 2 to 256"),
        (3, (DenseShape(3, 257),), "257 classes"),
        (2**20, (ConvolutionShape(1, 1024, 1024, 2, (1, 1), 1, "valid"),), "layer 1 gives"),
        (2**20, (ConvolutionShape(1024, 32, 32, 2, (64, 64), 1, "same"),), "layer 1 sums"),
    ],
)
def test_architectures_that_do_not_fit_together_are_refused(features, layers, said) -> None:
    with pytest.raises(InvalidInput, match=said):
        Architecture(features, layers, Precision())


def test_inputs_are_rounded_to_the_nearest_step() -> None:
    architecture = Architecture(3, (DenseShape(3, 2),), Precision(input_bits=2))
    assert quantised_inputs(architecture, np.array([[0.9, -0.26, 0.1]])).tolist() == [[4, -1, 0]]


def test_weights_and_their_repr_stay_private() -> None:
    model = quantise(Model((1,), (Dense(np.full((2, 1), 0.3571), np.zeros(2)),)), Precision())
    assert "1463" not in repr(model)
