"""Votes of which a share follows one model: an ensemble whose agreement and accuracy can be set to printed figures.

Independent teachers that agree more are right more often, too. Votes that follow one model agree without being right:
the share sets how much they agree, and the model's records how often the labels are right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from jaxtyping import Int8
from numpy import ndarray

from protocols.crypto.randomness import simulation_rng
from simulations.papers.ensembles import Pool
from simulations.papers.stand_ins import KernelRidge

_SEED: Final = 0


@dataclass(frozen=True)
class Following:
    """records: of the private ones, at random, that the followed kernel ridge regression learns; share: of votes that
    are its own, in [0, 1], drawn vote by vote.
    """

    records: int
    share: float

    def votes(self, cast: Int8[ndarray, "teachers queries"], pool: Pool) -> Int8[ndarray, "teachers queries"]:
        """The votes, of which the share is replaced by the followed model's."""
        rows = simulation_rng(_SEED, "followed").permutation(len(pool.private_labels))[: self.records]
        model = KernelRidge(1.0)(pool.seen_private[rows], pool.private_labels[rows], pool.seen_public, 0)
        chosen = simulation_rng(_SEED, "following").random(cast.shape, dtype=np.float32) < self.share
        return np.where(chosen, model.astype(np.int8), cast)
