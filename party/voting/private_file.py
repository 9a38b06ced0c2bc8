"""A private model as a file: the layers that answer hidden queries, as npz, which runs no code and needs no torch.

It is stored beside the teacher that it was made from, in a folder that only the owner can read.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Final

import numpy as np

from protocols.array_files import read_arrays
from protocols.errors import DataCorrupt, DataUnavailable
from protocols.levels.hidden_queries.inference.model import AveragePool, Convolution, Dense, Model, ReLU
from runtime.files import write_atomically

PRIVATE_FILE: Final = "private.npz"
_FILE_BYTES: Final = 2**30
_LAYERS: Final = 64
_PADDINGS: Final = ("valid", "same")


def save_model(path: Path, model: Model) -> None:
    """Writes the file, readable by its owner only. Raises StorageFailed."""
    arrays = {"input_shape": np.array(model.input_shape, np.int64)}
    for number, layer in enumerate(model.layers, 1):
        match layer:
            case Dense():
                arrays |= {f"{number}-dense": layer.weights, f"{number}-bias": layer.bias}
            case Convolution():
                about = np.array([layer.stride, _PADDINGS.index(layer.padding)], np.int64)
                named = {"convolution": layer.kernels, "bias": layer.bias, "about": about}
                arrays |= {f"{number}-{name}": array for name, array in named.items()}
            case AveragePool():
                arrays[f"{number}-pool"] = np.array([layer.size], np.int64)
            case _:
                arrays[f"{number}-relu"] = np.zeros(0, np.int64)
    content = io.BytesIO()
    np.savez(content, **arrays)  # type: ignore[arg-type]  # NumPy's stub takes the arrays for its flag
    write_atomically(path, content.getvalue())


def load_model(path: Path) -> Model:
    """What save_model wrote. Raises DataUnavailable, DataCorrupt."""
    try:
        arrays = read_arrays(path, most=_FILE_BYTES)
        shape = tuple(int(each) for each in arrays.pop("input_shape"))
        layers: list[object] = []
        while arrays and len(layers) < _LAYERS:
            layers.append(_layer(len(layers) + 1, arrays))
        if arrays:
            raise DataCorrupt(f"{path} holds arrays that belong to no layer; run: conclave-party train STUDY")
        return Model(shape, tuple(layers))
    except DataUnavailable:
        raise DataUnavailable(f"{path} does not exist; run: conclave-party train STUDY") from None
    except (DataCorrupt, KeyError, ValueError, TypeError, IndexError, OverflowError) as failure:
        raise DataCorrupt(f"{path} is not a readable private model; run: conclave-party train STUDY") from failure


def _layer(number: int, arrays: dict[str, np.ndarray]) -> object:
    """Layer `number`, removed from `arrays`. Raises KeyError if there is none."""
    if f"{number}-relu" in arrays:
        arrays.pop(f"{number}-relu")
        return ReLU()
    if f"{number}-pool" in arrays:
        return AveragePool(int(arrays.pop(f"{number}-pool")[0]))
    bias = _floats(arrays.pop(f"{number}-bias"), 1)
    if f"{number}-dense" in arrays:
        return Dense(_floats(arrays.pop(f"{number}-dense"), 2), bias)
    kernels, about = _floats(arrays.pop(f"{number}-convolution"), 4), arrays.pop(f"{number}-about")
    return Convolution(kernels, bias, stride=int(about[0]), padding="same" if int(about[1]) else "valid")


def _floats(array: np.ndarray, rank: int) -> np.ndarray:
    if array.dtype.kind != "f" or array.ndim != rank:
        raise ValueError(f"{array.dtype} of rank {array.ndim}")
    return array
