"""A score is checked against counts by hand, exact binomial tails, and its own symmetries."""

import numpy as np
from scipy import stats

from party.teachers.scores import score_teacher, wilson

NAMES = ("no", "yes", "rare")


def test_both_intervals_cover_95_percent_of_exact_binomial_outcomes() -> None:
    """Enumerated over all outcomes of two classes, of 40 and 12 records that are right with chance 0.85 and 0.6."""
    sizes, chances = (40, 12), (0.85, 0.6)
    covered = accuracy = 0.0
    truth = sum(chances) / 2
    for first in range(sizes[0] + 1):
        low, high = wilson(first / sizes[0], sizes[0])
        accuracy += stats.binom.pmf(first, sizes[0], chances[0]) * (low <= chances[0] <= high)
        for second in range(sizes[1] + 1):
            labels = np.repeat([0, 1], sizes)
            right = np.concatenate([np.arange(sizes[0]) < first, np.arange(sizes[1]) < second])
            low, high = score_teacher(np.where(right, labels, 1 - labels), labels, NAMES).balanced_interval
            mass = np.prod(stats.binom.pmf((first, second), sizes, chances))
            covered += mass * (low <= truth <= high)
    assert 0.93 < accuracy < 0.98
    assert 0.93 < covered < 0.98
