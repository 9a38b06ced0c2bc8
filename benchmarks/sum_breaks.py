"""Deliberately broken studies of unit sums. An audit must detect each of them.

A break changes what is released; the claim stays that of the honest study. Faults of the noise are those of every kind
of sums; faults of what parties contribute are of one kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import isqrt

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray
from scipy.special import softmax

from protocols.features.feature_map import FeatureMap
from protocols.mechanisms import Mechanism, TauVoting
from protocols.noise import StandardNormal
from protocols.study.study import Study
from protocols.sums.blocks import NORM_STEPS, TARGET_STEPS, Blocks, Features, Nearest, Steps
from protocols.sums.contributions import contribution_sum, graded_sum, said
from protocols.sums.residuals import CUT, FirstScores
from simulations.audit.breaks import Contribute, Draws, FindingBreak, Holding, SumBreak, Sums, scaled_noise
from simulations.audit.unit_sums import FIRST_SCORES, asked_twice, both_sums
from simulations.stages.record_votes import cells_of_holdings, contributions

# Two cells, of which only the first is used.
_ONE_CELL = Blocks(FeatureMap((1,)), (Nearest.of(np.array([[0.0], [1.0]], np.float32), columns=np.array([0])),))


def _smaller_noise(factor: float) -> Callable[[Study], Study]:
    return lambda study: study.voting(sigma=factor * study.gaussian.sigma)


def _no_noise_in_one(draws: Draws) -> Draws:
    return np.where(np.arange(draws.shape[1]) == 0, np.zeros_like(draws), draws)


def _one_noise_for_all(draws: Draws) -> Draws:
    return np.broadcast_to(draws[:, :1], draws.shape)


def _rounded_to(draws: Draws, changed: Float64[ndarray, "trials cells"]) -> Draws:
    """Integer noise stays integer."""
    return np.rint(changed).astype(np.int64) if draws.dtype == np.int64 else changed


def _ends_at_three(draws: Draws) -> Draws:
    most = 3 * float(draws.std())
    return _rounded_to(draws, np.clip(draws, -most, most).astype(np.float64))


def _correlated(draws: Draws) -> Draws:
    return _rounded_to(draws, 0.8 * draws + 0.6 * np.roll(draws, 1, axis=1))


def _multiple_of(step: int) -> Callable[[Draws], Draws]:
    """Whole numbers of noise become multiples; real-valued noise stays."""
    return lambda draws: step * np.rint(draws / step).astype(np.int64) if draws.dtype == np.int64 else draws


def _rarely_none(draws: Draws) -> Draws:
    chosen = np.random.default_rng(abs(int(1e6 * draws[0, 0]))).random(draws.shape) < 1 / 5000
    return np.where(chosen, np.zeros_like(draws), draws)


def _again(draws: Draws) -> Draws:
    changed = draws.copy()
    changed[1::2] = changed[: 2 * (len(draws) // 2) : 2]
    return changed


def _unscaled(study: Study, queries: Blocks, holdings: Sequence[Holding]) -> Sums:
    return contributions(replace(study, unit="record"), queries, holdings)


def _twice(holdings: Sequence[Holding]) -> list[Holding]:
    return [
        (np.concatenate([x, x]), np.concatenate([y, y]), np.concatenate([unit, unit + unit.max() + 1]))
        for x, y, unit in holdings
    ]


def _counted_twice(study: Study, queries: Blocks, holdings: Sequence[Holding]) -> Sums:
    return contributions(study, queries, _twice(holdings))


def _alike(study: Study) -> Study:
    largest = float(study.weights.max())
    return replace(study, roster=tuple(replace(seat, weight=largest) for seat in study.roster))


def _largest_weight(study: Study, queries: Blocks, holdings: Sequence[Holding]) -> Sums:
    return contributions(_alike(study), queries, holdings)


def _whole_in_each_partition(study: Study, queries: Blocks, holdings: Sequence[Holding]) -> Sums:
    """A record's whole weight is spread over each partition, not over all of them."""
    return _each_map(study, [Blocks(queries.features, (each,)) for each in queries.blocks], holdings)


