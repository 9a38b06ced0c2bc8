"""Trained teachers as models that private inference computes, and the votes that it gives: those in fixed point.

Nothing is approximated but the numbers' precision. Batch norm is folded into the layer before it. A maximum over a
2 x 2 window, which private inference does not have, is made of what it has: for values that are not negative
max(a, b) = ReLU(a - b) + b, twice. A class that a teacher never saw copies the score of one that it saw, less one:
it never wins, and the public architecture does not tell which classes a party has.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any  # values of torch modules, whose package is not imported here

import numpy as np
from jaxtyping import Float, Int64
from numpy import ndarray

from party.teachers import teacher_kind
from party.teachers.teacher import Teacher
from protocols.errors import InvalidInput
from protocols.inference.architecture import PoolShape, Precision, ReLUShape
from protocols.inference.fixed_point import QuantisedModel, quantise, quantised_inputs
from protocols.inference.model import Convolution, Dense, Model, ReLU, fold_batch_norm
from protocols.inference.plan import Plan
from simulations.ask_settings import KINDS
from simulations.datasets.dataset import Dataset

# Inputs of tables are standardised; the querying party clips what lies beyond, which is public.
TABLE_BOUND = 8.0
# By how much a class that was never seen stays below one that was.
_BELOW = 1.0
_VARIANCE_FLOOR = 1e-5
# The places of a 2 x 2 window, as (down, right).
_WINDOW = ((0, 0), (0, 1), (1, 0), (1, 1))
# Public, and chosen without looking at weights: what leaves the intervals of usual models within 31 bits.
_BITS = {"logistic_regression": (8, 12), "mlp": (8, 10), "cnn": (7, 8)}


def precision(kind: str, *, images: bool) -> Precision:
    """The public fixed point of one kind of model."""
    input_bits, weight_bits = _BITS[kind]
    return Precision(input_bits=input_bits, weight_bits=weight_bits, input_bound=1.0 if images else TABLE_BOUND)


def private_model(kind: str, teacher: Teacher, *, classes: int) -> Model:
    """A trained teacher as layers that private inference computes. Raises InvalidInput for another kind."""
    convert = {"logistic_regression": _linear, "mlp": _mlp, "cnn": _cnn}.get(kind)
    if convert is None:
        raise InvalidInput(f"model is {kind!r}; allowed, as private inference computes it: {', '.join(KINDS)}")
    return convert(teacher, classes)


def quantised_model(kind: str, teacher: Teacher, *, classes: int, images: bool) -> QuantisedModel:
    """The same in fixed point. Raises InvalidInput where the model could overflow it; nothing was shared then."""
    return quantise(private_model(kind, teacher, classes=classes), precision(kind, images=images))


def check_turn(kind: str, dataset: Dataset, *, turn: int) -> None:
    """Raises InvalidInput, before anything is trained, unless a turn of that many queries fits one batch of private
    inference. What that takes follows from the public architecture alone, so a model without weights tells it."""
    record = (dataset.private_inputs[:1], dataset.private_labels[:1])
    trial = teacher_kind(kind, device="cpu").fit([record], classes=dataset.classes, seeds=[0])[0]
    model = private_model(kind, trial, classes=dataset.classes)
    layers: list[object] = []
    for layer in model.layers:
        if isinstance(layer, Dense):
            layer = Dense(0.0 * layer.weights, 0.0 * layer.bias)
        elif isinstance(layer, Convolution):
            layer = replace(layer, kernels=0.0 * layer.kernels, bias=0.0 * layer.bias)
        layers.append(layer)
    blank = quantise(replace(model, layers=tuple(layers)), precision(kind, images=dataset.kind == "image"))
    try:
        Plan.of(blank.architecture, turn)
    except InvalidInput as error:
        raise InvalidInput(f"--turn {turn} is too much for one batch of a {kind}: {error}") from None


def bounded(inputs: Float[ndarray, "queries ..."], *, images: bool) -> Float[ndarray, "queries ..."]:
    """A querying party's records within the public bound of inputs."""
    bound = 1.0 if images else TABLE_BOUND
    return np.clip(inputs, -bound, bound)


