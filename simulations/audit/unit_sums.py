"""Sums of units in an audit: each kind of sums at each level, for each protected unit, on its worst neighbours.

How far the parties' sums move is known exactly, without any trial: in whole lattice units, so that a fault of one of
them is seen. Nothing is further than Delta times the party's weight (`UnitSums.delta_squared`).

The two worlds of a pair are told apart by statistics of the released cells. With Gaussian noise of any covariance the
likelihood ratio is linear in the cells (Fisher 1936), so no other test is more powerful. Its coefficients are learned
from trials of their own, as an attacker who knows nothing of a fault would learn them: they show correlated noise and
cells without noise, too. Where noise is not what it should be, other statistics show more: the remainders of the cells
modulo 8, and in which of 16 ranges a cell lies.

Of two sums the second is of residuals of one of two scores, by the sign of the first entry that the first released.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, lru_cache, partial
from typing import ClassVar

import numpy as np
import scipy
from jaxtyping import Float32, Float64, Int64
from numpy import ndarray

from protocols.bounds.gaussian import gdp_epsilon
from protocols.bounds.rdp import check_budget
from protocols.budgets.filter import NANO
from protocols.crypto.discrete_gaussian import integer_gaussian, lattice_sigma
from protocols.crypto.randomness import RandomSource, system_source
from protocols.features.feature_map import FeatureMap
from protocols.levels.secure_sum.terms import noise_share
from protocols.levels.simulated import simulated_level
from protocols.mechanisms import Lattice
from protocols.noise import LatticeNoise, Noise, cryptographic, simulated
from protocols.study.findings import labelled
from protocols.study.record_study import RecordVotesPlan, record_study
from protocols.study.study import Study
from protocols.study.votes import UnitSums, unit_sums
from protocols.sums.blocks import Blocks, Linear, Nearest, Signs
from protocols.sums.residuals import FirstScores
from simulations.audit.as_run import noise_of_sources
from simulations.audit.bounds import Samples
from simulations.audit.breaks import HONEST_SUMS, Contribute, Holding, SumBreak, Sums, breaks_of, broken_noise
from simulations.audit.laws import Agreement, agreement, whole_noise_evidence
from simulations.audit.settings import Advance, AuditSettings, Kind, Line, Pair, Prepared, UnitClaim, check_between
from simulations.stages.record_votes import cells_of_holdings, contributions

# Lattice units per vote where noise is integer.
_LATTICE_UNITS = 1024


@dataclass(frozen=True)
class AuditedLevel:
    """Whose view is audited: name, in words; level; units; colluders: parties whose share of the noise is known."""

    words: str
    level: str
    units: int | None = None
    colluders: int | None = None


AUDITED_LEVELS = (
    AuditedLevel("real-valued noise", "clear"),
    # What one server of two sees, who knows its own noise.
    AuditedLevel("integer noise", "clear", units=_LATTICE_UNITS),
    AuditedLevel("shares of noise, one known", "secure_sum", units=_LATTICE_UNITS, colluders=1),
)


@dataclass(frozen=True, eq=False)
class AuditedSums:
    """A kind of sums: units, the worst neighbours of one, the study of such a pair at a budget, what parties send."""

    name: str
    units: tuple[str, ...]
    cases: Callable[[str], Sequence[WorstCase]]
    study: Callable[[AuditedLevel, WorstCase, float, float], Study]
    contribute: Contribute


@dataclass(frozen=True, kw_only=True)
class AuditedUnitSums(Kind):
    """Terms of sums. epsilon: the budget of the audited party, at the audit's delta: the study has the least noise that
    it affords.
    """

    epsilon: float
    votes_by: ClassVar[str] = UnitSums.by

    @property
    def breaks(self) -> tuple[str, ...]:
        return tuple(breaks_of(SumBreak))

    def check(self, settings: AuditSettings) -> None:
        check_between("epsilon", self.epsilon, 0.01, 20)
        check_budget(np.array([self.epsilon]), np.array([settings.delta]))

    @property
    def subject(self) -> str:
        return "a study of record votes, view histogram"

    @property
    def terms(self) -> dict[str, object]:
        return {"epsilon": self.epsilon}

    def words(self, settings: AuditSettings, *, as_run: Sequence[str], ended: Sequence[str]) -> list[str]:
        count = learned(settings.trials)
        return [f"squared moves are exact, in whole lattice units; the tests were learned from {count:,} more trials"]

    def lines(self, settings: AuditSettings) -> list[Line]:
        """Of a break of what one kind of sums contributes, that kind alone."""
        own = [sums for sums in SUMS if sums.name == _broken(settings).of]
        targets = [(sums, level, unit) for sums in own or SUMS for level in AUDITED_LEVELS for unit in sums.units]
        return [self._line(settings, *target, number) for number, target in enumerate(targets)]

    def _line(self, settings: AuditSettings, sums: AuditedSums, level: AuditedLevel, unit: str, number: int) -> Line:
        cases = sums.cases(unit)
        studies = [sums.study(level, case, self.epsilon, settings.delta) for case in cases]
        sigma = studies[0].gaussian.sigma
        return Line(
            title=f"{sums.name}, unit {unit}\n{level.words}",
            labels={"votes": sums.name, "unit": unit, "seen": level.words, "sigma": f"{sigma:.4g}"},
            facts={
                "sums": sums.name,
                "unit": unit,
                "level": level.level,
                "lattice_units": level.units,
                "seen": level.words,
                "view": "histogram",
                "sigma": sigma,
            },
            trials=2 * (learned(settings.trials) + settings.trials) * len(cases),
            gaussian_dp=True,
            prepared=lambda: _prepared(settings, sums, list(zip(cases, studies, strict=True)), number),
        )


def _broken(settings: AuditSettings) -> SumBreak:
    return HONEST_SUMS if settings.broken is None else breaks_of(SumBreak)[settings.broken]


def _prepared(
    settings: AuditSettings, sums: AuditedSums, pairs: list[tuple[WorstCase, Study]], number: int
) -> Prepared:
    broken = _broken(settings)
    sides = [sides_of(study, case, broken.contribute or sums.contribute) for case, study in pairs]

    def noise(which: int) -> Callable[[Study, bool], Noise]:
        return lambda run, moved: _seen_noise(settings, run, (number, which, int(moved)))

    def pair(which: int, case: WorstCase, study: Study) -> Pair:
        moved = sides[which].squared_move
        allowed = unit_sums(study).delta_squared * round(study.roster[0].weight * study.units) ** 2
        mu = np.sqrt(moved) / (study.gaussian.sigma * study.units)
        return Pair(
            case.name,
            float(gdp_epsilon(np.array([mu]), np.array([settings.delta]))[0]),
            lambda advance: told_apart(
                study, sides[which], broken, trials=settings.trials, noise=noise(which), progress=advance
            ),
            moves=moved / allowed,
            too_far=moved > allowed,
        )

    return Prepared(
        _claim(pairs[0][1]),
        [pair(which, *each) for which, each in enumerate(pairs)],
        lambda alpha: released_noise(
            pairs[0][1], sides[0], broken, trials=settings.trials_of_laws, noise=noise(len(pairs)), alpha=alpha,
            seed=settings.seed,
        ),
    )  # fmt: skip


def _claim(study: Study) -> UnitClaim:
    """What the study's filter guarantees the first party for the one batch that it charges."""
    budgets = study.budgets
    spent = budgets.amount(study.query_limit, study.query_limit)
    guaranteed, order = float(budgets.epsilon_guaranteed[0]), float(budgets.order[0])
    mu = float(np.sqrt(spent[0] / NANO)) if np.isnan(order) else None
    return UnitClaim(guaranteed, study.roster[0].delta, order, mu)


