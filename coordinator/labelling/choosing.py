"""What chooses the questions of a study's next batch, where the study has them chosen."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32
from numpy import ndarray

from protocols.labelling.questions import Choose
from protocols.study.chosen import GIVEN
from protocols.study.deployed import DeployedStudy


def choice_between_batches(study: DeployedStudy, pool: Float32[ndarray, "queries ..."]) -> Choose | None:
    """The choice by the study's public pool, its features as for images, columns or text; None for a pool in order.

    It is the same on every call. Questions of batches that were asked are in the ledger, so nothing depends on it after
    a restart but what comes next. Raises InvalidInput where no features fit the pool, or without scikit-learn.
    """
    if study.votes.questions == GIVEN:
        return None
    from coordinator.queries.questions import by_uncertainty  # scikit-learn, which few coordinators need

    return by_uncertainty(np.asarray(pool), columns=study.terms.features, seed=0)
