"""The batches that an audit asks: queries whose answers depend strongly on each part of the noise, and their laws.

A batch holds every kind of votes twice, once beside related votes and once among others: leads from none to five noise
scales, with and without votes for the other classes, and, where a threshold is tested, maxima around it and far above
it. Every kind comes with its neighbour, in which the unit's vote has moved, so neighbours differ in single queries, in
alternate ones and across the batch. Which class leads changes from kind to kind.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.mechanisms.winner_law import mixed
from protocols.votes import LATTICE
from simulations.audit.neighbours import BASE_NOISES
from simulations.audit.target import NoisyThreshold, Target

# Leads of the first class over the second, and margins of the tested maximum over the threshold, in noise scales.
_LEADS = (0.0, 0.5, 1.0, 1.4, 2.0, 2.5, 3.0, 4.0, 5.0)
_MARGINS = (-3.5, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0)
# How far the third class lies below the second, kind by kind: a tie of many classes, too.
_THIRD = (0.0, 2.0, 1.0)


@dataclass(frozen=True, eq=False)
class Batch:
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


def audited_batches(target: Target, *, seed: int) -> list[Batch]:
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
) -> Batch:
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
    unanswered = Batch(title, without[order], vote[order], predictions, total, np.empty((0, 0)), order)
    return replace(unanswered, laws=laws_of(target, unanswered))


def laws_of(target: Target, batch: Batch) -> Float64[ndarray, "queries outcomes"]:
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