def _seen_noise(settings: AuditSettings, study: Study, stream: tuple[int, int, int]) -> Noise:
    """The noise between the audited party and whoever knows most: without the shares of colluders."""
    rng, lattice = settings.stream(*stream), study.lattice
    source: RandomSource = system_source if settings.noise == "system" else rng.bytes
    if lattice is None:
        return simulated(rng) if settings.noise == "fast" else cryptographic(source)

    # One source draws all of the noise, or each honest party its share, as in the level's own ballots.
    share = _share(study, lattice)

    def draw(count: int, _: float) -> Int64[ndarray, " count"]:
        total = np.zeros(count, dtype=np.int64)
        for _ in range(lattice.shares):
            if settings.noise == "fast":
                total += np.rint(float(share) * rng.standard_normal(count)).astype(np.int64)
            else:
                total += integer_gaussian(source, sigma=share, size=count)
        return total

    return LatticeNoise(lattice.units, draw)


# At most so many trials of either side are for learning the coefficients, beside those that give the bound.
_MOST_LEARNED = 10_000
# Cells that are held at a time.
_CHUNK = 400_000
# Ranges of a cell, in which its values lie equally often in the trials that are learned from.
_RANGES = 16
# Directions of less variance, as a share of the largest, count as having this much: they are all but free of noise.
_NOISELESS = 1e-12


