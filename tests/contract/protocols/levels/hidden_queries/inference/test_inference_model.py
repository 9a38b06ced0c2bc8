"""Models in floats against plain loops; folding of batch norm; what is refused."""

from dataclasses import dataclass

import numpy as np
import pytest

from benchmarks.float_inference import float_inference
from protocols.errors import InvalidInput
from protocols.levels.hidden_queries.inference.model import (
    AveragePool,
    Convolution,
    Dense,
    Model,
    ReLU,
    fold_batch_norm,
    matrix,
)
from tests.harness.refusals import refuses


@dataclass(frozen=True)
class MaxPool:
    size: int


def looped_convolution(image, layer):
    """A cross-correlation by its definition, one output at a time."""
    filters, channels, kernel_height, kernel_width = layer.kernels.shape
    if layer.padding == "same":
        sizes = [-(-size // layer.stride) for size in image.shape[1:]]
        totals = [
            max(0, (size - 1) * layer.stride + kernel - given)
            for size, kernel, given in zip(sizes, (kernel_height, kernel_width), image.shape[1:], strict=True)
        ]
        image = np.pad(image, [(0, 0)] + [(total // 2, total - total // 2) for total in totals])
    else:
        sizes = [
            (given - kernel) // layer.stride + 1
            for given, kernel in zip(image.shape[1:], (kernel_height, kernel_width), strict=True)
        ]
    out = np.zeros((filters, *sizes))
    for f, y, x in np.ndindex(*out.shape):
        top, left = y * layer.stride, x * layer.stride
        for c, dy, dx in np.ndindex(channels, kernel_height, kernel_width):
            out[f, y, x] += layer.kernels[f, c, dy, dx] * image[c, top + dy, left + dx]
        out[f, y, x] += layer.bias[f]
    return out


@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize(("stride", "kernel"), [(1, (3, 3)), (2, (3, 2)), (3, (2, 5)), (2, (1, 1))])
def test_convolutions_are_those_of_the_definition(padding, stride, kernel) -> None:
    rng = np.random.default_rng(1)
    layer = Convolution(rng.normal(size=(4, 2, *kernel)), rng.normal(size=4), stride=stride, padding=padding)
    model = Model((2, 7, 6), (layer,))
    (shape,) = model.shapes()
    images = rng.normal(size=(3, 2, 7, 6))
    found = shape.gathered(shape.columns(images.reshape(3, -1)) @ matrix(layer).T + layer.bias)
    for image, row in zip(images, found, strict=True):
        expected = looped_convolution(image, layer)
        assert shape.output_shape == expected.shape
        assert row == pytest.approx(expected.reshape(-1))


def test_labels_are_those_of_layers_applied_one_after_another() -> None:
    rng = np.random.default_rng(2)
    layer = Convolution(rng.normal(size=(3, 1, 3, 3)), rng.normal(size=3))
    last = Dense(rng.normal(size=(4, 27)), rng.normal(size=4))
    model = Model((8, 8), (layer, ReLU(), AveragePool(2), last))
    images = rng.normal(size=(20, 8, 8))
    for image, label in zip(images, float_inference(model, images), strict=True):
        hidden = np.maximum(looped_convolution(image[None], layer), 0)
        pooled = hidden.reshape(3, 3, 2, 3, 2).mean(axis=(2, 4)).reshape(-1)
        assert label == (last.weights @ pooled + last.bias).argmax()


@pytest.mark.parametrize("kind", ["dense", "convolution"])
def test_folded_batch_norm_is_the_layer_and_then_batch_norm(kind) -> None:
    rng = np.random.default_rng(3)
    if kind == "dense":
        layer = Dense(rng.normal(size=(5, 6)), rng.normal(size=5))
    else:
        layer = Convolution(rng.normal(size=(5, 2, 1, 3)), rng.normal(size=5))
    scale, shift, mean, variance = rng.normal(size=(3, 5)).tolist() + [rng.random(5).tolist()]
    scale, shift, mean, variance = (np.array(each) for each in (scale, shift, mean, variance))
    folded = fold_batch_norm(layer, scale=scale, shift=shift, mean=mean, variance=variance, floor=1e-5)
    inputs = rng.normal(size=6)
    before = matrix(layer) @ inputs + layer.bias
    expected = (before - mean) / np.sqrt(variance + 1e-5) * scale + shift
    assert matrix(folded) @ inputs + folded.bias == pytest.approx(expected)
    with refuses(InvalidInput, "not above 0"):
        fold_batch_norm(layer, scale=scale, shift=shift, mean=mean, variance=-variance, floor=0.0)


KERNELS = Convolution(np.ones((2, 1, 3, 3)), np.zeros(2))


@pytest.mark.parametrize(
    ("shape", "layers", "said"),
    [
        ((4, 4), (MaxPool(2),), "layer 1 is a MaxPool; supported: Dense, Convolution .*, ReLU, AveragePool"),
        ((4,), (), "no layers; supported: Dense"),
        ((4, 4, 4, 4), (ReLU(),), "input_shape"),
        ((4,), (KERNELS,), r"layer 1, Convolution, is given shape \(4,\)"),
        ((4,), (AveragePool(2),), "layer 1, AveragePool"),
        ((4, 6), (AveragePool(4),), "squares of 4; allowed: divisors of 4, 6"),
        ((2, 4, 4), (KERNELS,), "kernels of shape"),
        ((2, 9), (KERNELS,), "kernels of shape"),
        ((4, 4), (Convolution(np.ones((1, 1, 2, 2)), np.zeros(1), stride=0),), "stride 0"),
        ((4, 4), (KERNELS, Dense(np.ones((2, 9)), np.zeros(2))), "layer 2 takes 9 values"),
        ((4,), (Dense(np.ones((2, 4)), np.zeros(3)),), "biases of shape"),
        ((4,), (Dense(np.full((2, 4), np.nan), np.zeros(2)),), "layer 1 has weights or biases that are not finite"),
    ],
)
def test_models_that_private_inference_cannot_run_are_refused_by_layer(shape, layers, said) -> None:
    with pytest.raises(InvalidInput, match=said):
        Model(shape, layers)


def test_no_weight_is_shown() -> None:
    assert "7.25" not in repr(Model((1,), (Dense(np.full((2, 1), 7.25), np.full(2, 7.25)),)))
