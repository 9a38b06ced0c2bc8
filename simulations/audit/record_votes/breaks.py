"""Deliberately broken studies of record votes. An audit must detect each of them.

A break changes what is released; the claim stays that of the honest study. What each is, in words: faults.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import isqrt

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.contributions import contribution_sum
from protocols.noise import LatticeNoise, Noise
from protocols.study.query_map import QueryMap
from protocols.study.study import Study
from simulations.audit.record_votes.worst_cases import Holding
from simulations.stages.record_votes import contributions

Sums = list[Int64[ndarray, "queries classes"]]
Draws = Float64[ndarray, "trials cells"] | Int64[ndarray, "trials cells"]


@dataclass(frozen=True)
class RecordBreak:
    """What is done to the contributions, to the study that is run and to the noise of each trial's cells.

    releases: how often the batch is released with fresh noise, for a charge of once.
    """

    contribute: Callable[[Study, QueryMap, Sequence[Holding]], Sums] = contributions
    run: Callable[[Study], Study] = lambda study: study
    noise: Callable[[Draws], Draws] = lambda draws: draws
    releases: int = 1


def _half_noise(study: Study) -> Study:
    return study.voting(sigma=study.gaussian.sigma / 2)


def _no_noise_in_one(draws: Draws) -> Draws:
    return np.where(np.arange(draws.shape[1]) == 0, np.zeros_like(draws), draws)


def _one_noise_for_all(draws: Draws) -> Draws:
    return np.broadcast_to(draws[:, :1], draws.shape)


def _nine_tenths(study: Study) -> Study:
    return study.voting(sigma=0.9 * study.gaussian.sigma)


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


def _unscaled(study: Study, queries: QueryMap, holdings: Sequence[Holding]) -> Sums:
    return contributions(replace(study, unit="record"), queries, holdings)


def _counted_twice(study: Study, queries: QueryMap, holdings: Sequence[Holding]) -> Sums:
    twice = [
        (np.concatenate([x, x]), np.concatenate([y, y]), np.concatenate([unit, unit + unit.max() + 1]))
        for x, y, unit in holdings
    ]
    return contributions(study, queries, twice)


def _largest_weight(study: Study, queries: QueryMap, holdings: Sequence[Holding]) -> Sums:
    largest = float(study.weights.max())
    alike = replace(study, roster=tuple(replace(seat, weight=largest) for seat in study.roster))
    return contributions(alike, queries, holdings)


def _whole_in_each_partition(study: Study, queries: QueryMap, holdings: Sequence[Holding]) -> Sums:
    """A record's whole weight is spread over each partition, not over all of them."""
    return _each_map(study, [QueryMap(queries.features, (each,)) for each in queries.partitions], holdings)


def _every_query(study: Study, queries: QueryMap, holdings: Sequence[Holding]) -> Sums:
    """Every record votes with its whole weight in every query, as a teacher does."""
    sums = []
    for seat, (_, labels, units) in zip(study.roster, holdings, strict=True):
        one = contribution_sum(
            labels[:, None],
            units if study.unit == "patient" else None,
            weight_units=round(seat.weight * study.units),
            cell_count=study.classes,
        )
        sums.append(np.tile(one, (queries.queries, 1)))
    return sums


def _each_map(study: Study, maps: Sequence[QueryMap], holdings: Sequence[Holding]) -> Sums:
    sums = []
    for seat, (features, labels, units) in zip(study.roster, holdings, strict=True):
        parts = [
            contribution_sum(
                each.cells(features, labels, classes=study.classes),
                units if study.unit == "patient" else None,
                weight_units=round(seat.weight * study.units),
                cell_count=each.queries * study.classes,
            ).reshape(each.queries, study.classes)
            for each in maps
        ]
        sums.append(np.concatenate(parts))
    return sums


def _rounded_up(study: Study, queries: QueryMap, holdings: Sequence[Holding]) -> Sums:
    """Each entry is rounded up to whole lattice units, where it should be rounded down."""
    sums = []
    for seat, (features, labels, patients) in zip(study.roster, holdings, strict=True):
        weight = round(seat.weight * study.units)
        cells = queries.cells(features, labels, classes=study.classes)
        units = patients if study.unit == "patient" else np.arange(len(labels))
        total = np.zeros(queries.queries * study.classes, dtype=np.int64)
        for unit in np.unique(units):
            touched, counts = np.unique(cells[units == unit], return_counts=True)
            longest = max(int((counts * counts).sum()), queries.votes)
            for cell, count in zip(touched.tolist(), counts.tolist(), strict=True):
                total[cell] += isqrt((count * weight) ** 2 // longest) + 1
        sums.append(total.reshape(queries.queries, study.classes))
    return sums


HONEST = RecordBreak()
RECORD_BREAKS: dict[str, RecordBreak] = {
    "half-noise": RecordBreak(run=_half_noise),
    "unscaled-patients": RecordBreak(contribute=_unscaled),
    "whole-in-each": RecordBreak(contribute=_whole_in_each_partition),
    "rounded-up": RecordBreak(contribute=_rounded_up),
    "counted-twice": RecordBreak(contribute=_counted_twice),
    "every-query": RecordBreak(contribute=_every_query),
    "fresh-noise": RecordBreak(releases=4),
    "bare-cell": RecordBreak(noise=_no_noise_in_one),
    "one-noise": RecordBreak(noise=_one_noise_for_all),
    "noise-90": RecordBreak(run=_nine_tenths),
    "clipped": RecordBreak(noise=_ends_at_three),
    "correlated-cells": RecordBreak(noise=_correlated),
    "noise-again": RecordBreak(noise=_again),
    "rare-noiseless": RecordBreak(noise=_rarely_none),
    **{f"multiples-of-{step}": RecordBreak(noise=_multiple_of(step)) for step in (2, 4, 8)},
    "wrong-weight": RecordBreak(contribute=_largest_weight),
}


def broken_noise(noise: Noise, broken: RecordBreak, *, cells: int) -> Noise:
    """The same source, changed by the break trial by trial; cells: of one trial."""
    if isinstance(noise, LatticeNoise):
        drawn = noise.draw

        def draw(count: int, sigma: float) -> Int64[ndarray, " count"]:
            return np.ascontiguousarray(broken.noise(drawn(count, sigma).reshape(-1, cells)).ravel())

        return LatticeNoise(noise.units, draw)
    normal = noise

    def standard(shape: tuple[int, ...]) -> Float64[ndarray, "..."]:
        return broken.noise(normal(shape).reshape(-1, cells)).reshape(shape)

    return standard