@dataclass(frozen=True, eq=False)
class Sides:
    """What the parties send together, before and after, in lattice units: [0] where the first entry that is released is
    not below 0, and [1] where it is, which differs in a second sum alone."""

    before: tuple[Int64[ndarray, " cells"], Int64[ndarray, " cells"]]
    after: tuple[Int64[ndarray, " cells"], Int64[ndarray, " cells"]]

    @property
    def cells(self) -> int:
        """How many entries are released."""
        return len(self.before[0])

    @property
    def squared_move(self) -> int:
        """The larger squared L2 distance, exactly."""
        moves = [other - one for one, other in zip(self.before, self.after, strict=True)]
        return max(sum(int(each) ** 2 for each in move) for move in moves)

    def told(self, seen: Float64[ndarray, "trials cells"]) -> Float64[ndarray, "trials numbers"]:
        """The entries less the middle of both sides; those that depend on the first sum in two parts, one of them 0."""
        middle = [(one + other) / 2 for one, other in zip(self.before, self.after, strict=True)]
        depends = middle[0] != middle[1]
        if not depends.any():
            return seen - middle[0]
        below = seen[:, :1] < 0
        moved = seen - np.where(below, middle[1], middle[0])
        return np.concatenate([moved[:, ~depends], moved[:, depends] * ~below, moved[:, depends] * below], axis=1)


