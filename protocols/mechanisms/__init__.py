"""The mechanisms by name. Adding one: a file here and a line in the table."""

from __future__ import annotations

from protocols.errors import InvalidInput
from protocols.mechanisms.confident_gnmax import ConfidentGNMax
from protocols.mechanisms.gnmax import GNMax
from protocols.mechanisms.mechanism import VIEWS, Mechanism, QueryCost, View, check_view

MECHANISMS: dict[str, type[Mechanism]] = {GNMax.name: GNMax, ConfidentGNMax.name: ConfidentGNMax}

__all__ = ["MECHANISMS", "VIEWS", "Mechanism", "QueryCost", "View", "check_view", "make_mechanism", "mechanism_class"]


def mechanism_class(name: str) -> type[Mechanism]:
    """The mechanism of that name. Raises InvalidInput with the known names."""
    if name not in MECHANISMS:
        raise InvalidInput(f"mechanism is {name!r}; allowed: {', '.join(MECHANISMS)}")
    return MECHANISMS[name]


def make_mechanism(
    name: str, *, sigma: float, sigma_threshold: float | None, threshold: float | None, view: View
) -> Mechanism:
    """The mechanism `name` with this noise. Raises InvalidInput for an unknown name or a wrong parameter."""
    kind = mechanism_class(name)
    return kind.build(sigma=sigma, sigma_threshold=sigma_threshold, threshold=threshold, view=view)
