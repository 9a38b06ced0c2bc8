"""The mechanisms by name. Adding one: a file here and a line in the table, or a plugin (docs/how-to/add-a-part.md)."""

from __future__ import annotations

from protocols.errors import InvalidInput
from protocols.mechanisms.confident_gnmax import ConfidentGNMax
from protocols.mechanisms.gaussian_mechanism import GaussianMechanism
from protocols.mechanisms.gnmax import GNMax
from protocols.mechanisms.interactive_gnmax import InteractiveGNMax
from protocols.mechanisms.lnmax import LNMax
from protocols.mechanisms.mechanism import ONE_VOTE, Lattice, Mechanism, QueryCost, Sensitivity
from protocols.mechanisms.parameter import VIEWS, Number, Parameter, View, check_view, parameter
from protocols.mechanisms.tau import TauVoting
from protocols.mechanisms.thresholded_gnmax import ThresholdedGNMax
from protocols.plugins import Parts

__all__ = [
    "MECHANISMS",
    "ONE_VOTE",
    "VIEWS",
    "ConfidentGNMax",
    "GNMax",
    "GaussianMechanism",
    "InteractiveGNMax",
    "LNMax",
    "Lattice",
    "Mechanism",
    "Number",
    "Parameter",
    "QueryCost",
    "Sensitivity",
    "TauVoting",
    "ThresholdedGNMax",
    "View",
    "check_view",
    "make_mechanism",
    "mechanism_parameters",
    "parameter",
]


def _check(name: str, loaded: object) -> type[Mechanism]:
    if not (isinstance(loaded, type) and issubclass(loaded, Mechanism)):
        raise InvalidInput(f"it is {loaded!r}; allowed: a Mechanism")
    if loaded.__abstractmethods__:
        raise InvalidInput(f"it does not define {', '.join(sorted(loaded.__abstractmethods__))}; allowed: all of them")
    if loaded.name != name:
        raise InvalidInput(f"its name is {loaded.name!r}; allowed: {name!r}, as the entry point says")
    return loaded


MECHANISMS: Parts[type[Mechanism]] = Parts(
    "mechanism",
    {kind.name: kind for kind in (GNMax, ThresholdedGNMax, ConfidentGNMax, InteractiveGNMax, LNMax, TauVoting)},
    group="conclave.mechanisms",
    check=_check,
)


def make_mechanism(name: str, *, view: View, lattice: Lattice | None = None, **parameters: Number | None) -> Mechanism:
    """The mechanism `name` with its parameters (None: not given); lattice: of integer noise.

    Raises InvalidInput for an unknown name, and for a parameter that is missing, has no use or is out of range.
    """
    return MECHANISMS[name].build(view=view, given=parameters, lattice=lattice)


def mechanism_parameters() -> dict[str, list[tuple[str, Parameter]]]:
    """Every parameter by name, with the mechanisms that take it; without the plugins that cannot be loaded."""
    taken: dict[str, list[tuple[str, Parameter]]] = {}
    for mechanism, kind in MECHANISMS.loadable().items():
        for name, each in kind.parameters().items():
            taken.setdefault(name, []).append((mechanism, each))
    return taken
