"""Teachers' votes in an audit: each mechanism under each view that has an accountant, with and without coins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from protocols.budgets.accountant import default_accountant
from protocols.budgets.participation import check_rate
from protocols.crypto.randomness import RandomSource, simulation_rng, system_source
from protocols.errors import InvalidInput
from protocols.mechanisms import MECHANISMS, VIEWS, GNMax, Mechanism, View
from protocols.noise import StandardNormal, cryptographic, simulated
from protocols.plural import counted
from protocols.study.votes import TeacherVotes
from simulations.audit.as_run import AuditedRun, audited_runs
from simulations.audit.batches import FACTORS, power, target_agreement
from simulations.audit.bounds import Samples
from simulations.audit.breaks import HONEST, Break, RunBreak, breaks_of
from simulations.audit.laws import Agreement
from simulations.audit.settings import Advance, AuditSettings, Kind, Line, Pair, Prepared, check_between
from simulations.audit.targets import (
    THRESHOLD_NOISES,
    NeighbouringCounts,
    Target,
    audited_pairs,
    claim_of,
    exact_epsilon,
    log_ratios,
    noise_scales,
)

# With more, the enumeration of outcomes grows too large.
_MOST_QUERIES = 64
# The noise of a threshold test, if not given, as a multiple of the label's.
THRESHOLD_SCALE = 1.5


def audited_mechanisms() -> tuple[str, ...]:
    """The mechanisms that label a class, of which the exact law is known."""
    return tuple(name for name in MECHANISMS if not MECHANISMS[name].names_sets)


@dataclass(frozen=True, kw_only=True)
class AuditedMechanisms(Kind):
    """Terms of mechanisms.

    sigma: the scale of all noise that `parameters` does not set, in votes; parameters: noise scales of the mechanisms,
    by name; weight: of the unit, in votes; rate: of secret coins.
    """

    mechanisms: tuple[str, ...] = field(default_factory=audited_mechanisms)
    views: tuple[View, ...] = VIEWS
    queries: int
    classes: int
    weight: float
    sigma: float
    parameters: Mapping[str, float] = field(default_factory=dict)
    rate: float
    votes_by: ClassVar[str] = TeacherVotes.by

    def broken_code(self, settings: AuditSettings) -> RunBreak | None:
        return None if settings.broken is None else breaks_of(RunBreak).get(settings.broken)

    @property
    def breaks(self) -> tuple[str, ...]:
        return (*breaks_of(Break), *breaks_of(RunBreak))

    def check(self, settings: AuditSettings) -> None:
        for name in self.mechanisms:
            if MECHANISMS[name].names_sets:
                raise InvalidInput(
                    f"mechanism is {name!r}, whose labels are sets of findings; allowed: "
                    + ", ".join(audited_mechanisms())
                )
        check_between("queries", self.queries, 1, _MOST_QUERIES)
        check_between("classes", self.classes, 2, 1000)
        check_between("weight", self.weight, 1e-3, 1e4)
        check_between("sigma", self.sigma, 1e-3, 1e4)
        for name, value in self.parameters.items():
            check_between(name, value, 1e-3, 1e4)
        check_rate("secret", np.array([self.rate]))
        broken = self.broken_code(settings)
        if broken is not None and not self.runs(settings) and not self.budget_views(settings):
            raise InvalidInput(
                f"break is {settings.broken!r}, of level {broken.level!r}, at which {', '.join(self.mechanisms)} is "
                "not audited; allowed: a mechanism that runs there"
            )

    @property
    def terms(self) -> dict[str, object]:
        return {
            "unit": f"one unit of total weight {self.weight:g} votes",
            "queries": self.queries,
            "classes": self.classes,
            "weight": self.weight,
        }

    @property
    def subject(self) -> str:
        return f"{counted(self.queries, 'query')}, unit of total weight {self.weight:g}, {self.classes} classes"

    def words(self, settings: AuditSettings, *, as_run: Sequence[str], ended: Sequence[str]) -> list[str]:
        said = []
        if any(line.facts["rate"] != 1 for line in self.lines(settings)):
            said.append(f"secret coins of rate {self.rate:.9g}, a multiple of 2^-20")
        for how, tested in (("as a study runs", as_run), ("until a budget ends the study", ended)):
            left = [name for name in self.mechanisms if name not in tested]
            if left and settings.broken is None:
                said.append(f"not tested {how}: {', '.join(left)}")
        return said

    def targets(self) -> list[Target]:
        """Every mechanism under each view for which an accountant is valid; again with secret coins, where one is.

        A threshold adds nothing to a histogram that is seen, so for that view only mechanisms without one are audited.
        Raises InvalidInput.
        """
        found = []
        for mechanism in map(self.mechanism, self.mechanisms):
            for view in self.views:
                if view == "histogram" and mechanism.needed(second_round=False) is not None:
                    continue
                for rate in sorted({1.0, self.rate}, reverse=True):
                    if mechanism.holding(view=view, on_lattice=False, secret_coins=rate < 1):
                        chosen = default_accountant(mechanism, view, secret_coins=rate < 1)
                        found.append(Target(mechanism=mechanism, accountant=chosen, view=view, weight=self.weight,
                                            rate=rate, classes=self.classes, queries=self.queries))  # fmt: skip
        if not found:
            raise InvalidInput(
                f"{', '.join(self.mechanisms)} under the view {', '.join(self.views)} is not audited; allowed: a view "
                "for which an accountant is valid, and for histogram a mechanism without a threshold, which adds "
                "nothing to a histogram that is seen"
            )
        return found

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

    def lines(self, settings: AuditSettings) -> list[Line]:
        if self.broken_code(settings) is not None:
            return []
        return [_line(settings, target, index) for index, target in enumerate(self.targets())]

    def runs(self, settings: AuditSettings) -> list[tuple[AuditedRun, type[Mechanism]]]:
        """Every mechanism at each level as it runs; only the level of a break of the levels' code."""
        broken = self.broken_code(settings)
        if settings.broken is not None and broken is None:
            return []
        level = None if broken is None else broken.level
        lines = audited_runs(self.mechanisms)
        return [(run, kind) for run, kind in lines if run.view in self.views and level in (None, run.level)]

    def budget_views(self, settings: AuditSettings) -> tuple[View, ...]:
        """GNMax's alone: the price of its queries can be counted without the filter's code."""
        broken = self.broken_code(settings)
        asked = settings.broken is None or (broken is not None and broken.level == "budgets")
        return self.views if asked and GNMax.name in self.mechanisms else ()


