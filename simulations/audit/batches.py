"""Whether what a mechanism releases, batch by batch, has the law that it states; and what such an audit would find.

A batch holds every kind of votes twice, once beside related votes and once among others: leads from none to five noise
scales, with and without votes for the other classes, and, where a threshold is tested, maxima around it and far above
it. Every kind comes with its neighbour, in which the unit's vote has moved, so neighbours differ in single queries, in
alternate ones and across the batch. Which class leads changes from kind to kind. The real release is run as a
coordinator does: in many batches, in a few large ones, one query at a time.

Power, the probability that a smaller noise scale fails a line, is computed from exact laws before anything is drawn: of
the tests of single outcomes in the large batches alone, by the cell that shows most (of the distribution of the noise,
where it is seen). All other tests can only add to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.budgets.participation import coins
from protocols.crypto.randomness import RandomSource
from protocols.mechanisms.winner_law import mixed
from protocols.noise import StandardNormal
from protocols.votes import ABSTAIN, LATTICE
from simulations.audit.breaks import Break, scaled_noise
from simulations.audit.laws import (
    ROUNDING,
    Agreement,
    Answers,
    Evidence,
    agreement,
    answers_evidence,
    seen_noise_evidence,
)
from simulations.audit.targets import BASE_NOISES, NoisyThreshold, Target

# Leads of the first class over the second, and margins of the tested maximum over the threshold, in noise scales.
_LEADS = (0.0, 0.5, 1.0, 1.4, 2.0, 2.5, 3.0, 4.0, 5.0)
_MARGINS = (-3.5, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0)
# The grid on which a distribution function is integrated from the density, in noise scales.
_REACH, _NODES = 60.0, 600_001
# How far the third class lies below the second, kind by kind: a tie of many classes, too.
_THIRD = (0.0, 2.0, 1.0)


@dataclass(frozen=True, eq=False)
class _Batch:
    """The votes of a batch of queries, and the exact law of each answer.

    without: counts without the unit's vote; vote: the class of its vote; predictions, total_weight: of a second round,
    or None; laws: over the classes and, last, no answer; kinds: queries with the same number have the same votes.
    """

    title: str
    without: Float64[ndarray, "queries classes"]
    vote: Int64[ndarray, " queries"]
    predictions: Float64[ndarray, "queries classes"] | None
    total_weight: float | None
    laws: Float64[ndarray, "queries outcomes"]
    kinds: Int64[ndarray, " queries"]

    def votes(self, weight: float) -> Float64[ndarray, "queries classes"]:
        """What the unit adds to the counts where its vote enters."""
        added = np.zeros_like(self.without)
        added[np.arange(len(self.vote)), self.vote] = weight
        return added


def audited_batches(target: Target, *, seed: int) -> list[_Batch]:
    """The batches of a target, view "label": one for each round of the mechanism."""
    first = target.mechanism.needed(second_round=False)
    scale = target.mechanism.tested_scale
    opening = None if first is None or scale is None else NoisyThreshold(first, scale)
    rounds = [_batch(target, "", _kinds(target, opening), opening, interactive=False, seed=seed)]
    if target.mechanism.interactive:
        rounds.append(
            _batch(target, "round two, ", _kinds(target, target.threshold), target.threshold, interactive=True,
                   seed=seed)
        )  # fmt: skip
    return rounds


@dataclass(frozen=True)
class _Kind:
    """lead, third, margin: in noise scales; margin: of the maximum over the threshold, or None: far above it, or
    without one; bare: no votes for other classes.
    """

    lead: float
    third: float
    margin: float | None
    bare: bool


def _kinds(target: Target, threshold: NoisyThreshold | None) -> list[_Kind]:
    kinds = [_Kind(lead, _THIRD[at % 3], None, bare=False) for at, lead in enumerate(_LEADS)]
    if threshold is None:
        return [*kinds, *(_Kind(lead, 0.0, None, bare=True) for lead in (1.0, 2.0))]
    near = [_Kind((0.0, 1.4, 3.0)[at % 3], _THIRD[at % 3], margin, bare=False) for at, margin in enumerate(_MARGINS)]
    return [*kinds, *near]


def _batch(
    target: Target, title: str, kinds: list[_Kind], threshold: NoisyThreshold | None, *, interactive: bool, seed: int
) -> _Batch:
    classes, unit = target.classes, target.scale
    counts, votes, leaders = [], [], []
    for at, kind in enumerate(kinds):
        levels = np.zeros(classes)
        levels[1], levels[2:] = -kind.lead * unit, -(kind.lead + kind.third) * unit
        if threshold is None or interactive:
            floor = 0.0 if threshold is None else threshold.noise
            top = kind.lead * unit if kind.bare else BASE_NOISES * (unit + floor)
        else:
            top = threshold.votes + threshold.noise * (BASE_NOISES if kind.margin is None else kind.margin)
        levels = np.maximum(levels + top, 0.0)
        order = np.roll(np.arange(classes), at)
        for moved in (0, 1):
            placed = np.empty(classes)
            placed[order] = levels
            counts.append(placed)
            votes.append(order[moved])
            leaders.append(order[0])
    without = np.rint(np.stack(counts) * LATTICE) / LATTICE
    vote, leader = np.array(votes), np.array(leaders)
    order = np.concatenate([np.arange(len(vote)), np.random.default_rng(seed).permutation(len(vote))])
    predictions, total = None, None
    if interactive and threshold is not None:
        total = float(without.sum(axis=1).max() + target.weight)
        margins = np.repeat([8.0 if kind.margin is None else kind.margin for kind in kinds], 2)
        own = (without.max(axis=1) - threshold.votes - threshold.noise * margins) / total
        predictions = np.repeat(((1 - own) / (classes - 1))[:, None], classes, axis=1)
        predictions[np.arange(len(leader)), leader] = own
        predictions = predictions[order]
    unanswered = _Batch(title, without[order], vote[order], predictions, total, np.empty((0, 0)), order)
    return replace(unanswered, laws=laws_of(target, unanswered))


def laws_of(target: Target, batch: _Batch) -> Float64[ndarray, "queries outcomes"]:
    """The exact law of each query's answer: the mechanism's own, mixed over the secret coin if there is one."""
    mechanism, predictions, total = target.mechanism, batch.predictions, batch.total_weight
    offsets = None if predictions is None or total is None else mechanism.offsets(predictions, total)
    each = np.ones(target.classes, dtype=np.int64)
    log_law = mechanism.outcome_log_law(batch.without + batch.votes(target.weight), each, offsets=offsets)
    if target.rate < 1:
        outside = mechanism.outcome_log_law(batch.without, each, offsets=offsets)
        log_law = mixed(outside, log_law, rate=target.rate)
    laws = np.clip(np.exp(log_law), 0.0, 1.0)
    # Without a threshold "no answer" is impossible.
    return laws if laws.shape[1] > target.classes else np.pad(laws, ((0, 0), (0, 1)))


def uniform_of(
    target: Target, batch: _Batch, seen: Float64[ndarray, "batches queries classes"]
) -> tuple[Float64[ndarray, "batches queries classes"], float]:
    """What is seen above the counts without the unit's vote, through its distribution function; and the rounding.

    seen: in noise scales; the cell of the unit's vote holds a mixture where the vote enters by a coin.
    """
    z = np.linspace(-_REACH, _REACH, _NODES)
    density = np.exp(target.mechanism.noise_log_density(z))
    below = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    below /= below[-1]
    shift = target.weight / target.scale
    cells = np.zeros(batch.without.shape, dtype=bool)
    cells[np.arange(len(batch.vote)), batch.vote] = True
    uniform = np.interp(seen, z, below)
    moved = np.interp(seen[:, cells] - shift, z, below)
    uniform[:, cells] = (1 - target.rate) * uniform[:, cells] + target.rate * moved
    return uniform, ROUNDING + 0.5 / LATTICE / target.scale * float(density.max() / density.sum() / (z[1] - z[0]))


# Queries asked, per trial of the audit: in ordinary batches, in a few large ones, and one at a time.
_SHARES = {"batches": 4.0, "large batches": 10.0, "single queries": 0.05}
_LARGE_BATCHES = 4


def answers_of(
    target: Target, batch: _Batch, broken: Break, *, trials: int, noise: StandardNormal, coins_from: RandomSource
) -> dict[str, Answers]:
    """The answers to the batch, asked again and again in each way of asking, by its name."""
    ask = _asking(target, batch, broken, noise=noise, coins_from=coins_from)
    return {
        way: Answers(np.where(labels == ABSTAIN, batch.laws.shape[1] - 1, labels), batch.laws, batch.kinds)
        for way, labels in _asked(ask, queries=len(batch.kinds), trials=trials).items()
    }


def seen_noise_of(
    target: Target, batch: _Batch, broken: Break, *, trials: int, noise: StandardNormal, coins_from: RandomSource
) -> dict[str, Float64[ndarray, "batches queries classes"]]:
    """Of each noisy count that is seen, what it is above the count without the unit's vote, in noise scales."""
    release, draw = broken.mechanism(target.mechanism), broken.noise(noise)
    counts_of = _entering(target, batch, coins_from)

    def ask(place: Int64[ndarray, " asked"]) -> Float64[ndarray, "asked classes"]:
        return release.noisy(broken.counts(counts_of(place)), draw, view="histogram") - batch.without[place]

    # Every value is seen, so a quarter of the queries show as much.
    shown = _asked(ask, queries=len(batch.kinds), trials=trials // 4)
    return {way: each / target.scale for way, each in shown.items()}


def large_repeats(trials: int, *, queries: int) -> int:
    """How often a batch is asked in large batches."""
    return _repeats(_SHARES["large batches"], trials, queries=queries) // _LARGE_BATCHES * _LARGE_BATCHES


def _repeats(share: float, trials: int, *, queries: int) -> int:
    return max(4 * _LARGE_BATCHES, round(share * trials / queries))


def _asked(ask: Callable[[Int64[ndarray, " asked"]], ndarray], *, queries: int, trials: int) -> dict[str, ndarray]:
    """What is shown of the batch's queries in each way of asking: [repetitions of the batch, queries, ...]."""
    place, found = np.arange(queries), {}
    for way, share in _SHARES.items():
        repeats = _repeats(share, trials, queries=queries)
        if way == "batches":
            found[way] = np.stack([ask(place) for _ in range(repeats)])
            continue
        asked = np.tile(place, repeats // _LARGE_BATCHES) if way == "large batches" else place[:, None]
        parts = [asked] * _LARGE_BATCHES if way == "large batches" else list(asked) * repeats
        shown = np.concatenate([ask(part) for part in parts])
        found[way] = shown.reshape(-1, queries, *shown.shape[1:])
    return found


def _asking(
    target: Target, batch: _Batch, broken: Break, *, noise: StandardNormal, coins_from: RandomSource
) -> Callable[[Int64[ndarray, " asked"]], Int64[ndarray, " asked"]]:
    """Releases the labels of the queries at these places, as one batch."""
    release, draw = broken.mechanism(target.mechanism), broken.noise(noise)
    counts_of = _entering(target, batch, coins_from)

    def ask(place: Int64[ndarray, " asked"]) -> Int64[ndarray, " asked"]:
        return release.labels(
            broken.counts(counts_of(place)),
            draw,
            view="label",
            predictions=None if batch.predictions is None else batch.predictions[place],
            total_weight=batch.total_weight,
        )

    return ask


def _entering(
    target: Target, batch: _Batch, coins_from: RandomSource
) -> Callable[[Int64[ndarray, " asked"]], Float64[ndarray, "asked classes"]]:
    """The counts of the queries at these places, with the unit's vote where it enters."""
    votes = batch.votes(target.weight)

    def counts_of(place: Int64[ndarray, " asked"]) -> Float64[ndarray, "asked classes"]:
        if target.rate == 1:
            return batch.without[place] + votes[place]
        enters = coins(coins_from, target.rate, teachers=1, queries=len(place))[0]
        return batch.without[place] + enters[:, None] * votes[place]

    return counts_of


def target_agreement(
    target: Target,
    broken: Break,
    *,
    trials: int,
    alpha: float,
    seed: int,
    noise: StandardNormal,
    coins_from: RandomSource,
) -> Agreement:
    """Runs the target's real release batch by batch, and tests all that it shows against its law.

    trials: of the audit; seed: of the order of queries in a batch, which is no secret.
    """
    found: list[Evidence] = []
    for batch in audited_batches(target, seed=seed):
        if target.view == "histogram":
            shown = seen_noise_of(target, batch, broken, trials=trials, noise=noise, coins_from=coins_from)
            for way, seen in shown.items():
                uniform, rounding = uniform_of(target, batch, seen)
                found += [one.named(f"{way}: {one.family}") for one in seen_noise_evidence(uniform, rounding=rounding)]
            continue
        answers = answers_of(target, batch, broken, trials=trials, noise=noise, coins_from=coins_from)
        for way, each in answers.items():
            found += [one.named(f"{batch.title}{way}: {one.family}") for one in answers_evidence(each)]
    return agreement(found, alpha=alpha)


# Shares of the noise that are accounted for, from nearly all of it.
FACTORS = (0.97, 0.95, 0.9, 0.85)


def power(target: Target, factor: float, *, trials: int, alpha: float, families: int, seed: int) -> float:
    """A lower bound, but for a normal approximation, of the probability that the line of this target fails if all of
    its noise is smaller by `factor`.

    trials: of the audit; alpha: of the line; families: of its tests.
    """
    batches = audited_batches(target, seed=seed)
    broken = replace(target, mechanism=scaled_noise(factor)(target.mechanism))
    if target.view == "histogram":
        values = large_repeats(trials // 4, queries=len(batches[0].kinds)) * batches[0].without.size
        return _distance_power(target, factor, values=values, alpha=alpha / families)
    return max(_outcome_power(target, broken, batch, trials=trials, alpha=alpha / families) for batch in batches)


def _outcome_power(target: Target, broken: Target, batch: _Batch, *, trials: int, alpha: float) -> float:
    stated, actual = batch.laws, laws_of(broken, batch)
    # Every kind of votes is in the batch twice, and each of its outcomes is one cell.
    observed = 2 * large_repeats(trials, queries=len(batch.kinds))
    limit = -scipy.special.ndtri(alpha / (stated.size / 2) / 2)
    spread: Float64[ndarray, "queries outcomes"] = np.sqrt(np.maximum(actual * (1 - actual), 1e-12))
    shown = np.abs(actual - stated) * np.sqrt(observed) - limit * np.sqrt(stated * (1 - stated))
    # The normal approximation needs some expected hits.
    shown = np.where(np.minimum(stated, 1 - stated) * observed > 25, shown / spread, -np.inf)
    return float(scipy.special.ndtr(shown.max()))


def _distance_power(target: Target, factor: float, *, values: int, alpha: float) -> float:
    """Of the Kolmogorov-Smirnov distance, with Massart's bound on both sides."""
    z = np.linspace(-60.0, 60.0, 120_001)
    below = np.cumsum(np.exp(target.mechanism.noise_log_density(z)))
    below /= below[-1]
    distance = float(np.abs(np.interp(z / factor, z, below) - below).max())
    spare = distance - np.sqrt(np.log(2 / alpha) / (2 * values))
    return max(0.0, 1 - 2 * float(np.exp(-2 * values * spare**2))) if spare > 0 else 0.0
