"""The likelihood-ratio attack with shadow models (LiRA, Carlini et al. 2022, Algorithm 1).

A shadow of a released student is a whole run, teachers, votes and noise, on a random half of the records, so this
attack costs as much as its shadows and is not part of a run's report. It is for `benchmarks/membership.py`, and for
anyone who has the time.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from jaxtyping import Bool, Float64
from numpy import ndarray

from protocols.errors import InvalidInput

# With fewer shadows the variances of single records are too noisy: one is shared by all records.
SHADOWS_FOR_OWN_VARIANCE: Final = 64
# No variance is taken to be smaller: where all shadows agree, a likelihood would be infinite.
_LEAST_VARIANCE = 1e-12

Scores = Float64[ndarray, " records"]


def likelihood_ratios(
    target: Scores, shadows: Float64[ndarray, "shadows records"], included: Bool[ndarray, "shadows records"]
) -> Scores:
    """ln N(target; of shadows with the record) - ln N(target; of shadows without it), record by record.

    target, shadows: log(p_y/(1 - p_y)) of each model (`membership_scores.loss`), which is nearly normal over shadows;
    clip it where a model gives probabilities of 0. Raises InvalidInput unless every record is in two shadows at least,
    and out of two.
    """
    if shadows.shape != included.shape or shadows.shape[1:] != target.shape:
        raise InvalidInput(
            f"target, shadows and included of shapes {target.shape}, {shadows.shape} and {included.shape}; "
            "allowed: records, and twice shadows x records"
        )
    if not (np.isfinite(target).all() and np.isfinite(shadows).all()):
        raise InvalidInput("scores of the target or of a shadow are not finite; clip them first")
    mean, variance = _normal(shadows, included)
    mean_out, variance_out = _normal(shadows, ~included)
    return _log_density(target, mean, variance) - _log_density(target, mean_out, variance_out)


def _normal(
    shadows: Float64[ndarray, "shadows records"], chosen: Bool[ndarray, "shadows records"]
) -> tuple[Scores, Scores]:
    """Mean and variance of each record over the chosen shadows."""
    count = chosen.sum(axis=0)
    if (count < 2).any():
        raise InvalidInput(f"a record has {count.min()} shadows on one side; allowed: at least 2 with it and without")
    mean = np.where(chosen, shadows, 0.0).sum(axis=0) / count
    squares = np.where(chosen, (shadows - mean) ** 2, 0.0).sum(axis=0)
    if len(shadows) < SHADOWS_FOR_OWN_VARIANCE:
        variance = np.full(len(count), squares.sum() / (count - 1).sum())
    else:
        variance = squares / (count - 1)
    return mean, np.maximum(variance, _LEAST_VARIANCE)


def _log_density(value: Scores, mean: Scores, variance: Scores) -> Scores:
    """Of a normal distribution, less ln sqrt(2 pi)."""
    return np.asarray(-((value - mean) ** 2) / (2 * variance) - np.log(variance) / 2)
