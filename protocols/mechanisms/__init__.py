"""The mechanisms by name. Adding one: a file here and a line in the table."""

from __future__ import annotations

from protocols.errors import InvalidInput
from protocols.mechanisms.confident_gnmax import ConfidentGNMax
from protocols.mechanisms.gnmax import GNMax
from protocols.mechanisms.interactive_gnmax import InteractiveGNMax
from protocols.mechanisms.lnmax import LNMax
from protocols.mechanisms.mechanism import (
    PARAMETERS,
    VIEWS,
    GaussianMechanism,
    Lattice,
    Mechanism,
    QueryCost,
    Sensitivity,
    View,
    check_view,
)

MECHANISMS: dict[str, type[Mechanism]] = {kind.name: kind for kind in (GNMax, ConfidentGNMax, InteractiveGNMax, LNMax)}

__all__ = [
    "MECHANISMS",
    "PARAMETERS",
    "VIEWS",
    "ConfidentGNMax",
    "GNMax",
    "GaussianMechanism",
    "InteractiveGNMax",
    "Lattice",
    "Mechanism",
    "QueryCost",
    "Sensitivity",
    "View",
    "check_view",
    "make_mechanism",
    "mechanism_class",
]


def mechanism_class(name: str) -> type[Mechanism]:
    """The mechanism of that name. Raises InvalidInput with the known names."""
    if name not in MECHANISMS:
        raise InvalidInput(f"mechanism is {name!r}; allowed: {', '.join(MECHANISMS)}")
    return MECHANISMS[name]


def make_mechanism(name: str, *, view: View, lattice: Lattice | None = None, **parameters: float | None) -> Mechanism:
    """The mechanism `name` with these of PARAMETERS (None: not given); lattice: of integer noise.

    Raises InvalidInput for an unknown name, and for a parameter that is missing, has no use or is out of range.
    """
    return mechanism_class(name).build(view=view, given=parameters, lattice=lattice)
