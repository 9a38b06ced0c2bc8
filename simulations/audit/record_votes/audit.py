"""What record votes are shown to leak, by releasing them, against what the study's own filters claim.

Each finding is one protected unit at one level. The released sums of its worst cases are told apart by the best test
that is linear in the cells, and by two that are not (releases.py). How far the parties' sums move is known exactly as
well, without any trial: in whole lattice units, so that a fault of one of them is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from protocols.bounds.gaussian import gdp_epsilon
from protocols.budgets.filter import NANO
from protocols.crypto.discrete_gaussian import integer_gaussian, lattice_sigma
from protocols.crypto.randomness import RandomSource, simulation_rng, system_source
from protocols.levels.secure_sum.terms import noise_share
from protocols.noise import LatticeNoise, Noise, cryptographic, simulated
from protocols.plural import at_most
from protocols.study.study import Study
from simulations.audit.agreement.agreement import Agreement
from simulations.audit.distinguishing import LowerBound, Samples, epsilon_lower_bound, mu_lower_bound
from simulations.audit.record_votes.breaks import HONEST, RECORD_BREAKS
from simulations.audit.record_votes.noise_law import released_noise
from simulations.audit.record_votes.releases import Sides, learned, sides_of, told_apart
from simulations.audit.record_votes.settings import AUDITED_LEVELS, UNITS, AuditedLevel, RecordAuditSettings
from simulations.audit.record_votes.worst_cases import WorstCase, worst_cases
from simulations.audit.target import Claim


@dataclass(frozen=True)
class AuditedRecords:
    """What is claimed for a unit of the party with the least budget, and what was shown. Epsilons are at delta.

    lower: the largest lower bound shown, in the case `case`; lower_mu, lower_by_mu: no mu below it is true, and its
    epsilon; exact: the epsilon of how far the sums move, under the noise that is accounted for; moves: the largest
    squared move as a share of what a weight allows; too_far: whether it is above it by a lattice unit or more; law:
    what was found against the law of the noise.
    """

    level: AuditedLevel
    unit: str
    sigma: float
    claim: Claim
    case: str
    lower: LowerBound
    lower_mu: float
    lower_by_mu: float
    exact: float
    moves: float
    too_far: bool
    law: Agreement

    @property
    def refuted(self) -> bool:
        """Whether the claim is refuted: by the trials, or because the sums move further than a weight allows."""
        shown = self.lower.value > self.claim.epsilon
        return shown or self.too_far or (self.claim.mu is not None and self.lower_mu > self.claim.mu)

    @property
    def failed(self) -> bool:
        """Whether the claim is refuted, or the noise of the released cells has another law."""
        return self.refuted or self.law.failed

    @property
    def lower_of_claimed(self) -> float:
        """The larger of the two lower bounds as a share of the claim; above 1, the claim is refuted."""
        return max(self.lower.value, self.lower_by_mu) / self.claim.epsilon

    @property
    def title(self) -> str:
        """The finding in two lines, for the figure."""
        return f"records, unit {self.unit}\n{self.level.words}"

    def to_json(self) -> dict[str, object]:
        """The finding as JSON values."""
        return {
            "unit": self.unit,
            "level": self.level.level,
            "seen": self.level.words,
            "view": "histogram",
            "sigma": self.sigma,
            "claimed_epsilon": self.claim.epsilon,
            "claimed_mu": self.claim.mu,
            "exact_epsilon": self.exact,
            "squared_move_of_allowed": self.moves,
            "moves_too_far": self.too_far,
            "lower_epsilon": self.lower.value,
            "lower_mu": self.lower_mu,
            "lower_epsilon_by_mu": self.lower_by_mu,
            "lower_of_claimed": self.lower_of_claimed,
            "case": self.case,
            "direction": self.lower.direction,
            "hits": self.lower.hits,
            "false_hits": self.lower.false_hits,
            "evaluated_trials": self.lower.trials,
            "law": self.law.to_json(),
            "verdict": "FAILED" if self.failed else "passed",
        }


@dataclass(frozen=True)
class RecordAuditResult:
    """All findings of one audit of record votes, and its settings."""

    settings: RecordAuditSettings
    findings: tuple[AuditedRecords, ...]

    @property
    def failed(self) -> bool:
        """Whether any claim was refuted."""
        return any(finding.failed for finding in self.findings)

    @property
    def failure(self) -> str:
        """What failed, in a few words."""
        if any(finding.refuted for finding in self.findings):
            return "more leakage than claimed"
        return next(f"another law: {finding.law.worst.family}" for finding in self.findings if finding.failed)

    @property
    def subject(self) -> str:
        """What epsilons are of, in words."""
        return f"epsilon at delta {at_most(self.settings.delta)} of a study of record votes"

    def to_json(self) -> dict[str, object]:
        """The audit as JSON values: its terms, and one object per finding."""
        settings = self.settings
        return {
            "votes_by": settings.votes_by,
            "adjacency": "replace-one",
            "delta": settings.delta,
            "confidence": settings.confidence,
            "trials": settings.trials,
            "learning_trials": learned(settings.trials),
            "noise": settings.noise,
            "seed": None if settings.noise == "system" else settings.seed,
            "broken": settings.broken,
            "verdict": "FAILED" if self.failed else "passed",
            "findings": [finding.to_json() for finding in self.findings],
        }


def run_record_audit(settings: RecordAuditSettings, *, progress: Callable[[str, int, int], None]) -> RecordAuditResult:
    """Audits every unit at every level. progress(title, trials done, trials in all). Raises InvalidInput."""
    targets = [(level, unit) for level in AUDITED_LEVELS for unit in UNITS]
    # Three tests of each: of epsilon, of mu, and of the law of the noise.
    alpha = (1 - settings.confidence) / (3 * len(targets))
    return RecordAuditResult(
        settings,
        tuple(
            _audited(settings, level, unit, number, alpha=alpha, progress=progress)
            for number, (level, unit) in enumerate(targets)
        ),
    )


def _audited(
    settings: RecordAuditSettings,
    level: AuditedLevel,
    unit: str,
    number: int,
    *,
    alpha: float,
    progress: Callable[[str, int, int], None],
) -> AuditedRecords:
    cases = worst_cases(unit)
    broken = HONEST if settings.broken is None else RECORD_BREAKS[settings.broken]
    title, done = f"unit {unit}, {level.words}", 0

    def advance(trials: int) -> None:
        nonlocal done
        done += trials
        progress(title, done, 2 * (learned(settings.trials) + settings.trials) * len(cases))

    samples: list[Samples] = []
    pairs: list[tuple[WorstCase, Study, Sides]] = []
    for which, case in enumerate(cases):
        study = settings.study(level, unit=unit, queries=case.queries)
        sides = sides_of(study, case, broken)

        def fresh(run: Study, moved: bool, *, which: int = which) -> Noise:
            return _seen_noise(settings, run, (number, which, int(moved)))

        told = told_apart(study, sides, broken, trials=settings.trials, noise=fresh, progress=advance)
        samples += told
        pairs += [(case, study, sides)] * len(told)
    lower = epsilon_lower_bound(samples, delta=settings.delta, alpha=alpha)
    lower_mu = mu_lower_bound(samples, alpha=alpha).value
    case, study, _ = pairs[lower.pair]
    moves = [(sides.squared_move, 2 * _weight_units(one) ** 2) for _, one, sides in pairs]
    furthest, allowed = max(moves, key=lambda each: each[0] / each[1])
    moved = np.sqrt(furthest) / (study.gaussian.sigma * study.units)
    return AuditedRecords(
        level=level,
        unit=unit,
        sigma=study.gaussian.sigma,
        claim=_claim(study),
        case=case.name,
        lower=lower,
        lower_mu=lower_mu,
        lower_by_mu=_epsilon(lower_mu, settings.delta),
        exact=_epsilon(float(moved), settings.delta),
        moves=furthest / allowed,
        too_far=furthest > allowed,
        law=released_noise(
            pairs[0][1],
            pairs[0][2],
            broken,
            trials=settings.trials,
            noise=lambda run, moved: _seen_noise(settings, run, (number, len(cases), int(moved))),
            alpha=alpha,
            seed=settings.seed,
        ),
    )


def _claim(study: Study) -> Claim:
    """What the study's filter guarantees the first party for the one batch that it charges."""
    budgets = study.budgets
    spent = budgets.amount(study.query_limit, study.query_limit)
    guaranteed, order = float(budgets.epsilon_guaranteed[0]), float(budgets.order[0])
    mu = float(np.sqrt(spent[0] / NANO)) if np.isnan(order) else None
    return Claim(guaranteed, study.roster[0].delta, order, mu)


