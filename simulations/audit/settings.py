"""The settings of an audit, checked, and the targets that they name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from protocols.budgets.accountant import default_accountant
from protocols.budgets.participation import check_rate
from protocols.errors import InvalidInput
from protocols.mechanisms import MECHANISMS, VIEWS, GNMax, Mechanism, View
from simulations.audit.as_run.breaks import RUN_BREAKS
from simulations.audit.breaks import BREAKS
from simulations.audit.neighbours import THRESHOLD_NOISES
from simulations.audit.target import Target

if TYPE_CHECKING:
    from simulations.audit.as_run.studies import AuditedRun

NOISES = ("seeded", "system", "fast")
# With more, the enumeration of outcomes grows too large.
_MOST_QUERIES = 64
# The noise of a threshold test, if not given, as a multiple of the label's.
THRESHOLD_SCALE = 1.5
# With more, the tests of laws would take most of an audit whose bounds need millions.
_MOST_LAW_TRIALS = 200_000


@dataclass(frozen=True, kw_only=True)
class AuditSettings:
    """What is audited and how hard. Raises InvalidInput for a value out of range.

    trials: on each side of each pair; sigma: the scale of all noise that `parameters` does not set, in votes;
    parameters: noise scales of the mechanisms, by name; weight: of the unit, in votes; rate: of secret coins;
    confidence: with which all bounds of the audit hold together; noise: "seeded" (the node's sampler with a seeded
    stream), "system" (with the operating system's generator), "fast" (NumPy's normals); broken: a name of BREAKS
    or RUN_BREAKS, or None; law_trials: the trials of the tests of laws, None for as many, but at most 200,000.
    """

    mechanisms: tuple[str, ...] = field(default=tuple(MECHANISMS))
    views: tuple[View, ...] = VIEWS
    trials: int
    queries: int
    classes: int
    weight: float
    sigma: float
    parameters: Mapping[str, float] = field(default_factory=dict)
    rate: float
    delta: float
    confidence: float
    noise: str
    seed: int
    broken: str | None = None
    law_trials: int | None = None

    def __post_init__(self) -> None:
        for name in self.mechanisms:
            _ = MECHANISMS[name]  # refuses an unknown name
        check_between("trials", self.trials, 1000, 20_000_000)
        check_between("law_trials", self.trials_of_laws, 1000, 20_000_000)
        check_between("queries", self.queries, 1, _MOST_QUERIES)
        check_between("classes", self.classes, 2, 1000)
        check_between("seed", self.seed, 0, 2**63 - 1)
        check_between("weight", self.weight, 1e-3, 1e4)
        check_between("sigma", self.sigma, 1e-3, 1e4)
        for name, value in self.parameters.items():
            check_between(name, value, 1e-3, 1e4)
        check_rate("secret", np.array([self.rate]))
        for name in ("delta", "confidence"):
            if not 0 < getattr(self, name) < 1:
                raise InvalidInput(f"{name} is {getattr(self, name)}; allowed: in (0, 1)")
        if self.noise not in NOISES:
            raise InvalidInput(f"noise is {self.noise!r}; allowed: {', '.join(NOISES)}")
        if self.broken is not None and self.broken not in (*BREAKS, *RUN_BREAKS):
            raise InvalidInput(f"break is {self.broken!r}; allowed: {', '.join((*BREAKS, *RUN_BREAKS))}")
        if self.broken in RUN_BREAKS and not self.runs() and not self.budget_views:
            raise InvalidInput(
                f"break is {self.broken!r}, of level {RUN_BREAKS[self.broken].level!r}, at which "
                f"{', '.join(self.mechanisms)} is not audited; allowed: a mechanism that runs there"
            )

    @property
    def trials_of_laws(self) -> int:
        """In how many trials what is released is held against its law: a few times ten queries in each."""
        return min(self.trials, _MOST_LAW_TRIALS) if self.law_trials is None else self.law_trials

    @property
    def of_laws(self) -> dict[str, int]:
        """The trials and the seed of every test of a law, by keyword."""
        return {"trials": self.trials_of_laws, "seed": self.seed}

    @property
    def budget_views(self) -> tuple[View, ...]:
        """The views under which studies that their budgets end are audited: of GNMax, whose price can be counted."""
        asked = self.broken is None or (self.broken in RUN_BREAKS and RUN_BREAKS[self.broken].level == "budgets")
        return self.views if asked and GNMax.name in self.mechanisms else ()

    def targets(self) -> list[Target]:
        """Every mechanism under each view for which an accountant is valid; again with secret coins, where one is.

        A threshold adds nothing to a histogram that is seen, so for that view only mechanisms without one are audited.
        """
        found = []
        for name in self.mechanisms:
            mechanism = self.mechanism(name)
            for view in self.views:
                if view == "histogram" and mechanism.needed(second_round=False) is not None:
                    continue
                for rate in sorted({1.0, self.rate}, reverse=True):
                    if mechanism.holding(view=view, on_lattice=False, secret_coins=rate < 1):
                        found.append(self._target(mechanism, view, rate))
        if not found:
            raise InvalidInput(
                f"{', '.join(self.mechanisms)} under the view {', '.join(self.views)} is not audited; allowed: a view "
                "for which an accountant is valid, and for histogram a mechanism without a threshold, which adds "
                "nothing "
                "to a histogram that is seen"
            )
        return found

    def runs(self) -> list[tuple[AuditedRun, type[Mechanism]]]:
        """Every mechanism at each level as it runs; only the level of a break of the levels' code."""
        from simulations.audit.as_run.studies import audited_runs

        level = RUN_BREAKS[self.broken].level if self.broken in RUN_BREAKS else None
        return [
            (run, kind)
            for run, kind in audited_runs(self.mechanisms)
            if run.view in self.views and level in (None, run.level)
        ]

    def _target(self, mechanism: Mechanism, view: View, rate: float) -> Target:
        return Target(
            mechanism=mechanism, accountant=default_accountant(mechanism, view, secret_coins=rate < 1), view=view,
            weight=self.weight, rate=rate, classes=self.classes, queries=self.queries,
        )  # fmt: skip

    def mechanism(self, name: str) -> Mechanism:
        """The mechanism with the given parameters, all other noise of scale `sigma`, and thresholds far above all
        noise.
        """
        kind = MECHANISMS[name]
        told = kind.parameters(view="label")
        given: dict[str, int | float | None] = {name: self.parameters.get(name) for name in told}
        for name, each in told.items():
            if given[name] is None and each.role == "noise":
                # Another scale than the label's, so that the two exchanged are another law.
                given[name] = each.wider(1.0, self.sigma * (THRESHOLD_SCALE if name == "sigma_threshold" else 1.0))
        wide = sum(each.noise_scale(given[name] or 0.0) for name, each in told.items() if each.role == "noise")
        for name, each in told.items():
            if given[name] is None:
                given[name] = THRESHOLD_NOISES * wide if each.role == "threshold" else each.default or 1.0
        return kind.build(view="label", given=given)


def check_between(name: str, value: float, least: float, most: float) -> None:
    """Raises InvalidInput unless the value is finite and in [least, most]."""
    if not (np.isfinite(value) and least <= value <= most):
        raise InvalidInput(f"{name} is {value}; allowed: {least:g} to {most:g}")
