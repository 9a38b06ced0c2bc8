"""Families of tests with exact p-values, and how their false alarms add up.

A family is one kind of question asked of many cells ("does any pair of queries in a batch have an outcome too often?").
Its p-value is the least of its cells times their number (Bonferroni), so whatever the cells depend on, a mechanism
with the stated law gives a family p <= a with probability at most a. Families, and then lines of an audit, are added up
in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy
from jaxtyping import Bool, Float64, Int64
from numpy import ndarray

# Cells of a family whose p-value is worked out exactly.
_EXACT = 256


@dataclass(frozen=True)
class Evidence:
    """What one family found. p: its p-value, in [0, 1], times the number of its cells already; cells: how many there
    were; trials: most observations of one cell; cell: the worst, in words.
    """

    family: str
    p: float
    cells: int
    trials: int
    cell: str

    def named(self, family: str) -> Evidence:
        """The same under another name."""
        return replace(self, family=family)

    def to_json(self) -> dict[str, object]:
        """The evidence as JSON values."""
        return {"test": self.family, "p": self.p, "cells": self.cells, "trials": self.trials, "cell": self.cell}


def two_sided(
    hits: Int64[ndarray, "*cells"], trials: Int64[ndarray, "*cells"], chance: Float64[ndarray, "*cells"]
) -> Float64[ndarray, "*cells"]:
    """Exact two-sided binomial p-values: twice the smaller tail, both of which contain `hits` (Clopper & Pearson 1934).

    hits of trials >= 1 each, chance in [0, 1].
    """
    hits, trials = hits.astype(float), trials.astype(float)
    above = np.where(hits > 0, scipy.special.betainc(np.maximum(hits, 1), trials - np.maximum(hits, 1) + 1, chance), 1)
    below_all = np.minimum(hits, trials - 1)
    below = np.where(hits < trials, scipy.special.betaincc(below_all + 1, trials - below_all, chance), 1)
    return np.minimum(1.0, 2 * np.minimum(above, below))


def binomial_evidence(
    family: str,
    hits: Int64[ndarray, "*cells"],
    trials: Int64[ndarray, "*cells"],
    chance: Float64[ndarray, "*cells"],
    *,
    words: tuple[str, ...],
    use: Bool[ndarray, "*cells"] | None = None,
) -> Evidence:
    """Whether some cell has too many or too few hits. use: the cells that are asked, all if None, chosen without
    looking at outcomes; words: one format string per axis of the cells, for the worst.

    Exact p-values are worked out for the cells of the largest Chernoff exponent only: one that is left out has a larger
    p-value but for a factor that the exponent ignores, and leaving it out can raise no false alarm.
    """
    cells = hits.size if use is None else int(use.sum())
    if cells == 0:
        return Evidence(family, 1.0, 0, 0, "")
    surprise = _chernoff_exponent(hits, trials, chance)
    ranked = (surprise if use is None else np.where(use, surprise, -1.0)).ravel()
    most = min(_EXACT, cells)
    chosen = np.argpartition(-ranked, most - 1)[:most]
    p = two_sided(hits.ravel()[chosen], trials.ravel()[chosen], chance.ravel()[chosen])
    worst = int(chosen[p.argmin()])
    at = np.unravel_index(worst, hits.shape)
    said = ", ".join(each.format(int(place)) for each, place in zip(words, at, strict=True))
    return Evidence(family, float(min(1.0, p.min() * cells)), cells, int(trials.max()), said)


def _chernoff_exponent(
    hits: Int64[ndarray, "*cells"], trials: Int64[ndarray, "*cells"], chance: Float64[ndarray, "*cells"]
) -> Float64[ndarray, "*cells"]:
    """Trials times the Kullback-Leibler divergence of the observed share from the stated one."""
    seen = hits / trials
    return trials * (scipy.special.rel_entr(seen, chance) + scipy.special.rel_entr(1 - seen, 1 - chance))