def _every_query(study: Study, queries: Blocks, holdings: Sequence[Holding]) -> Sums:
    """Every record votes with its whole weight in every query, as a teacher does."""
    sums = []
    for seat, (_, labels, units) in zip(study.roster, holdings, strict=True):
        one = contribution_sum(
            _ONE_CELL,
            labels[:, None],
            units if study.unit == "patient" else None,
            weight_units=round(seat.weight * study.units),
            classes=study.classes,
        )[:1]
        sums.append(np.tile(one, (queries.rows, 1)))
    return sums


def _each_map(study: Study, maps: Sequence[Blocks], holdings: Sequence[Holding]) -> Sums:
    sums = []
    for seat, (features, labels, units) in zip(study.roster, holdings, strict=True):
        parts = [
            contribution_sum(
                each,
                said(each, features, labels, classes=study.classes),
                units if study.unit == "patient" else None,
                weight_units=round(seat.weight * study.units),
                classes=study.classes,
            )
            for each in maps
        ]
        sums.append(np.concatenate(parts))
    return sums


def _rounded_up(study: Study, queries: Blocks, holdings: Sequence[Holding]) -> Sums:
    """Each entry is rounded up to whole lattice units, where it should be rounded down."""
    sums = []
    for seat, (features, labels, patients) in zip(study.roster, holdings, strict=True):
        weight = round(seat.weight * study.units)
        cells = said(queries, features, labels, classes=study.classes)
        units = patients if study.unit == "patient" else np.arange(len(labels))
        total = np.zeros(queries.rows * study.classes, dtype=np.int64)
        for unit in np.unique(units):
            touched, counts = np.unique(cells[units == unit], return_counts=True)
            longest = max(int((counts * counts).sum()), queries.filled)
            for cell, count in zip(touched.tolist(), counts.tolist(), strict=True):
                total[cell] += isqrt((count * weight) ** 2 // longest) + 1
        sums.append(total.reshape(queries.rows, study.classes))
    return sums


def _graded(
    phi: Callable[[Blocks, Features], Steps] = lambda queries, features: queries.of_records(features),
    targets: Callable[[Int64[ndarray, "classes columns"]], Int64[ndarray, "classes columns"]] = lambda psi: psi,
) -> Contribute:
    """Graded votes with other features, or another code of classes."""

    def contribute(study: Study, queries: Blocks, holdings: Sequence[Holding]) -> Sums:
        sums = []
        for seat, (features, labels, units) in zip(study.roster, holdings, strict=True):
            said_of, psi = phi(queries, features), targets(queries.targets(study.classes))
            whose = units if study.unit == "patient" else None
            sums.append(graded_sum(said_of, psi[labels], whose, weight=round(seat.weight * study.units)))
        return sums

    return contribute


def _whole_blocks(queries: Blocks, features: Features) -> Steps:
    alone = [Blocks(queries.features, (each,)) for each in queries.blocks]
    return np.concatenate([each.of_records(features) for each in alone], axis=1)


def _longest_of_party(queries: Blocks, features: Features) -> Steps:
    norms = np.linalg.norm(features, axis=1)
    return np.trunc(queries.of_records(features) * (norms / norms.max())[:, None]).astype(np.int64)


def _centred_on_party(queries: Blocks, features: Features) -> Steps:
    return queries.of_records((features - features.mean(axis=0)).astype(np.float32))


def _long_features(queries: Blocks, features: Features) -> Steps:
    return NORM_STEPS * np.sign(queries.of_records(features))


NOISE_BREAKS: dict[str, SumBreak] = {
    "half-noise": SumBreak("half of the noise that is accounted for", run=_smaller_noise(0.5)),
    "fresh-noise": SumBreak("the batch is asked four times with fresh noise, charged once", releases=4),
    "bare-cell": SumBreak("one cell has no noise", noise=_no_noise_in_one),
    "one-noise": SumBreak("the noise of one cell serves all", noise=_one_noise_for_all),
    "noise-90": SumBreak("nine tenths of the noise that is accounted for", run=_smaller_noise(0.9)),
    "clipped": SumBreak("noise ends at three standard deviations", noise=_ends_at_three),
    "correlated-cells": SumBreak("noise of neighbouring cells is correlated", noise=_correlated),
    "noise-again": SumBreak("every second release has the noise of the one before", noise=_again),
    "rare-noiseless": SumBreak("one draw in 5,000 has no noise", noise=_rarely_none),
    "multiples-of-2": SumBreak("whole noise is even", noise=_multiple_of(2)),
    "multiples-of-4": SumBreak("whole noise is a multiple of 4", noise=_multiple_of(4)),
    "multiples-of-8": SumBreak("whole noise is a multiple of 8", noise=_multiple_of(8)),
}
RECORD_BREAKS: dict[str, SumBreak] = {
    "unscaled-patients": SumBreak(
        "a patient's contribution is not scaled to norm 1", of="records", contribute=_unscaled
    ),
    "whole-in-each": SumBreak("weight 1 in each of two partitions", of="records", contribute=_whole_in_each_partition),
    "rounded-up": SumBreak("entries are rounded up to whole lattice units", of="records", contribute=_rounded_up),
    "counted-twice": SumBreak("each unit is counted twice", of="records", contribute=_counted_twice),
    "every-query": SumBreak("each record votes in every query, charged once", of="records", contribute=_every_query),
    "wrong-weight": SumBreak(
        "the weight of the party with the largest budget for all", of="records", contribute=_largest_weight
    ),
}
GRADED_BREAKS: dict[str, SumBreak] = {
    "share-ignored": SumBreak(
        "each block of features has the length of all", of="graded", contribute=_graded(_whole_blocks)
    ),
    "long-rows": SumBreak(
        "features are not of norm 1", of="graded", contribute=_graded(lambda queries, x: queries.of_records(x) * 3 // 2)
    ),
    "long-features": SumBreak("each feature is as long as all", of="graded", contribute=_graded(_long_features)),
    "long-targets": SumBreak(
        "classes are not of length 1", of="graded", contribute=_graded(targets=lambda psi: psi * 3 // 2)
    ),
    "norm-of-party": SumBreak(
        "features are scaled by the longest record of a party", of="graded", contribute=_graded(_longest_of_party)
    ),
    "centre-of-party": SumBreak(
        "features are centred on a party's records, not on the pool", of="graded", contribute=_graded(_centred_on_party)
    ),
    "graded-unscaled": SumBreak("a patient's graded votes are not scaled to norm 1", of="graded", contribute=_unscaled),
    "graded-twice": SumBreak("each unit is counted twice, in graded votes", of="graded", contribute=_counted_twice),
    "graded-weight": SumBreak(
        "the weight of the largest budget for all, in graded votes", of="graded", contribute=_largest_weight
    ),
    "noise-of-cells": SumBreak(
        "noise as if no entry were below 0", of="graded", contribute=contributions, run=_smaller_noise(0.5**0.5)
    ),
}


def _whole_findings(study: Study, queries: Blocks, holdings: Sequence[Holding]) -> Sums:
    """Each finding is as long as all together."""
    sums = []
    for seat, (features, labels, units) in zip(study.roster, holdings, strict=True):
        psi = TARGET_STEPS * np.where(labels < 0, 0, 2 * labels - 1)
        whose = units if study.unit == "patient" else np.arange(len(labels))
        phi, weight = queries.of_records(features), round(seat.weight * study.units)
        each = [graded_sum(phi, psi[:, [at]], whose, weight=weight) for at in range(labels.shape[1])]
        sums.append(np.concatenate(each, axis=1))
    return sums


FINDING_SUM_BREAKS: dict[str, SumBreak] = {
    "findings-whole": SumBreak("each finding is as long as all", of="findings", contribute=_whole_findings),
    "findings-unscaled": SumBreak("a patient's findings are not scaled to norm 1", of="findings", contribute=_unscaled),
    "findings-twice": SumBreak("each unit's findings are counted twice", of="findings", contribute=_counted_twice),
    "findings-weight": SumBreak(
        "the weight of the largest budget for all, in findings", of="findings", contribute=_largest_weight
    ),
    "findings-one-charged": SumBreak(
        "noise as if one finding of two were told", of="findings", contribute=contributions,
        run=_smaller_noise(0.5**0.5),
    ),
}  # fmt: skip


class _Uncut(FirstScores):
    """Residuals over their least length, whatever theirs is."""

    def psi(
        self, phi: Int64[ndarray, "records rows"], labels: Int64[ndarray, " records"]
    ) -> Int64[ndarray, "records classes"]:
        classes = self.weights.shape[1]
        chances = softmax(phi / NORM_STEPS @ self.of_one * classes, axis=1)
        return np.rint((np.eye(classes)[labels] - chances) * TARGET_STEPS * CUT[1] / CUT[0]).astype(np.int64)


class _OfOneRow(FirstScores):
    """Residuals of what the first sum says of a party's first record, whosever they are."""

    def _chances(self, phi: Int64[ndarray, "records rows"]) -> Int64[ndarray, "records classes"]:
        return super()._chances(np.broadcast_to(phi[:1], phi.shape))


def _again(
    of: Callable[[Study], Study] = lambda study: study,
    holding: Callable[[Sequence[Holding]], Sequence[Holding]] = lambda holdings: holdings,
    scores: Callable[[FirstScores], FirstScores] = lambda scores: scores,
) -> Contribute:
    """The first sum as it should be, and residuals of another study, of other records, or of others' scores."""

    def contribute(study: Study, queries: Blocks, holdings: Sequence[Holding]) -> Sums:
        stored = cells_of_holdings(of(study), queries, holding(holdings))
        again = [stored.residuals(of(study), scores(each)) for each in FIRST_SCORES]
        return both_sums(contributions(study, queries, holdings), again)

    return contribute


def _noise_of_the_first(draws: Draws) -> Draws:
    return np.tile(draws[:, : draws.shape[1] // 2], 2)


RESIDUAL_BREAKS: dict[str, SumBreak] = {
    "residuals-free": SumBreak(
        "the second sum is not charged", of="graded, twice", contribute=asked_twice, run=_smaller_noise(0.5**0.5)
    ),
    "residuals-noise": SumBreak(
        "the second sum has the noise of the first", of="graded, twice", contribute=asked_twice,
        noise=_noise_of_the_first,
    ),
    "residuals-uncut": SumBreak(
        "residuals are longer than 1", of="graded, twice", contribute=_again(scores=lambda each: _Uncut(each.weights))
    ),
    "residuals-row": SumBreak(
        "each residual is of the first scores of a party's first record", of="graded, twice",
        contribute=_again(scores=lambda each: _OfOneRow(each.weights)),
    ),
    "residuals-unscaled": SumBreak(
        "a patient's residuals are not scaled to norm 1", of="graded, twice",
        contribute=_again(lambda study: replace(study, unit="record")),
    ),
    "residuals-twice": SumBreak(
        "each unit is counted twice in the second sum", of="graded, twice", contribute=_again(holding=_twice)
    ),
    "residuals-weight": SumBreak(
        "the weight of the largest budget for all, in the second sum", of="graded, twice", contribute=_again(_alike)
    ),
}  # fmt: skip
SUM_BREAKS = NOISE_BREAKS | RECORD_BREAKS | GRADED_BREAKS | FINDING_SUM_BREAKS | RESIDUAL_BREAKS


def _unclipped(mechanism: Mechanism) -> Mechanism:
    assert isinstance(mechanism, TauVoting)  # a break of tau alone
    return replace(mechanism, tau=1e3)


def _one_for_all(noise: StandardNormal) -> StandardNormal:
    return lambda shape: np.broadcast_to(noise((*shape[:-1], 1)), shape)


FINDING_BREAKS: dict[str, FindingBreak] = {
    "votes-unclipped": FindingBreak("votes on findings are not clipped", of="tau", counted=_unclipped),
    "votes-one-noise": FindingBreak("one noise for all findings", of="tau", noise=_one_for_all),
    "votes-half-noise": FindingBreak("half of the noise on votes on findings", mechanism=scaled_noise(0.5)),
    "votes-twice": FindingBreak("a vote on findings counts twice", votes=lambda counts: 2 * counts),
    "votes-one-charged": FindingBreak("one finding of a query is charged", of="binary", charged_once=True),
}
