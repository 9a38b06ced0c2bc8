"""Running the real release batch by batch, as a coordinator does: many batches, one large one, one query at a time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.budgets.participation import coins
from protocols.crypto.randomness import RandomSource
from protocols.noise import StandardNormal
from protocols.votes import ABSTAIN
from simulations.audit.agreement.batches import Batch
from simulations.audit.agreement.outcomes import Answers
from simulations.audit.breaks import Break
from simulations.audit.target import Target

# Queries asked, per trial of the audit: in ordinary batches, in a few large ones, and one at a time.
_SHARES = {"batches": 4.0, "large batches": 10.0, "single queries": 0.05}
_LARGE_BATCHES = 4


def answers_of(
    target: Target, batch: Batch, broken: Break, *, trials: int, noise: StandardNormal, coins_from: RandomSource
) -> dict[str, Answers]:
    """The answers to the batch, asked again and again in each way of asking, by its name."""
    ask = _asking(target, batch, broken, noise=noise, coins_from=coins_from)
    return {
        way: Answers(np.where(labels == ABSTAIN, batch.laws.shape[1] - 1, labels), batch.laws, batch.kinds)
        for way, labels in _asked(ask, queries=len(batch.kinds), trials=trials).items()
    }


def seen_noise_of(
    target: Target, batch: Batch, broken: Break, *, trials: int, noise: StandardNormal, coins_from: RandomSource
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
    target: Target, batch: Batch, broken: Break, *, noise: StandardNormal, coins_from: RandomSource
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
    target: Target, batch: Batch, coins_from: RandomSource
) -> Callable[[Int64[ndarray, " asked"]], Float64[ndarray, "asked classes"]]:
    """The counts of the queries at these places, with the unit's vote where it enters."""
    votes = batch.votes(target.weight)

    def counts_of(place: Int64[ndarray, " asked"]) -> Float64[ndarray, "asked classes"]:
        if target.rate == 1:
            return batch.without[place] + votes[place]
        enters = coins(coins_from, target.rate, teachers=1, queries=len(place))[0]
        return batch.without[place] + enters[:, None] * votes[place]

    return counts_of
