"""run_batch: the whole protocol for one batch in one straight-line function.

It is documentation and a test oracle: it loops where the real code is vectorised, and must give the same labels and
ledgers.
"""

import math

from jaxtyping import Float64, Integer
from numpy import ndarray

from protocols.mechanisms import ConfidentGNMax
from protocols.study.study import Study
from protocols.votes import ABSTAIN


def run_batch(
    study: Study,
    votes: dict[str, Integer[ndarray, "teachers queries"]],
    spent: dict[str, int],
    *,
    threshold_noise: Float64[ndarray, " queries"],
    label_noise: Float64[ndarray, "queries classes"],
) -> tuple[list[int], dict[str, int]]:
    """Labels of one batch of Confident-GNMax in the label view, and the parties' ledgers after it.

    votes: of the parties that take part; spent: nano-units before; *_noise: standard normal draws.
    1. Everyone that takes part reserves the worst case. 2. Votes are added up, each with its party's weight.
    3. A query is answered if its plurality and noise reach the threshold, with the noisy argmax. 4. Reservations
    settle at the cost of what was asked and answered, rounded up once.
    """
    queries = len(threshold_noise)
    budgets = study.budgets
    for party in votes:
        seat = study.seats[party]
        worst = math.ceil((queries * budgets.ask[seat] + queries * budgets.answer[seat]) * 1e9 * (1 + 1e-12))
        assert spent[party] + worst <= budgets.cap[seat], "the schedule must have sized the batch"
    mechanism = study.mechanism
    assert isinstance(mechanism, ConfidentGNMax)
    bit_sigma = mechanism.bit_sigma("label")
    labels = []
    for query in range(queries):
        counts = [0.0] * study.classes
        for party, ballots in votes.items():
            for ballot in ballots[:, query]:
                if ballot != ABSTAIN:
                    counts[ballot] += study.roster[study.seats[party]].weight
        if max(counts) + bit_sigma * threshold_noise[query] < mechanism.threshold:
            labels.append(ABSTAIN)
            continue
        noisy = [counts[c] + mechanism.sigma * label_noise[query, c] for c in range(study.classes)]
        labels.append(noisy.index(max(noisy)))
    answered = sum(label != ABSTAIN for label in labels)
    after = dict(spent)
    for party in votes:
        seat = study.seats[party]
        after[party] += math.ceil((queries * budgets.ask[seat] + answered * budgets.answer[seat]) * 1e9 * (1 + 1e-12))
    return labels, after
