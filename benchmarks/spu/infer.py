# mypy: ignore-errors
# Written for another interpreter; see two_parties.py.
"""Confidential queries without a dealer: the votes of a private model on private records, by SPU Cheetah.

    PYTHON infer.py --role asking --asking HOST:PORT --answering HOST:PORT --authority CA --certificate C --key K \\
        --architecture PUBLIC.json --input RECORDS.npz --output SHARE.npz

--architecture: what `spu_files.public_json` gives. The asking party's file has `inputs`; the answering party's the
weights and `masks`, elements of F_p that the guardian's share expands to. Each party's output file has `share`, modulo
2^64; the answering party gives it to the asking one, and the sum is the asking party's share over F_p of one-hot votes.
Fixed point of 16 bits, truncated with probability: labels agree with floats on nearly all queries, not on all.
"""

from __future__ import annotations

import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jax import lax
from two_parties import Party, arguments, timed

P = 2**31 - 1


def scores(layers: list[dict], inputs, parameters):
    """The model's scores, one row per query."""
    values, left = inputs, list(parameters)
    for layer in layers:
        if layer["kind"] == "dense":
            values = values.reshape(len(inputs), -1) @ left.pop(0).T + left.pop(0)
        elif layer["kind"] == "convolution":
            values = lax.conv_general_dilated(
                values.reshape(len(inputs), *layer["image"]),
                left.pop(0),
                (layer["stride"],) * 2,
                layer["padding"].upper(),
                dimension_numbers=("NCHW", "OIHW", "NCHW"),
            )
            values = values + left.pop(0)[None, :, None, None]
        elif layer["kind"] == "pool":
            channels, height, width = layer["image"]
            size = layer["size"]
            squares = values.reshape(len(inputs), channels, height // size, size, width // size, size)
            values = squares.sum(axis=(3, 5)) * (1.0 / size**2)
        else:
            values = jnp.maximum(values, 0.0)
    return values.reshape(len(inputs), -1)


def main() -> None:
    """Runs one party."""
    parser = arguments(__doc__)
    parser.add_argument("--architecture", required=True, metavar="FILE")
    options = parser.parse_args()
    public = json.loads(Path(options.architecture).read_text())
    own = np.load(options.input)
    queries, classes = public["queries"], public["classes"]

    def mine(name: str, shape, dtype=np.float32) -> np.ndarray:
        return own[name].astype(dtype).reshape(shape) if name in own else np.zeros(shape, dtype)

    masks = mine("masks", (queries, classes), np.int64)
    inputs = {"inputs": ("asking", mine("inputs", (queries, *public["input_shape"])))}
    for number, layer in enumerate(public["layers"], 1):
        for name in ("weights", "bias"):
            if name in layer:
                inputs[f"{name}-{number}"] = ("answering", mine(f"{name}-{number}", layer[name]))
    # The asking party's share is one-hot - mask: one of two numbers that the answering party knows.
    inputs["lost"] = ("answering", (-masks % P).astype(np.int32))
    inputs["won"] = ("answering", ((1 - masks) % P).astype(np.int32))

    def votes(records, *parameters):
        *weights, lost, won = parameters
        label = jnp.argmax(scores(public["layers"], records, weights), axis=1)
        return lost + (label[:, None] == jnp.arange(classes)[None, :]) * (won - lost)

    (share,), seconds = timed(Party(options), votes, inputs, options.repeats)
    np.savez(options.output, share=share, seconds=np.array(seconds))


if __name__ == "__main__":
    main()
