"""The noise of released cells against its exact law: each cell, its tails, and pairs of cells and of releases."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.crypto.discrete_gaussian import lattice_sigma
from protocols.crypto.randomness import simulation_rng
from protocols.levels.secure_sum.terms import noise_share
from protocols.noise import Noise
from protocols.study.study import Study
from protocols.study.votes import unit_sums
from simulations.audit.agreement.agreement import Agreement, agreement
from simulations.audit.agreement.seen_noise import low_bits_evidence, seen_noise_evidence
from simulations.audit.as_run.lattice_law import IntegerNoise, summed_noise
from simulations.audit.record_votes.breaks import RecordBreak, broken_noise
from simulations.audit.record_votes.releases import Sides

# Releases that are looked at: every value of the noise is seen, so few are enough.
_MOST_RELEASES = 40_000
# What rounding of float64 can do to a distribution function.
_ROUNDING = 1e-9


def released_noise(
    study: Study,
    sides: Sides,
    broken: RecordBreak,
    *,
    trials: int,
    noise: Callable[[Study, bool], Noise],
    alpha: float,
    seed: int,
) -> Agreement:
    """Whether what is released is the sums that the code made plus noise of the study's law.

    noise(study, moved): a fresh stream; alpha: false alarms; seed: of what spreads values between whole units.
    """
    run, cells = broken.run(study), len(sides.before)
    releases = min(trials, _MOST_RELEASES)
    counts = np.tile((sides.before / run.units).reshape(-1, run.classes), (releases, 1))
    source = broken_noise(noise(run, False), broken, cells=cells)
    _, shown = unit_sums(run).released(run, counts, source, predictions=None)
    drawn: Int64[ndarray, "releases cells"] = shown.reshape(releases, cells) - sides.before
    spread = simulation_rng(seed, "audit spread").random(drawn.shape)
    below, upto = _distribution(study)(drawn)
    uniform = below + spread * (upto - below)
    found = seen_noise_evidence(uniform.reshape(releases, -1, study.classes), rounding=_ROUNDING)
    # Every remainder is as likely as another: the noise is hundreds of lattice units wide.
    found += low_bits_evidence(drawn, None)
    return agreement(found, alpha=alpha)


Below = Callable[[Int64[ndarray, "..."]], tuple[Float64[ndarray, "..."], Float64[ndarray, "..."]]]


def _distribution(study: Study) -> Below:
    """P[noise < value] and P[noise <= value] of values in whole units, of the unknown noise."""
    lattice, sigma = study.lattice, study.gaussian.sigma
    if lattice is None:
        scale = sigma * study.units
        return lambda units: (scipy.special.ndtr((units - 0.5) / scale), scipy.special.ndtr((units + 0.5) / scale))
    share = noise_share(study) if lattice.shares > 1 else lattice_sigma(sigma, units=lattice.units)
    law: IntegerNoise = summed_noise(float(share), sources=lattice.shares)
    return lambda units: (law.at_most(units - 1), law.at_most(units))
