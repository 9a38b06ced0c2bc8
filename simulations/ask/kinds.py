"""The mechanisms that `ask` can run, and their noise and threshold where none is given."""

from __future__ import annotations

from protocols.mechanisms import MECHANISMS, GaussianMechanism, Mechanism

# Shares of the votes cast. Both servers' label noise together is about that of Papernot et al. 2018 (0.16); skewed
# parties agree less than their teachers, so T is lower.
SHARES = {"sigma": 0.12, "threshold": 0.4}


def askable() -> dict[str, type[Mechanism]]:
    """Mechanisms by name: those that two servers can compute, with integer noise, whose parameters all have a share of
    the votes.

    That two servers take them is asked of the mechanism, not of the level: levels load what reads keys, which --help
    does without. A test holds both together.
    """
    return {
        name: kind
        for name, kind in MECHANISMS.loadable().items()
        if issubclass(kind, GaussianMechanism)
        and kind.decides_on_one_histogram()
        and kind.parameters().keys() <= SHARES.keys()
    }
