"""What networks of teachers and students share: parameters by name, batch norm, last layers, descent, the device.

A network is a function of its parameters, so that they can be stacked or averaged. Batch norm (Ioffe & Szegedy 2015,
Alg. 1) uses the batch's own statistics while training; a last pass writes those that predictions use into the
parameters, under the names `<layer>.mean` and `.variance`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.optim.adamw import adamw

from protocols.errors import InvalidInput

Parameters = dict[str, Tensor]
Shapes = dict[str, tuple[int, ...]]
# Mean and variance of each channel.
Statistics = tuple[Tensor, Tensor]

VARIANCE_FLOOR: Final = 1e-5
_WARM_UP_STEPS: Final = 10
# Added to the logits of classes that do not occur in the labels.
_NEVER: Final = -1e9


def norm_shapes(layer: str, channels: int) -> Shapes:
    """The parameters of a batch norm that gradients train."""
    return {f"{layer}.scale": (channels,), f"{layer}.shift": (channels,)}


def dense_shapes(features: int, *, hidden: int, classes: int) -> Shapes:
    """The trained parameters of one hidden layer with batch norm, and of the scores; see dense_logits."""
    return (
        {"hidden.weight": (features, hidden)}
        | norm_shapes("hidden_norm", hidden)
        | {"out.weight": (hidden, classes), "out.shift": (classes,)}
    )


def initial(shapes: Shapes, generator: np.random.Generator) -> Parameters:
    """He-normal weights from the generator; batch norm starts as the identity, the last layer nearly flat."""
    parameters: Parameters = {}
    for name, shape in shapes.items():
        if name.endswith(".scale"):
            parameters[name] = torch.ones(shape)
        elif name.endswith(".shift"):
            parameters[name] = torch.zeros(shape)
        else:
            inputs = shape[0] if len(shape) == 2 else math.prod(shape[1:])
            weights = generator.standard_normal(shape, np.float32)
            parameters[name] = torch.from_numpy(weights) * math.sqrt(2 / inputs)
    parameters["out.weight"] *= 0.1  # so that training does not start confidently wrong
    return parameters


def batch_norm(
    parameters: Parameters, layer: str, statistics: Callable[[], Statistics], found: Parameters | None
) -> tuple[Tensor, Tensor]:
    """The factor and the offset that batch norm applies to each channel.

    Uses the statistics in `parameters` if present, otherwise those of the batch; if `found` is a dict, it writes there
    the ones that it used.
    """
    if f"{layer}.mean" in parameters:
        mean, variance = parameters[f"{layer}.mean"], parameters[f"{layer}.variance"]
    else:
        mean, variance = statistics()
    if found is not None:
        found[f"{layer}.mean"], found[f"{layer}.variance"] = mean, variance
    scale = parameters[f"{layer}.scale"] * torch.rsqrt(variance + VARIANCE_FLOOR)
    return scale, parameters[f"{layer}.shift"] - mean * scale


def dense_logits(
    parameters: Parameters, inputs: Tensor, statistics: Callable[[Tensor], Statistics], found: Parameters | None
) -> Tensor:
    """The scores of flattened inputs, through one hidden layer with batch norm."""
    hidden = inputs.flatten(1) @ parameters["hidden.weight"]
    scale, offset = batch_norm(parameters, "hidden_norm", lambda: statistics(hidden), found)
    return torch.relu(hidden * scale + offset) @ parameters["out.weight"] + parameters["out.shift"]


def planes(images: Float[Tensor, "images height width ..."]) -> Float[Tensor, "images channels height width"]:
    """Grey images, or colour ones [height, width, 3], with an axis of channels before their sides, as torch has it."""
    return images[:, None] if images.ndim == 3 else images.movedim(-1, 1)


def seen_offsets(seen: Int[np.ndarray, " seen"], classes: int) -> Float[Tensor, " classes"]:
    """What to add to logits: 0 for the classes that occurred in the labels, very low for the others."""
    offsets = torch.full((classes,), _NEVER)
    offsets[torch.from_numpy(seen)] = 0.0
    return offsets


def learning_rate_factor(step: int, steps: int) -> float:
    """A short warm-up, then a half cosine down to zero (Loshchilov & Hutter 2017, Eq. 5)."""
    return min(1.0, (step + 1) / _WARM_UP_STEPS) * 0.5 * (1 + math.cos(math.pi * step / steps))


class Descent:
    """AdamW (Loshchilov & Hutter 2019), the same bits as torch.optim.AdamW(fused=True), whose class takes a second to
    import torch's compiler."""

    def __init__(self, parameters: Iterable[Tensor], *, weight_decay: float) -> None:
        self._parameters, self._decay = list(parameters), weight_decay
        self._means, self._squares = ([torch.zeros_like(each) for each in self._parameters] for _ in range(2))
        self._steps = [torch.zeros((), device=each.device) for each in self._parameters]

    def step(self, loss: Tensor, learning_rate: float) -> None:
        """Moves the parameters by the gradients of the loss, and forgets these."""
        loss.backward()  # type: ignore[no-untyped-call]  # torch declares no types for it
        with torch.no_grad():
            adamw(
                self._parameters, [each.grad for each in self._parameters if each.grad is not None], self._means,
                self._squares, [], self._steps, fused=True, amsgrad=False, beta1=0.9, beta2=0.999, lr=learning_rate,
                weight_decay=self._decay, eps=1e-8, maximize=False,
            )  # fmt: skip
        for each in self._parameters:
            each.grad = None


def torch_device(name: str) -> torch.device:
    """The device of this name; 'auto' is a CUDA device if there is one. Raises InvalidInput."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as failure:
        raise InvalidInput(f"device is {name!r}; allowed: auto, cpu, cuda, cuda:N") from failure
    if device.type not in ("cpu", "cuda") or (device.type == "cuda" and not torch.cuda.is_available()):
        raise InvalidInput(f"device is {name!r}; allowed here: auto, cpu, and cuda with a CUDA device")
    return device
