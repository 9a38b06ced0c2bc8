"""The noise in what a study of record votes releases, and whether its queries stand above it."""

from __future__ import annotations

from math import sqrt

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


def thin_queries(study: Study) -> str | None:
    """A warning, from public figures alone, if noise hides what the queries of record votes hold; else None."""
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
