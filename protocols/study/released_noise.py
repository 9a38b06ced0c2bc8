"""The noise in what a study releases, and warnings, from public figures alone, of studies that will release little."""

from __future__ import annotations

from math import sqrt

import numpy as np

from protocols.study.levels import SecureSum, TwoServer
from protocols.study.study import Study


def noise_in(study: Study, *, voted: int | None = None) -> float:
    """The standard deviation, in votes, of the noise in each released sum if so many seats voted; None: all.

    It is more than sigma where the accounting relies on a part of the noise: of one of two servers, or of the honest
    parties of a quorum.
    """
    sigma, level = study.mechanism.label_sigma, study.confidentiality
    if isinstance(level, TwoServer):
        return sqrt(2) * sigma
    if isinstance(level, SecureSum):
        seats = len(study.roster) if voted is None else voted
        return sigma * sqrt(seats / max(1, study.quorum - level.colluders))
    return sigma


def little_released(study: Study) -> str | None:
    """A warning if noise hides what records say, or hardly any votes can reach the threshold; else None."""
    return thin_queries(study) or few_answers(study)


def few_answers(study: Study) -> str | None:
    """A warning if less than one answer is to be expected even where all votes of every query agree; else None.

    A threshold above the number of votes is no fault: Papernot et al. 2018 ask for 300 of 250, and noise lifts the
    maximum above it.
    """
    needed = study.mechanism.needed(second_round=False)
    if needed is None:
        return None
    # More noise than is accounted for is the same as votes that are nearer to the threshold.
    factor = study.mechanism.label_sigma / noise_in(study)
    unanimous = needed + (np.array([study.largest_weight, 0.0]) - needed) * factor
    law = study.mechanism.outcome_log_law(unanimous, np.array([1, study.classes - 1]))
    answered = float(np.exp(law[:-1]).sum())
    if answered * study.query_limit >= 1:
        return None
    return (
        f"the threshold is {needed:g} votes, and {study.largest_weight:g} can be cast: even a query on which all agree "
        f"is answered with a probability of {answered:.2g}, so less than one label is to be expected of "
        f"{study.query_limit:,} queries; a lower threshold or more noise helps"
    )


def thin_queries(study: Study) -> str | None:
    """A warning if noise hides what the queries of record votes hold; else None."""
    records = study.records
    if records is None:
        return None
    held, noise = records.held * float(study.weights.mean()), noise_in(study)
    if held >= noise:
        return None
    return (
        f"a query holds about {held:.3g} votes, and the noise on each of its sums is {noise:.3g}: expect labels little "
        "better than a guess; larger budgets, more records, or fewer queries help"
    )
