"""A model's public architecture as text, which an answering party announces to the querying party and the guardian.

Canonical JSON: equal architectures have equal text. What is read is checked before it is used.
"""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import Literal

from protocols.errors import DataCorrupt, InvalidInput, MalformedMessage
from protocols.levels.hidden_queries.inference.architecture import (
    Architecture,
    ConvolutionShape,
    DenseShape,
    LayerShape,
    PoolShape,
    Precision,
    ReLUShape,
)
from protocols.ranges import whole
from protocols.reading import parse_json

MAX_CHARACTERS = 2**16
_PADDINGS: dict[str, Literal["valid", "same"]] = {"valid": "valid", "same": "same"}
_KINDS: dict[str, type[LayerShape]] = {
    "convolution": ConvolutionShape, "dense": DenseShape, "pool": PoolShape, "relu": ReLUShape
}  # fmt: skip


def announced(architecture: Architecture) -> str:
    """The architecture's text."""
    names = {kind: name for name, kind in _KINDS.items()}
    layers = [{"kind": names[type(layer)], **asdict(layer)} for layer in architecture.layers]
    content = {"features": architecture.features, "layers": layers, "precision": asdict(architecture.precision)}
    return json.dumps(content, sort_keys=True, separators=(",", ":"))


def read_announced(text: str) -> Architecture:
    """The architecture that `text` announces. Raises MalformedMessage, also for sizes that are not allowed."""
    if len(text) > MAX_CHARACTERS:
        raise MalformedMessage(f"an architecture has {len(text)} characters; allowed: at most {MAX_CHARACTERS}")
    try:
        content = parse_json(text, where="an architecture")
    except DataCorrupt:
        raise MalformedMessage("an architecture is not JSON") from None
    top = _fields(content, {"features", "layers", "precision"}, "an architecture")
    if not isinstance(top["layers"], list):
        raise MalformedMessage("layers are not a list")
    try:
        precision = _precision(top["precision"])
        layers = tuple(_layer(number, each) for number, each in enumerate(top["layers"], 1))
        return Architecture(whole("architecture", "features", top["features"]), layers, precision)
    except InvalidInput as error:
        raise MalformedMessage(f"the architecture is not allowed: {error}") from None


def _layer(number: int, content: object) -> LayerShape:
    what = f"layer {number}"
    kind = content.get("kind") if isinstance(content, dict) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise MalformedMessage(f"{what} is of no known kind; allowed: {', '.join(_KINDS)}")
    assert isinstance(content, dict)
    rest = {name: value for name, value in content.items() if name != "kind"}
    if kind != "convolution":
        return _KINDS[kind](**_whole(rest, _KINDS[kind], what))  # type: ignore[arg-type]  # not a convolution's fields
    kernel, padding = rest.pop("kernel", None), rest.pop("padding", None)
    if not (isinstance(kernel, list) and len(kernel) == 2 and isinstance(padding, str)):
        raise MalformedMessage(f"{what} has no kernel of two sizes, or no padding")
    rest = _fields(rest, {each.name for each in fields(ConvolutionShape)} - {"kernel", "padding"}, what)
    sizes = {name: whole("architecture", "layers", value) for name, value in rest.items()}
    both = (whole("architecture", "layers", kernel[0]), whole("architecture", "layers", kernel[1]))
    if padding not in _PADDINGS:
        raise MalformedMessage(f"{what} has a padding other than valid and same")
    # The names of `sizes` were checked to be the remaining fields, all of them integers.
    return ConvolutionShape(**sizes, kernel=both, padding=_PADDINGS[padding])  # type: ignore[arg-type]


def _precision(content: object) -> Precision:
    found = _fields(content, {each.name for each in fields(Precision)}, "precision")
    bound = found.pop("input_bound")
    if type(bound) is not float and type(bound) is not int:
        raise MalformedMessage("input_bound is not a number")
    return Precision(
        input_bound=bound, **{name: whole("architecture", f"precision.{name}", value) for name, value in found.items()}
    )


def _whole(content: object, kind: type[LayerShape], what: str) -> dict[str, int]:
    """The fields of a dataclass, all integers."""
    found = _fields(content, {each.name for each in fields(kind)}, what)
    return {
        name: whole("architecture", "layers.shift" if name == "shift" else "layers", value)
        for name, value in found.items()
    }


def _fields(content: object, names: set[str], what: str) -> dict[str, object]:
    if not isinstance(content, dict) or set(content) != names:
        raise MalformedMessage(f"{what} has other fields than {', '.join(sorted(names))}")
    return content
