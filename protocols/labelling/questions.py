"""Which queries a batch asks: the next of the pool, or those that somebody chooses by the labels released so far.

What is chosen by released labels and public records is post-processing (Dwork & Roth 2014, Proposition 2.1), and costs
nothing. But the queries that follow are chosen adaptively, and budgets must hold for that. Those of every accountant
that charges do: it takes the worst case of each query, whichever it is, under a filter (Renyi: Feldman & Zrnic 2021;
Gaussian DP: Smith & Thakurta 2022), or composes a planned number of such worst cases, of which the next may depend on
all outcomes before (docs/explanation/exact-composition.md).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Int64
from numpy import ndarray

from protocols.errors import InvalidInput
from protocols.study.chosen import GIVEN, UNCERTAINTY
from protocols.study.study import Study

# choose(labels of the pool so far, positions that may be asked, how many) -> so many of these positions. labels: class
# ids, ABSTAIN, NOT_ASKED. The same arguments must give the same positions.
Choose = Callable[[Int64[ndarray, " queries"], Int64[ndarray, " left"], int], Int64[ndarray, " chosen"]]


def check_choose(study: Study, choose: Choose | None) -> None:
    """Raises InvalidInput unless somebody chooses exactly where the study has its questions chosen."""
    if (study.votes.questions == GIVEN) == (choose is None):
        return
    if choose is None:
        raise InvalidInput(
            f"questions is {study.votes.questions!r}, and nothing chooses them between batches; allowed: where the "
            "pool's records are at hand, for a student of the labels so far"
        )
    raise InvalidInput(f"questions is {study.votes.questions!r}, and something chooses them; allowed: {UNCERTAINTY!r}")


def next_questions(
    choose: Choose | None, labels: Int64[ndarray, " queries"], asked: Bool[ndarray, " queries"], size: int
) -> Int64[ndarray, " size"]:
    """The positions in the pool of the next batch, ascending.

    asked: queries that were asked, also in a batch that was given up; size: at most as many as are left. choose: None
    for the next of the pool. Raises InvalidInput for a choice that is no `size` positions of those left.
    """
    left = np.flatnonzero(~asked)
    if choose is None:
        return left[:size]
    chosen = np.sort(np.asarray(choose(labels.copy(), left, size), dtype=np.int64))
    if len(chosen) != size or len(np.unique(chosen)) != size or not np.isin(chosen, left).all():
        raise InvalidInput(
            f"{len(chosen)} questions were chosen; allowed: {size} different ones that were not asked yet"
        )
    return chosen