def sides_of(study: Study, case: WorstCase, contribute: Contribute) -> Sides:
    """Both sides, made by the code that a party runs, or by a broken one."""
    found = []
    for moved in (False, True):
        total = np.sum(contribute(study, case.queries, case.holdings(moved=moved)), axis=0).ravel()
        first, *again = np.split(total, total.size // (case.queries.rows * study.classes))
        found.append((np.concatenate([first, *again[:1]]), np.concatenate([first, *again[1:]])))
    return Sides(*found)


def told_apart(
    study: Study,
    sides: Sides,
    broken: SumBreak,
    *,
    trials: int,
    noise: Callable[[Study, bool], Noise],
    progress: Advance,
) -> list[Samples]:
    """Three statistics in `trials` releases of either side: linear in the cells, of their low bits, of their ranges.

    noise(study, moved): a fresh stream of one side; progress(trials done).
    """
    run, cells = broken.run(study), sides.cells
    of_units = unit_sums(run)
    sources = [broken_noise(noise(run, moved), broken, cells=cells) for moved in (False, True)]

    def released(moved: bool, size: int) -> Float64[ndarray, "trials cells"]:
        """The cells that so many trials release, in lattice units."""
        total, otherwise = sides.after if moved else sides.before
        counts = np.tile((total / run.units).reshape(-1, run.classes), (size, 1))
        shown = [of_units.released(run, counts, sources[moved], predictions=None)[1] for _ in range(broken.releases)]
        progress(size)
        seen = np.mean(shown, axis=0).reshape(size, cells)
        # Noise is added to whole numbers, so that others in their place may come after it.
        return seen + (seen[:, :1] < 0) * (otherwise - total) if (otherwise != total).any() else seen

    known = [released(moved, learned(trials)) for moved in (False, True)]
    weights, ordered = _discriminant(*map(sides.told, known)), np.sort(np.concatenate(known).T)
    limits = ordered[:, np.arange(1, _RANGES) * ordered.shape[1] // _RANGES].T

    def linear(seen: Float64[ndarray, "trials cells"]) -> Float64[ndarray, " trials"]:
        return sides.told(seen) @ weights

    def ranges(seen: Float64[ndarray, "trials cells"]) -> Codes:
        # Comparing all with each of a few limits is faster than a search for each value.
        codes = np.zeros(seen.shape, dtype=np.int8)
        for limit in limits:
            codes += (seen > limit).view(np.int8)
        return codes.astype(np.int64)

    statistics = [linear, *(_code_ratio(code_of, *map(code_of, known)) for code_of in (_low_bits, ranges))]
    step = max(1, _CHUNK // cells)
    sizes = [min(step, trials - start) for start in range(0, trials, step)]
    found = []
    for moved in (False, True):
        each = [[one(seen) for one in statistics] for seen in (released(moved, size) for size in sizes)]
        found.append([np.concatenate(one) for one in zip(*each, strict=True)])
    return [Samples(before, after) for before, after in zip(*found, strict=True)]


Codes = Int64[ndarray, "trials cells"]


def _low_bits(seen: Float64[ndarray, "trials cells"]) -> Codes:
    return np.floor(seen).astype(np.int64) & 7


def _code_ratio(
    code_of: Callable[[Float64[ndarray, "trials cells"]], Codes], before: Codes, after: Codes
) -> Callable[[Float64[ndarray, "trials cells"]], Float64[ndarray, " trials"]]:
    """The log-likelihood ratio of codes, as if cells were independent, from how often either side showed each."""
    shares = [
        np.stack([np.bincount(column, minlength=_RANGES) + 0.5 for column in codes.T]) for codes in (before, after)
    ]
    ratio = np.log(shares[0]) - np.log(shares[1])
    first = np.arange(len(ratio)) * ratio.shape[1]
    return lambda seen: ratio.ravel()[code_of(seen) + first].sum(axis=1)


def learned(trials: int) -> int:
    """How many more trials of either side are for learning the coefficients."""
    return min(trials, _MOST_LEARNED)


def _discriminant(
    before: Float64[ndarray, "trials cells"], after: Float64[ndarray, "trials cells"]
) -> Float64[ndarray, " cells"]:
    """Fisher's linear discriminant: the difference of the means over the covariance."""
    covariance = (np.cov(before, rowvar=False) + np.cov(after, rowvar=False)) / 2
    variance, directions = np.linalg.eigh(covariance)
    apart = directions.T @ (before.mean(axis=0) - after.mean(axis=0))
    # A direction without noise in which the means do not differ at all says nothing.
    apart = np.where(np.abs(apart) > 1e-9 * np.abs(apart).max(), apart, 0.0)
    weights: Float64[ndarray, " cells"] = directions @ (apart / np.maximum(variance, _NOISELESS * variance.max()))
    return weights / np.abs(weights).max()


# Releases that are looked at: every value of the noise is seen, so few are enough.
_MOST_RELEASES = 40_000


def released_noise(
    study: Study,
    sides: Sides,
    broken: SumBreak,
    *,
    trials: int,
    noise: Callable[[Study, bool], Noise],
    alpha: float,
    seed: int,
) -> Agreement:
    """Whether what is released is the sums that the code made plus noise of the study's law.

    noise(study, moved): a fresh stream; alpha: false alarms; seed: of what spreads values between whole units.
    """
    run, cells, total = broken.run(study), sides.cells, sides.before[0]
    releases = min(trials, _MOST_RELEASES)
    counts = np.tile((total / run.units).reshape(-1, run.classes), (releases, 1))
    source = broken_noise(noise(run, False), broken, cells=cells)
    _, shown = unit_sums(run).released(run, counts, source, predictions=None)
    drawn: Int64[ndarray, "releases cells"] = shown.reshape(releases, cells) - total
    values = drawn.reshape(releases, -1, study.classes)
    # Every remainder is as likely as another: the noise is hundreds of lattice units wide.
    return agreement(whole_noise_evidence(values, *_distribution(study)(values), None, seed=seed), alpha=alpha)


Below = Callable[[Int64[ndarray, "..."]], tuple[Float64[ndarray, "..."], Float64[ndarray, "..."]]]


def _distribution(study: Study) -> Below:
    """P[noise < value] and P[noise <= value] of values in whole units, of the unknown noise."""
    lattice, sigma = study.lattice, study.gaussian.sigma
    if lattice is None:
        scale = sigma * study.units
        return lambda units: (scipy.special.ndtr((units - 0.5) / scale), scipy.special.ndtr((units + 0.5) / scale))
    law = noise_of_sources(float(_share(study, lattice)), sources=lattice.shares)
    return lambda units: (law.at_most(units - 1), law.at_most(units))


def _share(study: Study, lattice: Lattice) -> Fraction:
    """sigma of what one source draws of all integer noise, in lattice units."""
    return noise_share(study) if lattice.shares > 1 else lattice_sigma(study.gaussian.sigma, units=lattice.units)


CLASSES = 2
PARTIES = 3
# Where records may lie along a feature: each is nearest to the queries of its own side.
_LEFT, _RIGHT = -1.0, 1.0
_QUERIES = np.array([[-1.5], [-1.0], [1.0], [1.5]], dtype=np.float32)


def _partition(feature: int, *, points: Float32[ndarray, "queries width"], nearest: int) -> Nearest:
    return Nearest.of(points, columns=np.array([feature]), nearest=nearest)


# Two partitions, in each of which a record votes once; and one, in which it votes in the nearest two of four.
PARTITIONS = Blocks(FeatureMap((2,)), tuple(_partition(each, points=_QUERIES[1:3], nearest=1) for each in (0, 1)))
NEAREST = Blocks(FeatureMap((2,)), (_partition(0, points=_QUERIES, nearest=2),))


# Places along both features, and the label, or what is said of each finding.
_Record = tuple[float, float, int | tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class WorstCase:
    """One unit of the first party, before and after; findings: of records that have several labels; bystanders: how
    many other units each party has."""

    name: str
    unit: str
    queries: Blocks
    before: Sequence[_Record]
    after: Sequence[_Record]
    findings: tuple[str, ...] = ()
    bystanders: int = 2

    def holdings(self, *, moved: bool) -> list[Holding]:
        """Every party's records; only the first unit of the first party differs between the two sides."""
        own = _holding(self.after if moved else self.before, unit=0)
        bystander = _BYSTANDER if not self.findings else [(_LEFT, _RIGHT, (1,) * len(self.findings))]
        others = [_holding(bystander, unit=1 + number) for number in range(self.bystanders)]
        party = tuple(np.concatenate(parts) for parts in zip(*others, strict=True))
        first = tuple(np.concatenate(parts) for parts in zip(own, *others, strict=True))
        return [first, *([party] * (PARTIES - 1))]  # type: ignore[list-item]  # three arrays each, as in a Holding


@cache
def worst_cases(unit: str) -> list[WorstCase]:
    """The cases for a protected unit, "record" or "patient". A patient may have one record, too."""
    record = [
        WorstCase("another label", unit, PARTITIONS, [(_LEFT, _LEFT, 0)], [(_LEFT, _LEFT, 1)]),
        WorstCase("other queries", unit, PARTITIONS, [(_LEFT, _LEFT, 0)], [(_RIGHT, _RIGHT, 0)]),
        WorstCase("other nearest queries", unit, NEAREST, [(_LEFT, _LEFT, 0)], [(_RIGHT, _LEFT, 0)]),
    ]
    if unit == "record":
        return record
    several = [(_LEFT, _LEFT, 0)] * 3 + [(_LEFT, _LEFT, 1), (_LEFT, _RIGHT, 0)]
    return [
        *record,
        WorstCase("a patient's five records", unit, NEAREST, several, [(_RIGHT, _LEFT, 1)] * 5),
        WorstCase("five records for one", unit, PARTITIONS, [(_LEFT, _LEFT, 1)], [(_RIGHT, _RIGHT, 0)] * 5),
    ]


# Features that change their sign with the record.
GRADED_FEATURES = Blocks(
    FeatureMap((2,)),
    (
        Linear(
            share=3, columns=np.arange(2), scales=np.ones(2), centre=np.zeros(2, np.int64),
            matrix=np.zeros((0, 2), np.int64),
        ),
        Signs(share=1, columns=np.arange(2), scales=np.ones(2), centre=np.zeros(2, np.int64)),
    ),
)  # fmt: skip
_FAR = 10.0


@cache
def graded_cases(unit: str) -> list[WorstCase]:
    """The cases of graded votes: the opposite record moves two weights."""
    queries = GRADED_FEATURES
    record = [
        WorstCase("the opposite record", unit, queries, [(_LEFT, _LEFT, 0)], [(_RIGHT, _RIGHT, 0)]),
        WorstCase("another label", unit, queries, [(_LEFT, _LEFT, 0)], [(_LEFT, _LEFT, 1)]),
        WorstCase("a record far away", unit, queries, [(_LEFT, _RIGHT, 1)], [(_FAR, -_FAR, 1)]),
        WorstCase("far on either side", unit, queries, [(-_FAR, _FAR, 0)], [(_FAR, -_FAR, 0)]),
    ]
    if unit == "record":
        return record
    return [
        *record,
        WorstCase("five records", unit, queries, [(_LEFT, _LEFT, 0)] * 5, [(_RIGHT, _RIGHT, 0)] * 5),
        WorstCase("five records for one", unit, queries, [(_LEFT, _LEFT, 1)], [(_RIGHT, _RIGHT, 1)] * 5),
    ]


_FINDINGS = ("first", "second")


@cache
def finding_cases(unit: str) -> list[WorstCase]:
    """The cases of a sum of two findings: all findings change, or the opposite record; nothing known moves half."""
    both, none, unknown = (1, 1), (0, 0), (-1, -1)
    pairs = [
        ("all other findings", [(_LEFT, _LEFT, both)], [(_LEFT, _LEFT, none)]),
        ("the opposite record", [(_LEFT, _LEFT, both)], [(_RIGHT, _RIGHT, both)]),
        ("nothing known any more", [(_LEFT, _LEFT, both)], [(_LEFT, _LEFT, unknown)]),
    ]
    if unit == "patient":
        pairs.append(("five records", [(_LEFT, _LEFT, both)] * 5, [(_LEFT, _LEFT, none)] * 5))
    return [WorstCase(name, unit, GRADED_FEATURES, before, after, _FINDINGS) for name, before, after in pairs]


_BYSTANDER: list[_Record] = [(_LEFT, _RIGHT, 1)]


def _holding(records: Sequence[_Record], *, unit: int) -> Holding:
    features = np.array([each[:2] for each in records], dtype=np.float32)
    labels = np.array([each[2] for each in records], dtype=np.int64)
    return features, labels, np.full(len(records), unit, dtype=np.int64)


@lru_cache(256)
def _record_study(
    level: AuditedLevel,
    case: WorstCase,
    epsilon: float,
    delta: float,
    *,
    classes: int = CLASSES,
    residuals: bool = False,
) -> Study:
    """The study of a party with this budget and two with twice as much, made by the code that makes every study."""
    plan = RecordVotesPlan(
        name="audit",
        classes=labelled(case.findings, classes).columns(signed=case.queries.signed),
        findings=case.findings,
        unit=case.unit,
        population=100,
        queries=case.queries,
        rule="exhaustive",
        level=simulated_level(level.level, units=level.units, colluders=level.colluders, seats=PARTIES),
        quorum=PARTIES,
        residuals=residuals,
    )
    budgets = np.full(PARTIES, 2 * epsilon)
    budgets[0] = epsilon
    names = tuple(f"party {number}" for number in range(PARTIES))
    return record_study(plan, names=names, epsilon=budgets, delta=np.full(PARTIES, delta))


# More than two classes, so that the direction of a residual depends on the scores: these are of class 0 alone, leave
# residuals of its records in one direction, as long as they can be, and turn those of others.
_OF_RESIDUALS = 3
_FEW_FEATURES = Blocks(GRADED_FEATURES.features, GRADED_FEATURES.blocks[:1])
_OF_CLASS_0 = np.outer(np.ones(_FEW_FEATURES.rows), np.arange(_OF_RESIDUALS) == 0)
FIRST_SCORES = tuple(FirstScores.of(size * _OF_CLASS_0) for size in (-0.2, 0.2))


def asked_twice(study: Study, queries: Blocks, holdings: Sequence[Holding]) -> Sums:
    """Each party's sum, and below it that of its residuals of either scores."""
    stored = cells_of_holdings(study, queries, holdings)
    return both_sums(stored.sums(study), [stored.residuals(study, scores) for scores in FIRST_SCORES])


def both_sums(first: Sums, again: Sequence[Sums]) -> Sums:
    """Each party's first sum, and below it the others."""
    return [np.concatenate(of_party) for of_party in zip(first, *again, strict=True)]


RECORDS = AuditedSums("records", ("record", "patient"), worst_cases, _record_study, contributions)
GRADED = AuditedSums("graded", ("record", "patient"), graded_cases, _record_study, contributions)
FINDINGS = AuditedSums("findings", ("record", "patient"), finding_cases, _record_study, contributions)
TWICE = AuditedSums(
    "graded, twice", ("record", "patient"),
    lambda unit: [replace(case, queries=_FEW_FEATURES, bystanders=6) for case in graded_cases(unit)],
    partial(_record_study, classes=_OF_RESIDUALS, residuals=True), asked_twice,
)  # fmt: skip
SUMS = (RECORDS, GRADED, FINDINGS, TWICE)
