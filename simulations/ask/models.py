"""Trained teachers as models for private inference, and the votes that it gives, computed in fixed point.

Only the precision of numbers is approximate. The kinds that a node offers make their own layers (party/teachers/); the
cnn is added here. Its maximum over 2 x 2 windows, which private inference lacks, is built from ReLUs: for non-negative
values max(a, b) = ReLU(a - b) + b, twice.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any  # values of torch modules, whose package is not imported here

import numpy as np
from jaxtyping import Float, Int64
from numpy import ndarray

from party.teachers import teacher_kind
from party.teachers.teacher import PRIVATE, Teacher, among_seen
from protocols.errors import InvalidInput
from protocols.levels.hidden_queries.inference.architecture import PoolShape, Precision, ReLUShape
from protocols.levels.hidden_queries.inference.fixed_point import QuantisedModel, quantise, quantised_inputs
from protocols.levels.hidden_queries.inference.model import Convolution, Dense, Model, ReLU, fold_batch_norm
from protocols.levels.hidden_queries.inference.plan import InferencePlan
from simulations.ask.kinds import KINDS
from simulations.datasets.dataset import Dataset

# Table inputs are standardised; the querying party clips larger values; the bound is public.
TABLE_BOUND = 8.0
_VARIANCE_FLOOR = 1e-5
# The positions in a 2 x 2 window, as (down, right).
_WINDOW = ((0, 0), (0, 1), (1, 0), (1, 1))
# Fraction bits of inputs and weights, and bits of sums: public, and chosen without looking at weights. A node's are in
# protocols/levels/hidden_queries/dealing.py; with those, sums of the larger cnn would exceed 32 bits.
_NODE_BITS = (8, 10, 32)
_CNN_BITS = (7, 8, 31)
_NORM = ("scale", "shift", "mean", "variance")


def precision(kind: str, *, images: bool) -> Precision:
    """The public fixed point of one kind of model; a node's, if nodes offer that kind."""
    input_bits, weight_bits, accumulator_bits = _CNN_BITS if kind == "cnn" else _NODE_BITS
    return Precision(input_bits, weight_bits, accumulator_bits, 1.0 if images else TABLE_BOUND)


def private_model(kind: str, teacher: Teacher, *, classes: int) -> Model:
    """A trained teacher as layers for private inference. Raises InvalidInput for another kind."""
    if kind == "cnn":
        return _cnn(teacher, classes)
    if kind not in PRIVATE:
        raise InvalidInput(f"model is {kind!r}; allowed, as private inference computes it: {', '.join(KINDS)}")
    return teacher.private_model(classes=classes)


def quantised_model(kind: str, teacher: Teacher, *, classes: int, images: bool) -> QuantisedModel:
    """The same model in fixed point. Raises InvalidInput if it could overflow; nothing has been shared then."""
    return quantise(private_model(kind, teacher, classes=classes), precision(kind, images=images))


def check_turn(kind: str, dataset: Dataset, *, turn: int) -> None:
    """Raises InvalidInput, before anything is trained, unless a turn of that many queries fits one batch of private
    inference. The size follows from the public architecture, so a model without weights is enough."""
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
        InferencePlan.of(blank.architecture, turn)
    except InvalidInput as error:
        raise InvalidInput(f"--turn {turn} is too much for one batch of a {kind}: {error}") from None


def bounded(inputs: Float[ndarray, "queries ..."], *, images: bool) -> Float[ndarray, "queries ..."]:
    """A querying party's records within the public bound of inputs."""
    bound = 1.0 if images else TABLE_BOUND
    return np.clip(inputs, -bound, bound)


def fixed_point_votes(model: QuantisedModel, inputs: Float[ndarray, "queries ..."]) -> Int64[ndarray, " queries"]:
    """The labels that `plain_inference` gives, bit for bit, in a fraction of its time.

    Computes with integers in float64, which BLAS multiplies: exact, because `quantise` has ensured that no sum reaches
    2^31.
    """
    values = quantised_inputs(model.architecture, inputs).astype(np.float64)
    for layer in model.layers:
        if isinstance(layer, ReLUShape):
            values = np.floor(np.maximum(values + layer.half, 0.0) * 2.0**-layer.shift)
        elif isinstance(layer, PoolShape):
            values = layer.sums(values)
        else:
            shape, matrix, bias = layer.shape, layer.matrix.T.astype(np.float64), layer.bias.astype(np.float64)
            parts = [
                shape.gathered(shape.columns(values[start : start + shape.chunk]) @ matrix + bias)
                for start in range(0, len(values), shape.chunk)
            ]
            values = np.concatenate(parts)
    return values.argmax(axis=1)


def _cnn(teacher: Any, classes: int) -> Model:
    """conv, batch norm, max-pool 2 x 2, ReLU, hidden, out: with the pool as differences and ReLUs."""
    found = _arrays(teacher)
    kernels = found["conv.weight"].astype(np.float64)
    filters = len(kernels)
    # The four positions of each window become four groups of filters of a 4 x 4 kernel with stride 2.
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
    hidden = fold_batch_norm(
        Dense(found["hidden.weight"].T.astype(np.float64), np.zeros(found["hidden.weight"].shape[1])),
        **{name: found[f"hidden_norm.{name}"].astype(np.float64) for name in _NORM},
        floor=_VARIANCE_FLOOR,
    )
    assert isinstance(hidden, Dense)
    summed = Dense(np.concatenate([hidden.weights, hidden.weights], axis=1), hidden.bias)
    seen = teacher.seen
    scores = Dense(found["out.weight"].T[seen], found["out.shift"][seen])
    out = among_seen(scores, seen, classes=classes)
    return Model(tuple(teacher.input_shape), (*layers, summed, ReLU(), out))


def _pointwise(matrix: Float[ndarray, "outputs channels"]) -> Convolution:
    return Convolution(matrix[:, :, None, None], np.zeros(len(matrix)))


def _arrays(teacher: Any) -> dict[str, ndarray]:
    return {name: value.numpy() for name, value in teacher.parameters.items()}
