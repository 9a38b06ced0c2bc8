"""A public architecture as an array that travels, and how much its computation sends: checked before it is computed."""

from __future__ import annotations

from math import prod

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from protocols.errors import InvalidInput, MalformedMessage
from protocols.inference.architecture import (
    MAX_FEATURES,
    Architecture,
    ConvolutionShape,
    DenseShape,
    LayerShape,
    PoolShape,
    Precision,
    ReLUShape,
)
from protocols.inference.material import Piece
from protocols.inference.plan import Plan

_COLUMNS = 9
_MAX_LAYERS = 64
_DENSE, _CONVOLUTION, _POOL, _RELU = range(4)
_USED = {_DENSE: 2, _CONVOLUTION: 8, _POOL: 4, _RELU: 2}
_PADDINGS = ("valid", "same")
# What one reply of an answering party, and one message to it, may have: a hub takes no larger one from a node.
REPLY_BYTES = 7 * 2**20
REQUEST_BYTES = 192 * 2**20


def as_array(architecture: Architecture) -> Int64[ndarray, "layers 9"]:
    """One row a layer: its kind, its sizes, zeros. The precision is not in it: it is the study's."""
    rows = np.zeros((len(architecture.layers), _COLUMNS), dtype=np.int64)
    for row, layer in zip(rows, architecture.layers, strict=True):
        values = _row(layer)
        row[: len(values)] = values
    return rows


def from_array(rows: ndarray, precision: Precision) -> Architecture:
    """The architecture. Raises MalformedMessage unless `rows` is what as_array gives of one."""
    if rows.dtype != np.int64 or rows.ndim != 2 or rows.shape[1] != _COLUMNS or not 1 <= len(rows) <= _MAX_LAYERS:
        raise MalformedMessage(
            f"an architecture is {rows.dtype} {rows.shape}; allowed: int64, 1 to {_MAX_LAYERS} rows of {_COLUMNS}"
        )
    if (rows < 0).any() or (rows > MAX_FEATURES).any():
        raise MalformedMessage(f"an architecture has sizes outside 0 to {MAX_FEATURES}")
    layers = tuple(_layer(number, row, precision) for number, row in enumerate(rows.tolist(), 1))
    try:
        return Architecture(layers[0].inputs, layers, precision)
    except InvalidInput as error:
        raise MalformedMessage(f"an architecture does not fit together: {error}") from None


def check_sizes(architecture: Architecture, queries: int) -> None:
    """Raises InvalidInput unless all messages of a batch of so many queries are within the limits."""
    plan = Plan.of(architecture, queries)
    reply = max(_bytes(exchange.reply) for exchange in plan.exchanges)
    request = max(_bytes(plan.corrections), *(_bytes(exchange.request) for exchange in plan.exchanges))
    for what, size, limit in (
        ("a reply of the answering party", reply, REPLY_BYTES),
        ("a message to the answering party", request, REQUEST_BYTES),
    ):
        if size > limit:
            raise InvalidInput(
                f"{what} about {queries} queries has {size} bytes; allowed: {limit}: use a smaller model, or a study "
                "with a lower batch_limit"
            )


def _row(layer: LayerShape) -> tuple[int, ...]:
    if isinstance(layer, DenseShape):
        return (_DENSE, layer.inputs, layer.outputs)
    if isinstance(layer, ConvolutionShape):
        padding = _PADDINGS.index(layer.padding)
        sizes = (layer.channels, layer.height, layer.width, layer.filters, *layer.kernel, layer.stride)
        return (_CONVOLUTION, *sizes, padding)
    if isinstance(layer, PoolShape):
        return (_POOL, layer.channels, layer.height, layer.width, layer.size)
    return (_RELU, layer.inputs, layer.shift)


def _layer(number: int, row: list[int], precision: Precision) -> LayerShape:
    """One layer. Raises MalformedMessage for one that computes nothing or has a value where there must be none."""
    kind, sizes = row[0], row[1:]
    used = _USED.get(kind)
    if used is None or any(sizes[used:]):
        raise MalformedMessage(f"layer {number} of an architecture is of no known kind, or has a size too many")
    # A padding and a shift may be zero.
    if not all(sizes[: used - (kind in (_CONVOLUTION, _RELU))]):
        raise MalformedMessage(f"layer {number} of an architecture has a size of zero; allowed: 1 and more")
    if kind == _DENSE:
        return DenseShape(sizes[0], sizes[1])
    if kind == _RELU:
        if sizes[1] > precision.accumulator_bits - 2:
            raise MalformedMessage(f"layer {number} drops {sizes[1]} bits; allowed: fewer than its sums have")
        return ReLUShape(sizes[0], sizes[1])
    channels, height, width = sizes[:3]
    if prod((channels, height, width)) > MAX_FEATURES:
        raise MalformedMessage(f"layer {number} takes too many values; allowed: at most {MAX_FEATURES}")
    if kind == _POOL:
        if height % sizes[3] or width % sizes[3]:
            raise MalformedMessage(f"layer {number} pools squares that do not cover its image")
        return PoolShape(channels, height, width, sizes[3])
    filters, rows, columns, stride, padding = sizes[3:8]
    if padding >= len(_PADDINGS) or rows > height or columns > width:
        raise MalformedMessage(f"layer {number} has a padding of no kind, or a kernel larger than its image")
    shape = ConvolutionShape(channels, height, width, filters, (rows, columns), stride, "same" if padding else "valid")
    if shape.outputs > MAX_FEATURES:
        raise MalformedMessage(f"layer {number} gives too many values; allowed: at most {MAX_FEATURES}")
    return shape


def _bytes(pieces: tuple[Piece, ...]) -> int:
    return sum(prod(piece.shape) * np.dtype(piece.dtype).itemsize for piece in pieces)
