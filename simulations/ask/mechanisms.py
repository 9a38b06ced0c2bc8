"""The mechanisms that `ask` can run, and their noise and threshold where none is given."""

from __future__ import annotations

from protocols.mechanisms import MECHANISMS, GaussianMechanism, Mechanism

# Shares of the votes cast. Both servers' label noise together is about that of Papernot et al. 2018 (0.16); skewed
# parties agree less than their teachers, so T is lower, and the test needs less noise to tell anything.
SHARES = {"sigma": 0.12, "sigma_threshold": 0.3, "threshold": 0.4}


def askable() -> dict[str, type[Mechanism]]:
    """Mechanisms by name: those of one round, with integer noise, whose parameters all have a share of the votes."""
    return {
        name: kind
        for name, kind in MECHANISMS.loadable().items()
        if issubclass(kind, GaussianMechanism) and not kind.interactive and kind.parameters().keys() <= SHARES.keys()
    }