def _mechanism_break(settings: AuditSettings) -> Break:
    return HONEST if settings.broken is None else breaks_of(Break)[settings.broken]


def _line(settings: AuditSettings, target: Target, index: int) -> Line:
    accountant = target.accountant.name
    coins = f", coins {target.rate:g}" if target.rate < 1 else ""
    return Line(
        title=f"{target.mechanism.name}{coins}\n{target.view}, {accountant}",
        labels={"mechanism": target.name, "view": target.view, "accountant": accountant},
        facts={
            "mechanism": target.mechanism.name,
            "noise": noise_scales(target.mechanism),
            "view": target.view,
            "accountant": accountant,
            "rate": target.rate,
        },
        trials=2 * settings.trials * (1 if target.view == "histogram" else 2),
        gaussian_dp=target.gaussian_dp,
        prepared=lambda: _prepared(settings, target, index),
    )


def _prepared(settings: AuditSettings, target: Target, index: int) -> Prepared:
    pairs = audited_pairs(target, delta=settings.delta)

    def observed(number: int, pair: NeighbouringCounts) -> Pair:
        return Pair(
            pair.name,
            exact_epsilon(target, pair, delta=settings.delta),
            lambda advance: [pair_samples(settings, target, pair, stream=(index, number), progress=advance)],
        )

    def law(alpha: float) -> Agreement:
        noise, coins_from = _randomness(settings, (index, len(pairs), 0))
        return target_agreement(target, _mechanism_break(settings), alpha=alpha, noise=noise, coins_from=coins_from,
                                trials=settings.trials_of_laws, seed=settings.seed)  # fmt: skip

    def powers(alpha: float, families: int) -> dict[float, float]:
        return {
            factor: power(target, factor, trials=settings.trials_of_laws, alpha=alpha, families=families,
                          seed=settings.seed)
            for factor in FACTORS
        }  # fmt: skip

    claim = claim_of(target, delta=settings.delta, total_weight=max(pair.total_weight for pair in pairs))
    return Prepared(claim, [observed(number, pair) for number, pair in enumerate(pairs)], law, powers)


def pair_samples(
    settings: AuditSettings, target: Target, pair: NeighbouringCounts, *, stream: tuple[int, int], progress: Advance
) -> Samples:
    """The log-likelihood ratio of each trial on either side of a pair; stream: of the noise."""
    sides = []
    for moved in (False, True):
        noise, coins_from = _randomness(settings, (*stream, int(moved)))
        sides.append(log_ratios(target, pair, moved=moved, broken=_mechanism_break(settings), trials=settings.trials,
                                noise=noise, coins_from=coins_from, progress=progress))  # fmt: skip
    return Samples(*sides)


def _randomness(settings: AuditSettings, stream: tuple[int, int, int]) -> tuple[StandardNormal, RandomSource]:
    """Fresh noise and coins for one side of one pair."""
    if settings.noise == "system":
        return cryptographic(system_source), system_source
    rng = settings.stream(*stream)
    noise = simulated(rng) if settings.noise == "fast" else cryptographic(rng.bytes)
    return noise, simulation_rng(settings.seed, "audit coins", *stream).bytes
