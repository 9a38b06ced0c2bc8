"""A model's labels in floating point: what fixed point and private inference are compared with."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int64
from numpy import ndarray

from protocols.levels.hidden_queries.inference.architecture import LinearShape, PoolShape
from protocols.levels.hidden_queries.inference.model import (
    Convolution,
    Dense,
    Model,
    QuantisedModel,
    matrix,
    plain_inference,
)


def float_inference(model: Model, inputs: Float[ndarray, "queries ..."]) -> Int64[ndarray, " queries"]:
    """The model's labels in float64; ties go to the lowest class."""
    values = inputs.reshape(len(inputs), model.features).astype(np.float64)
    for layer, shape in zip(model.layers, model.shapes(), strict=True):
        if isinstance(layer, Dense | Convolution):
            assert isinstance(shape, LinearShape)
            products = [
                shape.gathered(shape.columns(values[start : start + shape.chunk]) @ matrix(layer).T + layer.bias)
                for start in range(0, len(values), shape.chunk)
            ]
            values = np.concatenate(products)
        elif isinstance(shape, PoolShape):
            values = shape.sums(values) / shape.size**2
        else:
            values = np.maximum(values, 0.0)
    return values.argmax(axis=1)


def agreement(model: Model, quantised: QuantisedModel, inputs: Float[ndarray, "queries ..."]) -> float:
    """The share of queries on which fixed point and float64 give the same label."""
    return float(np.mean(float_inference(model, inputs) == plain_inference(quantised, inputs)))
