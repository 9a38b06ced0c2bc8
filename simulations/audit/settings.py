"""The settings of an audit, checked, and the targets that they name."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from protocols.budgets.accountant import accountant, default_accountant
from protocols.budgets.participation import check_rate
from protocols.errors import InvalidInput
from protocols.mechanisms import MECHANISMS
from protocols.mechanisms.confident_gnmax import ConfidentGNMax
from protocols.mechanisms.gnmax import GNMax
from protocols.mechanisms.interactive_gnmax import InteractiveGNMax
from protocols.mechanisms.lnmax import LNMax
from protocols.mechanisms.mechanism import VIEWS, GaussianMechanism, View
from simulations.audit.breaks import BREAKS
from simulations.audit.neighbours import THRESHOLD_NOISES
from simulations.audit.target import AuditedMechanism, Target

NOISES = ("seeded", "system", "fast")
# Above this the enumeration of outcomes grows large.
_MOST_QUERIES = 64


@dataclass(frozen=True, kw_only=True)
class AuditSettings:
    """What is audited and how hard. Raises InvalidInput for a value out of range.

    trials: of each of both votes of each pair; sigma, sigma_threshold: votes; gamma: per vote; weight: of the unit, in
    votes; rate: of secret coins; confidence: with which all bounds of the audit hold together; noise: "seeded" (the
    node's sampler on a seeded stream), "system" (the same on the operating system's generator), "fast" (NumPy's
    normals); broken: a name of BREAKS or None.
    """

    mechanisms: tuple[str, ...] = field(default=tuple(MECHANISMS))
    views: tuple[View, ...] = VIEWS
    trials: int
    queries: int
    classes: int
    weight: float
    sigma: float
    sigma_threshold: float
    gamma: float
    rate: float
    delta: float
    confidence: float
    noise: str
    seed: int
    broken: str | None = None

    def __post_init__(self) -> None:
        for name in self.mechanisms:
            if name not in MECHANISMS:
                raise InvalidInput(f"mechanism is {name!r}; allowed: {', '.join(MECHANISMS)}")
        _between("trials", self.trials, 1000, 20_000_000)
        _between("queries", self.queries, 1, _MOST_QUERIES)
        _between("classes", self.classes, 2, 1000)
        _between("seed", self.seed, 0, 2**63 - 1)
        for name in ("weight", "sigma", "sigma_threshold", "gamma"):
            _between(name, getattr(self, name), 1e-3, 1e4)
        check_rate("secret", np.array([self.rate]))
        for name in ("delta", "confidence"):
            if not 0 < getattr(self, name) < 1:
                raise InvalidInput(f"{name} is {getattr(self, name)}; allowed: in (0, 1)")
        if self.noise not in NOISES:
            raise InvalidInput(f"noise is {self.noise!r}; allowed: {', '.join(NOISES)}")
        if self.broken is not None and self.broken not in BREAKS:
            raise InvalidInput(f"break is {self.broken!r}; allowed: {', '.join(BREAKS)}")

    def targets(self) -> list[Target]:
        """Every mechanism under its view "label"; the noisy histogram of either noise; with secret coins if Gaussian.

        What a threshold adds to a histogram that is seen is nothing, so that view is audited once for each noise.
        """
        found = []
        for name in self.mechanisms:
            mechanism = self._mechanism(name)
            for view in self.views:
                if view == "histogram" and name not in ("gnmax", "lnmax"):
                    continue
                found += [self._target(mechanism, view, 1.0)]
                if isinstance(mechanism, GaussianMechanism) and self.rate < 1:
                    found += [self._target(mechanism, view, self.rate)]
        if not found:
            raise InvalidInput(
                f"{', '.join(self.mechanisms)} under the view {', '.join(self.views)} is not audited; allowed: gnmax "
                "and lnmax for histogram (a threshold adds nothing to a histogram that is seen), all for label"
            )
        return found

    def _target(self, mechanism: AuditedMechanism, view: View, rate: float) -> Target:
        chosen = default_accountant(mechanism, view)
        if rate < 1 and chosen.name == "gaussian_dp":
            # A mixture is not Gaussian DP.
            chosen = accountant("gaussian")
        return Target(
            mechanism=mechanism, accountant=chosen, view=view, weight=self.weight, rate=rate, classes=self.classes,
            queries=self.queries,
        )  # fmt: skip

    def _mechanism(self, name: str) -> AuditedMechanism:
        threshold = THRESHOLD_NOISES * (self.sigma + self.sigma_threshold)
        if name == GNMax.name:
            return GNMax(sigma=self.sigma)
        if name == ConfidentGNMax.name:
            return ConfidentGNMax(sigma=self.sigma, sigma_threshold=self.sigma_threshold, threshold=threshold)
        if name == InteractiveGNMax.name:
            return InteractiveGNMax(
                sigma=self.sigma, sigma_threshold=self.sigma_threshold, threshold=threshold,
                interactive_threshold=threshold, reinforce_confidence=1.0,
            )  # fmt: skip
        assert name == LNMax.name, "a mechanism without an audit"
        return LNMax(gamma=self.gamma)


def _between(name: str, value: float, least: float, most: float) -> None:
    if not (np.isfinite(value) and least <= value <= most):
        raise InvalidInput(f"{name} is {value}; allowed: {least:g} to {most:g}")