def _weight_units(study: Study) -> int:
    return round(study.roster[0].weight * study.units)


def _epsilon(mu: float, delta: float) -> float:
    return float(gdp_epsilon(np.array([mu]), np.array([delta]))[0])


def _seen_noise(settings: RecordAuditSettings, study: Study, stream: tuple[int, int, int]) -> Noise:
    """The noise between the audited party and whoever knows most: without the shares of colluders."""
    rng, lattice = simulation_rng(settings.seed, "record audit noise", *stream), study.lattice
    source: RandomSource = system_source if settings.noise == "system" else rng.bytes
    if lattice is None:
        return simulated(rng) if settings.noise == "fast" else cryptographic(source)

    # One source draws all of the noise, or each honest party its share, as in the level's own ballots.
    share = noise_share(study) if lattice.shares > 1 else lattice_sigma(study.gaussian.sigma, units=lattice.units)

    def draw(count: int, _: float) -> Int64[ndarray, " count"]:
        total = np.zeros(count, dtype=np.int64)
        for _ in range(lattice.shares):
            if settings.noise == "fast":
                total += np.rint(float(share) * rng.standard_normal(count)).astype(np.int64)
            else:
                total += integer_gaussian(source, sigma=share, size=count)
        return total

    return LatticeNoise(lattice.units, draw)
