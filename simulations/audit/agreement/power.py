"""What an audit of so many trials would have found: the probability that a smaller noise scale fails a line.

Computed from exact laws before anything is drawn: of the tests of single outcomes in the large batches alone, by the
cell that shows most (of the distribution of the noise, where it is seen). All other tests can only add to it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy
from jaxtyping import Float64
from numpy import ndarray

from simulations.audit.agreement.batches import Batch, audited_batches, laws_of
from simulations.audit.agreement.runs import large_repeats
from simulations.audit.breaks import scaled_noise
from simulations.audit.target import Target

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


def _outcome_power(target: Target, broken: Target, batch: Batch, *, trials: int, alpha: float) -> float:
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
