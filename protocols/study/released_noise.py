"""The noise in what a study releases, and warnings, from public figures alone, of studies that will release little."""

from __future__ import annotations

from collections.abc import Callable
from math import floor

import numpy as np

from protocols.mechanisms import Mechanism
from protocols.study.purposes import ForCounts, ForLabels
from protocols.study.study import Study
from protocols.study.votes import TeacherVotes, UnitSums, Votes, unit_sums

# Quotients that are whole numbers but for rounding.
_DUST = 1e-9


def noise_in(study: Study, *, voted: int | None = None) -> float:
    """The standard deviation, in votes, of the noise in each released sum if so many seats voted; None: all.

    It is more than sigma where the accounting relies on a part of the noise: of one of two servers, or of the honest
    parties of a quorum.
    """
    seats = len(study.roster) if voted is None else voted
    return study.mechanism.label_sigma * study.confidentiality.noise_factor(quorum=study.quorum, voted=seats)


def noise_of_mean(study: Study) -> float:
    """The standard deviation of the noise in each entry of a sum over the population, if all seats vote; of two sums
    together."""
    sums = unit_sums(study)
    return noise_in(study) / (float(study.weights.mean()) * sums.expected) / (1 + sums.residuals) ** 0.5


def usual_residuals(study: Study, *, pool: int) -> bool:
    """Whether units are usually asked twice, by public figures: where chance in a pool of so many records moves an
    entry of the mean by as much as the noise of one sum does, which a second sum makes up for (docs/decisions/0082).

    study: of one sum; not where that is none of graded features and one label, or where units judge.
    """
    sums = unit_sums(study)
    if not (sums.signed and sums.purpose == ForLabels.name) or sums.evaluation is not None or study.labelled.names:
        return False
    # phi is of length 1 at most, over so many rows, and a label's variance is one over the classes at most.
    return pool * sums.queries * study.classes * noise_of_mean(study) ** 2 <= 1


def little_released(study: Study) -> str | None:
    """A warning if noise hides what records say, or hardly any votes can reach the threshold; else None."""
    return _LITTLE[type(study.votes)](study)


def few_answers(study: Study) -> str | None:
    """`seldom_answered` of a study: of the queries that its budgets afford, at most the number that may be asked."""
    mechanism = study.mechanism
    if mechanism.needed(second_round=False) is None:
        return None
    # More noise than is accounted for is the same as votes that are nearer to the threshold.
    factor = mechanism.label_sigma / noise_in(study)
    answered = _answered(mechanism, study.largest_weight, classes=study.classes, factor=factor)
    filters = study.budgets
    most = filters.spend(filters.cap) / (filters.ask + answered * filters.answer)
    queries = min(study.query_limit, floor(most.max() + _DUST))
    return _if_few(mechanism, study.largest_weight, answered, queries=queries) if queries else None


def seldom_answered(mechanism: Mechanism, *, votes: float, classes: int, queries: int) -> str | None:
    """A warning if less than one answer is to be expected even where all votes of every query agree; else None.

    A threshold above the number of votes is no fault: Papernot et al. 2018 ask for 300 of 250, and noise lifts the
    maximum above it. Nor is one that unanimous votes reach more often than not, however few queries there are.
    """
    if mechanism.needed(second_round=False) is None:
        return None
    return _if_few(mechanism, votes, _answered(mechanism, votes, classes=classes, factor=1.0), queries=queries)


def _answered(mechanism: Mechanism, votes: float, *, classes: int, factor: float) -> float:
    """The probability of an answer to unanimous votes; factor: the noise accounted for over the noise released."""
    needed = mechanism.needed(second_round=False) or 0.0
    unanimous = needed + (np.array([votes, 0.0]) - needed) * factor
    law = mechanism.outcome_log_law(unanimous, np.array([1, classes - 1]))
    return float(np.exp(law[:-1]).sum())


def _if_few(mechanism: Mechanism, votes: float, answered: float, *, queries: int) -> str | None:
    if answered >= 0.5 or answered * queries >= 1:
        return None
    return (
        f"the threshold is {mechanism.needed(second_round=False):g} votes, and {votes:g} can be cast: even a query on "
        f"which all agree is answered with a probability of {answered:.2g}, so less than one label is to be expected "
        f"of {queries:,} queries; a lower threshold or more noise helps"
    )


def thin_queries(study: Study) -> str | None:
    """A warning if noise hides what the queries of record votes hold; else None."""
    held, noise = unit_sums(study).held * float(study.weights.mean()), noise_in(study)
    if held >= noise:
        return None
    if isinstance(unit_sums(study).use, ForCounts):
        return (
            f"a cell of a column holds about {held:.3g} votes, and the noise on each is {noise:.3g}: expect most cells "
            "below their noise; larger budgets, more records, fewer columns or wider ranges help"
        )
    if unit_sums(study).signed:
        return (
            f"the sum is at most {unit_sums(study).expected * float(study.weights.mean()):.3g} votes long, and the "
            f"noise on each of its entries is {noise:.3g}: expect labels little better than a guess; larger budgets or "
            "more records help"
        )
    return (
        f"a query holds about {held:.3g} votes, and the noise on each of its sums is {noise:.3g}: expect labels little "
        "better than a guess; larger budgets, more records, or fewer queries help"
    )


_LITTLE: dict[type[Votes], Callable[[Study], str | None]] = {TeacherVotes: few_answers, UnitSums: thin_queries}
