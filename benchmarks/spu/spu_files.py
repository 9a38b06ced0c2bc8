"""Files for the programs of this folder, which another interpreter runs: no dealer, by SPU Cheetah.

Those programs are separate processes with an environment of their own; nothing here imports SPU. See their docstrings
for what each party's file holds, and CONCLAVE_SPU_PYTHON for where the interpreter is.
"""

from __future__ import annotations

import json

import numpy as np
from jaxtyping import UInt32, UInt64
from numpy import ndarray

from protocols.crypto.field import P
from protocols.errors import MalformedMessage
from protocols.levels.hidden_queries.inference.architecture import ConvolutionShape, PoolShape
from protocols.levels.hidden_queries.inference.model import Convolution, Dense, Model


def public_json(model: Model, queries: int) -> str:
    """What both parties know: shapes of layers, classes and queries; no weight."""
    layers: list[dict[str, object]] = []
    for layer, shape in zip(model.layers, model.shapes(), strict=True):
        if isinstance(layer, Dense):
            layers.append({"kind": "dense", "weights": layer.weights.shape, "bias": layer.bias.shape})
        elif isinstance(layer, Convolution):
            assert isinstance(shape, ConvolutionShape)
            layers.append({
                "kind": "convolution", "weights": layer.kernels.shape, "bias": layer.bias.shape,
                "stride": layer.stride, "padding": layer.padding,
                "image": (shape.channels, shape.height, shape.width),
            })  # fmt: skip
        elif isinstance(shape, PoolShape):
            layers.append({"kind": "pool", "size": shape.size, "image": (shape.channels, shape.height, shape.width)})
        else:
            layers.append({"kind": "relu"})
    classes = model.shapes()[-1].outputs
    return json.dumps({"input_shape": model.input_shape, "layers": layers, "queries": queries, "classes": classes})


def private_arrays(model: Model, masks: UInt32[ndarray, "queries classes"]) -> dict[str, ndarray]:
    """The answering party's file: weights, and the guardian's share of the votes."""
    arrays: dict[str, ndarray] = {"masks": masks}
    for number, layer in enumerate(model.layers, 1):
        if isinstance(layer, Dense | Convolution):
            arrays[f"weights-{number}"] = layer.weights if isinstance(layer, Dense) else layer.kernels
            arrays[f"bias-{number}"] = layer.bias
    return arrays


def asking_share(
    own: UInt64[ndarray, "queries classes"], theirs: UInt64[ndarray, "queries classes"]
) -> UInt32[ndarray, "queries classes"]:
    """The asking party's share over F_p of the one-hot votes, from both parties' shares modulo 2^64.

    Raises MalformedMessage if they make no elements of F_p.
    """
    total = own + theirs
    if total.shape != own.shape or (total.size and int(total.max()) >= P):
        raise MalformedMessage("the shares modulo 2^64 make no elements of F_p")
    return total.astype(np.uint32)