def fixed_point_votes(model: QuantisedModel, inputs: Float[ndarray, "queries ..."]) -> Int64[ndarray, " queries"]:
    """What `plain_inference` gives, bit for bit, in a fraction of its time.

    Integers in float64: exact, because `quantise` has made sure that no sum reaches 2^31, and products go to BLAS.
    """
    values = quantised_inputs(model.architecture, inputs).astype(np.float64)
    for shape, weights in zip(model.architecture.layers, model.weights, strict=True):
        if isinstance(shape, ReLUShape):
            values = np.floor(np.maximum(values + shape.half, 0.0) * 2.0**-shape.shift)
        elif isinstance(shape, PoolShape):
            values = shape.sums(values)
        else:
            assert weights is not None
            matrix, bias = weights.matrix.T.astype(np.float64), weights.bias.astype(np.float64)
            parts = [
                shape.gathered(shape.columns(values[start : start + shape.chunk]) @ matrix + bias)
                for start in range(0, len(values), shape.chunk)
            ]
            values = np.concatenate(parts)
    return values.argmax(axis=1)


def _linear(teacher: Any, classes: int) -> Model:
    layer = _scores(teacher.weights.T, teacher.offsets, teacher.seen, classes)
    return Model(tuple(teacher.input_shape), (layer,))


def _mlp(teacher: Any, classes: int) -> Model:
    found = _arrays(teacher)
    shape = tuple(teacher.input_shape)
    return Model(shape if len(shape) <= 3 else (math.prod(shape),), _dense_layers(found, teacher.seen, classes))


def _cnn(teacher: Any, classes: int) -> Model:
    """conv, batch norm, max-pool 2 x 2, ReLU, hidden, out: with the pool as differences and ReLUs."""
    found = _arrays(teacher)
    kernels = found["conv.weight"].astype(np.float64)
    filters = len(kernels)
    # The four places of each window as four groups of filters of a 4 x 4 kernel with stride 2.
    placed = np.zeros((4, filters, 1, 4, 4))
    for group, (down, right) in enumerate(_WINDOW):
        placed[group, :, :, down : down + 3, right : right + 3] = kernels
    four = Convolution(placed.reshape(4 * filters, 1, 4, 4), np.zeros(4 * filters), stride=2)
    norm = {name: np.tile(found[f"conv_norm.{name}"].astype(np.float64), 4) for name in _NORM}
    folded = fold_batch_norm(four, **norm, floor=_VARIANCE_FLOOR)
    # ReLUs of (a, b, c, d) -> of (a - b, b, c - d, d) -> of (max(a, b) - max(c, d), max(c, d)) -> their sum.
    one = np.eye(filters)
    none = np.zeros((filters, filters))
    pairs = np.block(
        [[one, -one, none, none], [none, one, none, none], [none, none, one, -one], [none, none, none, one]]
    )
    both = np.block([[one, one, -one, -one], [none, none, one, one]])
    layers = [folded, ReLU(), _pointwise(pairs), ReLU(), _pointwise(both), ReLU()]
    hidden, *rest = _dense_layers(found, teacher.seen, classes)
    assert isinstance(hidden, Dense)
    summed = Dense(np.concatenate([hidden.weights, hidden.weights], axis=1), hidden.bias)
    return Model(tuple(teacher.input_shape), (*layers, summed, *rest))


_NORM = ("scale", "shift", "mean", "variance")


def _dense_layers(found: dict[str, ndarray], seen: ndarray, classes: int) -> tuple[object, ...]:
    hidden = fold_batch_norm(
        Dense(found["hidden.weight"].T.astype(np.float64), np.zeros(found["hidden.weight"].shape[1])),
        **{name: found[f"hidden_norm.{name}"].astype(np.float64) for name in _NORM},
        floor=_VARIANCE_FLOOR,
    )
    out = _scores(found["out.weight"].T[seen], found["out.shift"][seen], seen, classes)
    return (hidden, ReLU(), out)


def _scores(
    weights: Float[ndarray, "seen features"], bias: Float[ndarray, " seen"], seen: ndarray, classes: int
) -> Dense:
    """Scores of all classes from those of the classes seen."""
    row = np.zeros(classes, dtype=np.int64)
    row[seen] = np.arange(len(seen))
    below = np.full(classes, _BELOW)
    below[seen] = 0.0
    return Dense(weights[row].astype(np.float64), bias[row].astype(np.float64) - below)


def _pointwise(matrix: Float[ndarray, "outputs channels"]) -> Convolution:
    return Convolution(matrix[:, :, None, None], np.zeros(len(matrix)))


def _arrays(teacher: Any) -> dict[str, ndarray]:
    return {name: value.numpy() for name, value in teacher.parameters.items()}
