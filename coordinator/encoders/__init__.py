"""Encoders that an operator makes before a study: of public weights, or trained on the public pool.

Each becomes one ONNX file, which is what everybody else sees: a node needs onnxruntime to use it and nothing that made
it. What makes one is given the pool and nothing else, so no private record has a part in it.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import TYPE_CHECKING, Final

from protocols.errors import InvalidInput
from protocols.plugins import Parts, function_of
from runtime.distribution import installed_part, lacking

if TYPE_CHECKING:
    from jaxtyping import Float32
    from numpy import ndarray

# To add an encoder: one file and one line, or a plugin (docs/how-to/add-a-part.md).
ENCODERS: Final[Parts[Callable[..., bytes]]] = Parts(
    "encoder",
    {
        "efficientnet_lite0": "coordinator.encoders.efficientnet:encoder",
        "resnet18": "coordinator.encoders.resnet:encoder",
        "contrastive": "coordinator.encoders.contrastive:encoder",
        "denoising": "coordinator.encoders.denoising:encoder",
    },
    group="conclave.encoders",
    check=function_of("a pool, and of options by name, that returns the bytes of an ONNX file"),
)
# Rows of a pool below which nothing is learned of it.
FEWEST_ROWS: Final = 16


def encoder_maker(kind: str, **given: object) -> Callable[[Float32[ndarray, "pool ..."]], bytes]:
    """What makes the ONNX file of this kind, of a pool and for records like it; its features have mean 0 and standard
    deviation 1 there.

    given: options of the kind, which its function takes by name; None: left out. Raises InvalidInput for an option that
    it does not take or that is missing, and where a package is missing; the maker also for a pool that does not suit
    it, and DataUnavailable, DataCorrupt for weights that cannot be read.
    """
    make = installed_part(ENCODERS, kind)
    taken = {name: option for name, option in signature(make).parameters.items() if option.kind is option.KEYWORD_ONLY}
    said = {name: value for name, value in given.items() if value is not None}
    if unknown := [name for name in said if name not in taken]:
        name = unknown[0]
        raise InvalidInput(f"{name} is {said[name]!r}; encoder {kind!r} takes none: leave it out")
    if missing := [name for name, option in taken.items() if option.default is option.empty and name not in said]:
        raise InvalidInput(f"{missing[0]} is missing; allowed for encoder {kind!r}: {missing[0]}, to be given")

    def made(pool: Float32[ndarray, "pool ..."]) -> bytes:
        if len(pool) < FEWEST_ROWS:
            raise InvalidInput(f"the pool has {len(pool)} records; allowed for an encoder: at least {FEWEST_ROWS}")
        try:
            return make(pool, **said)
        except ModuleNotFoundError as absent:
            raise lacking(absent, f"encoder {kind!r}") from absent

    return made
