"""Deliberately broken mechanisms: the real release with wrong inputs. An audit must detect each of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Float64
from numpy import broadcast_to, ndarray

from protocols.errors import InvalidInput
from protocols.mechanisms import Mechanism
from protocols.noise import StandardNormal

Counts = Float64[ndarray, "..."]


@dataclass(frozen=True)
class Break:
    """What is done to the mechanism's parameters, to its noise and to the counts before the real release."""

    meaning: str
    mechanism: Callable[[Mechanism], Mechanism] = lambda mechanism: mechanism
    noise: Callable[[StandardNormal], StandardNormal] = lambda noise: noise
    counts: Callable[[Counts], Counts] = lambda counts: counts


def _halved(mechanism: Mechanism) -> Mechanism:
    """The mechanism with half of each noise scale."""
    noise = {name: each for name, each in mechanism.parameters(view="label").items() if each.role == "noise"}
    halved = {name: each.wider(mechanism.values[name], 0.5) for name, each in noise.items()}
    return type(mechanism).build(view="label", given={**mechanism.values, **halved})


def _same_in_each_class(noise: StandardNormal) -> StandardNormal:
    """One draw per query, used for all of its classes: it cancels in the argmax."""

    def draw(shape: tuple[int, ...]) -> Float64[ndarray, "..."]:
        if len(shape) < 2:
            return noise(shape)
        one: Float64[ndarray, "..."] = broadcast_to(noise((*shape[:-1], 1)), shape)
        return one

    return draw


HONEST = Break("nothing is broken")
BREAKS: dict[str, Break] = {
    "half-noise": Break("half of the noise that is accounted for", mechanism=_halved),
    "same-noise": Break("the same noise in each class", noise=_same_in_each_class),
    "double-votes": Break("each vote is counted twice", counts=lambda counts: 2 * counts),
}


def break_named(name: str | None) -> Break:
    """The break of that name; HONEST for None. Raises InvalidInput with the known names."""
    if name is None:
        return HONEST
    if name not in BREAKS:
        raise InvalidInput(f"break is {name!r}; allowed: {', '.join(BREAKS)}")
    return BREAKS[name]
