"""What batches of queries answered, held against the law of each answer and against their independence.

Every p-value of a count is exact: under the stated law the number of hits in independent trials is binomial. Only the
search for repetitions at any distance uses a normal approximation, of sums of many bounded products.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64
from numpy import ndarray

from simulations.audit.agreement.evidence import Evidence, binomial_evidence
from simulations.audit.agreement.repetitions import periodic_fault, repeated_at_a_distance

# Outcomes of a query in tests of pairs and triples: the likeliest but one of these many, and all others as one.
_MOST_OUTCOMES = 4
# Parts of a run, in order, in each of which the law must hold.
_PARTS = 10
# Distances, in batches, at which pairs of batches are compared.
_DISTANCES = (1, 2, 3)
# Ranges of the probability of a likeliest outcome.
_CERTAINTIES = ((0.9, 0.99), (0.99, 0.9999), (0.9999, 1.1))
# Queries that are searched for repetitions: their transform takes 32 bytes each.
_SEARCHED = 1_200_000
# A repetition of a whole batch is evidence only if honest batches repeat with less than this probability.
_UNLIKELY = 1e-12


@dataclass(frozen=True, eq=False)
class Answers:
    """Outcomes of many batches of the same queries.

    outcomes: in [0, outcomes); laws: of each query, rows that add up to 1; kinds: queries with the same votes have the
    same number, counted from 0.
    """

    outcomes: Int64[ndarray, "batches queries"]
    laws: Float64[ndarray, "queries outcomes"]
    kinds: Int64[ndarray, " queries"]


def answers_evidence(answers: Answers) -> list[Evidence]:
    """Every family of tests of these answers."""
    return [
        _single(answers),
        _upsets(answers),
        _by_place(answers),
        _by_part(answers),
        *_dependence(answers),
        *_totals(answers),
        _whole_batches(answers),
        *_anywhere(answers),
    ]


def _single(answers: Answers) -> Evidence:
    """Each outcome of each kind of query."""
    kinds = int(answers.kinds.max()) + 1
    laws = np.stack([answers.laws[answers.kinds == kind][0] for kind in range(kinds)])
    hits = _counts(answers.outcomes, answers.kinds, shape=laws.shape)
    trials = len(answers.outcomes) * np.bincount(answers.kinds, minlength=kinds)[:, None] * np.ones_like(hits)
    return binomial_evidence("single outcomes", hits, trials, laws, words=("votes {}", "outcome {}"))


def _upsets(answers: Answers) -> Evidence:
    """How often an all but certain outcome did not come, over all queries of about the same certainty together.

    The number is a sum of coins of different chances. Further than 1 from its mean, each of its tails is at most that
    of as many coins of the mean chance (Hoeffding 1956, Thm 4), so p-values are upper bounds.
    """
    certain = answers.laws.max(axis=1)
    missed = answers.outcomes != answers.laws.argmax(axis=1)
    asked = []
    for least, most in _CERTAINTIES:
        among = (certain >= least) & (certain < most)
        count = len(missed) * int(among.sum())
        expected = float((1 - certain[among]).sum()) * len(missed)
        seen = int(missed[:, among].sum())
        if count and abs(seen - expected) > 1:
            asked.append((seen, count, expected / count))
    if not asked:
        return Evidence("upsets", 1.0, len(_CERTAINTIES), missed.size, "")
    hits, trials, chance = (np.array(each) for each in zip(*asked, strict=True))
    found = binomial_evidence("upsets", hits, trials, chance, words=("certainty {}",))
    return replace(found, p=min(1.0, found.p * len(_CERTAINTIES) / len(hits)), cells=len(_CERTAINTIES))


def _by_place(answers: Answers) -> Evidence:
    """Each outcome of each query of a batch."""
    places = np.arange(answers.outcomes.shape[1])
    hits = _counts(answers.outcomes, places, shape=answers.laws.shape)
    trials = np.full_like(hits, len(answers.outcomes))
    return binomial_evidence("by place in the batch", hits, trials, answers.laws, words=("query {}", "outcome {}"))


def _by_part(answers: Answers) -> Evidence:
    """Each outcome of each kind in each part of the run; the first batches are a part too."""
    kinds = int(answers.kinds.max()) + 1
    laws = np.stack([answers.laws[answers.kinds == kind][0] for kind in range(kinds)])
    batches = len(answers.outcomes)
    parts = [answers.outcomes[: max(1, batches // 100)], *np.array_split(answers.outcomes, min(_PARTS, batches))]
    per_kind = np.bincount(answers.kinds, minlength=kinds)[:, None]
    hits = np.stack([_counts(part, answers.kinds, shape=laws.shape) for part in parts])
    trials = np.stack([len(part) * per_kind + np.zeros_like(hits[0]) for part in parts])
    chance = np.broadcast_to(laws, hits.shape)
    return binomial_evidence("by part of the run", hits, trials, chance, words=("part {}", "votes {}", "outcome {}"))


def _counts(
    outcomes: Int64[ndarray, "batches queries"], groups: Int64[ndarray, " queries"], *, shape: tuple[int, ...]
) -> Int64[ndarray, "groups outcomes"]:
    return np.bincount((groups * shape[1] + outcomes).ravel(), minlength=shape[0] * shape[1]).reshape(shape)


def _dependence(answers: Answers) -> list[Evidence]:
    """Pairs of queries within a batch and across batches, and three queries in a row, by their few likeliest
    outcomes.
    """
    outcomes, laws = _coarse(answers)
    batches, queries = outcomes.shape
    each = laws.shape[1]
    shown = np.zeros((batches, queries, each), dtype=np.float32)
    np.put_along_axis(shown, outcomes[:, :, None], 1.0, axis=2)
    flat: Float32[ndarray, "batches cells"] = shown.reshape(batches, queries * each)
    chance = laws.ravel()[:, None] * laws.ravel()
    place = np.repeat(np.arange(queries), each)
    words = (f"query and outcome {{}} of {each}", f"with {{}} of {each}")
    found = [_pairs("pairs in a batch", flat, flat, chance, words=words, use=place[:, None] < place)]
    for distance in _DISTANCES:
        # Pairs of batches that share none, so that all are independent.
        first = np.flatnonzero(np.arange(max(0, batches - distance)) // distance % 2 == 0)
        if len(first):
            family = f"pairs of batches, {distance} apart"
            found.append(_pairs(family, flat[first], flat[first + distance], chance, words=words, use=None))
    if queries > 2:
        triple = laws[:-2, :, None, None] * laws[1:-1, None, :, None] * laws[2:, None, None, :]
        code = (outcomes[:, :-2] * each + outcomes[:, 1:-1]) * each + outcomes[:, 2:]
        hits = _counts(code, np.arange(queries - 2), shape=(queries - 2, each**3)).reshape(triple.shape)
        said = ("query {}", "outcome {}", "then {}", "then {}")
        found.append(binomial_evidence("three in a row", hits, np.full_like(hits, batches), triple, words=said))
    return found


def _pairs(
    family: str,
    first: Float32[ndarray, "batches cells"],
    second: Float32[ndarray, "batches cells"],
    chance: Float64[ndarray, "cells cells"],
    *,
    words: tuple[str, ...],
    use: Bool[ndarray, "cells cells"] | None,
) -> Evidence:
    # Sums of at most 2^24 ones are exact in float32.
    hits = np.rint(first.T @ second).astype(np.int64)
    return binomial_evidence(family, hits, np.full_like(hits, len(first)), chance, words=words, use=use)


def _coarse(answers: Answers) -> tuple[Int64[ndarray, "batches queries"], Float64[ndarray, "queries few"]]:
    """Outcomes by rank of likelihood under the law, the last for all of the less likely."""
    order = np.argsort(-answers.laws, axis=1, kind="stable")
    few = min(_MOST_OUTCOMES, answers.laws.shape[1])
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.minimum(np.arange(order.shape[1]), few - 1)[None], axis=1)
    sorted_laws = np.take_along_axis(answers.laws, order, axis=1)
    laws = np.concatenate([sorted_laws[:, : few - 1], sorted_laws[:, few - 1 :].sum(axis=1, keepdims=True)], axis=1)
    return rank[np.arange(rank.shape[0]), answers.outcomes], laws


def _totals(answers: Answers) -> list[Evidence]:
    """How many queries of a batch had their likeliest outcome; and whether two batches in a row had many.

    The law of the number is that of a sum of independent coins (Poisson binomial), convolved exactly.
    """
    top = answers.laws.argmax(axis=1)
    law = np.ones(1)
    for chance in answers.laws.max(axis=1).tolist():
        law = np.convolve(law, [1 - chance, chance])
    totals = (answers.outcomes == top).sum(axis=1)
    reached = np.clip(np.cumsum(law)[:-1], 0, 1)  # P[total <= t] for all t but the largest
    hits = np.searchsorted(np.sort(totals), np.arange(len(reached)), side="right")
    trials = np.full_like(hits, len(totals))
    found = [binomial_evidence("batch totals", hits, trials, reached, words=("at most {} likeliest outcomes",))]
    pairs = len(totals) // 2
    if pairs:
        middle = int(np.searchsorted(np.cumsum(law), 0.5))
        few = totals <= middle
        both = np.array([(few[: 2 * pairs : 2] & few[1 : 2 * pairs : 2]).sum()])
        chance = np.array([reached[min(middle, len(reached) - 1)] ** 2])
        found.append(binomial_evidence("totals of two batches", both, np.array([pairs]), chance, words=("",)))
    return found


def _whole_batches(answers: Answers) -> Evidence:
    """Two batches anywhere in the run whose outcomes are all the same, where chance hardly ever makes one."""
    batches = len(answers.outcomes)
    log_same = float(np.log((answers.laws**2).sum(axis=1)).sum())
    p_any = batches * (batches - 1) / 2 * np.exp(log_same)
    if p_any > _UNLIKELY:
        return Evidence("identical batches", 1.0, 0, batches, "")
    rows = np.ascontiguousarray(answers.outcomes.astype(np.int16)).view(f"V{2 * answers.outcomes.shape[1]}").ravel()
    repeated = batches - len(np.unique(rows))
    return Evidence("identical batches", float(p_any) if repeated else 1.0, 1, batches, f"{repeated} repeated")


def _anywhere(answers: Answers) -> list[Evidence]:
    """Whether having the likeliest outcome repeats at some distance in the whole run, or has a period."""
    chance = answers.laws.max(axis=1)
    hit = answers.outcomes == answers.laws.argmax(axis=1)
    # The standardised score of a nearly certain outcome is too far from normal to say anything here.
    spread = np.where((chance > 0.1) & (chance < 0.9), np.sqrt(chance * (1 - chance)), np.inf)
    scores = ((hit - chance) / spread).ravel()[:_SEARCHED]
    return [
        repeated_at_a_distance(scores, live=float(np.isfinite(spread).mean())),
        periodic_fault(scores, period=len(chance)),
    ]
