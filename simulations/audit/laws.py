"""Whether what is released has the law that is stated: families of tests with exact p-values, and how these add up.

A family is one kind of question asked of many cells ("does any pair of queries in a batch have an outcome too often?").
Its p-value is the least of its cells times their number (Bonferroni), so whatever the cells depend on, a mechanism
with the stated law gives a family p <= a with probability at most a. The false alarms of a line are shared out evenly
among its families, so a line of the stated law fails with probability at most its `alpha`.

Answers are held against the law of each and against their independence. Every p-value of a count is exact: under the
stated law the number of hits in independent trials is binomial. Noise that is seen is first mapped to [0, 1] by the
stated distribution function: then values are uniform and independent whatever the law. The distribution is compared by
the Kolmogorov-Smirnov distance with Massart's bound (1990: P[D > e] <= 2 exp(-2 n e^2)), tails and pairs of halves and
quarters by exact binomials. Of whole numbers the low bits are compared, too.

Noise that is drawn from a short period, or used again in a later batch, repeats itself somewhere: the autocorrelation
of a whole run, by the fast Fourier transform, has every lag at once. With independent scores of mean 0 and variance 1
each sum of products at a lag is a sum of uncorrelated terms, of which only the normal approximation is known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy
from jaxtyping import Bool, Float32, Float64, Int64
from numpy import ndarray

from protocols.crypto.randomness import simulation_rng

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


@dataclass(frozen=True)
class Agreement:
    """All evidence of one line, the strongest first, and the probability with which it may fail by chance."""

    evidence: tuple[Evidence, ...]
    alpha: float

    @property
    def p(self) -> float:
        """The p-value of the line: the least of its families', times their number."""
        return min(1.0, self.evidence[0].p * self.families)

    @property
    def families(self) -> int:
        """How many families of tests the line has."""
        return sum(each.cells > 0 for each in self.evidence)

    @property
    def failed(self) -> bool:
        """Whether what was released does not have the stated law."""
        return self.p <= self.alpha

    @property
    def worst(self) -> Evidence:
        """The strongest evidence against the stated law."""
        return self.evidence[0]

    def to_json(self) -> dict[str, object]:
        """The agreement as JSON values: its p-value, its level, and the strongest evidence."""
        return {
            "verdict": "FAILED" if self.failed else "no difference found",
            "p": self.p,
            "alpha": self.alpha,
            "tests": sum(each.cells for each in self.evidence),
            "strongest": [each.to_json() for each in self.evidence[:5]],
        }


def agreement(evidence: list[Evidence], *, alpha: float) -> Agreement:
    """The line's agreement."""
    return Agreement(tuple(sorted(evidence, key=lambda each: each.p)), alpha)


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


# Lags of fewer products than this are left out: the normal approximation needs many.
_LEAST_PRODUCTS = 3000
# Taken off the significance, for the error of the normal approximation far in the tail.
_MARGIN = 10.0


def repeated_at_a_distance(scores: Float64[ndarray, " run"], *, live: float = 1.0) -> Evidence:
    """Evidence that scores at some lag are correlated. scores: independent, mean 0, variance 1 or, where nothing is
    scored, 0; live: the share that is scored.

    Each p-value is a normal tail, times 10 for the approximation; scores should be bounded by about 3.
    """
    size = len(scores)
    lags = np.arange(1, size)
    products = (size - lags) * live * live
    kept = products >= _LEAST_PRODUCTS
    family = "repetition at any distance"
    if not kept.any():
        return Evidence(family, 1.0, 0, 0, "")
    length = scipy.fft.next_fast_len(2 * size, real=True)
    spectrum = scipy.fft.rfft(scores, length)
    sums = scipy.fft.irfft((spectrum * spectrum.conj()).real, length)[1:size]
    scored = (scores != 0).astype(np.float64)
    if live < 1:
        spectrum = scipy.fft.rfft(scored, length)
        products = np.rint(scipy.fft.irfft((spectrum * spectrum.conj()).real, length)[1:size])
        kept &= products >= _LEAST_PRODUCTS
        if not kept.any():
            return Evidence(family, 1.0, 0, 0, "")
    z = np.abs(sums[kept]) / np.sqrt(products[kept])
    worst = int(z.argmax())
    cells = int(kept.sum())
    p = min(1.0, 2 * float(scipy.special.ndtr(-z[worst])) * cells * _MARGIN)
    return Evidence(family, p, cells, size, f"lag {int(lags[kept][worst])}")


def periodic_fault(scores: Float64[ndarray, " run"], *, period: int) -> Evidence:
    """Evidence that the mean of scores goes up and down with some period: a query in so many has another law.

    scores: independent, mean 0, of variances that recur every `period` scores, bounded by about 3. Under the stated law
    a squared Fourier coefficient over the sum of variances is exponential, but where twice its frequency is one of the
    variances' own; those are left out, as places in a batch are tested by themselves. p-values are times 10 for the
    normal approximation.
    """
    family = "fault of any period"
    size = len(scores) - len(scores) % period
    scores = scores[:size]
    variance = float((scores**2).sum())
    if size < _LEAST_PRODUCTS or variance < _LEAST_PRODUCTS:
        return Evidence(family, 1.0, 0, 0, "")
    frequency = np.arange(1, (size + 1) // 2)
    power = np.abs(scipy.fft.rfft(scores)[frequency]) ** 2 / variance
    kept = 2 * frequency * period % size != 0
    worst = int(np.where(kept, power, -1.0).argmax())
    cells = int(kept.sum())
    p = min(1.0, float(np.exp(-power[worst])) * cells * _MARGIN)
    return Evidence(family, p, cells, size, f"period {size / int(frequency[worst]):.1f}")


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
    batches, places = len(answers.outcomes), np.arange(answers.outcomes.shape[1])
    # The first batches are a part too.
    parts = [answers.outcomes[: max(1, batches // 100)], *np.array_split(answers.outcomes, min(_PARTS, batches))]
    return [
        _outcomes("single outcomes", answers, answers.kinds, [answers.outcomes]),
        _upsets(answers),
        _outcomes("by place in the batch", answers, places, [answers.outcomes]),
        _outcomes("by part of the run", answers, answers.kinds, parts),
        *_dependence(answers),
        *_totals(answers),
        _whole_batches(answers),
        *_anywhere(answers),
    ]


def _outcomes(
    family: str, answers: Answers, groups: Int64[ndarray, " queries"], parts: list[Int64[ndarray, "some queries"]]
) -> Evidence:
    """Each outcome of each group of queries of one law, in each part of the run."""
    laws = np.stack([answers.laws[groups == group][0] for group in range(int(groups.max()) + 1)])
    hits = np.stack([_counts(part, groups, shape=laws.shape) for part in parts])
    each = np.bincount(groups)[:, None] + np.zeros_like(hits[0])
    trials = np.stack([len(part) * each for part in parts])
    words = ("part {}", "query or votes {}", "outcome {}")
    return binomial_evidence(family, hits, trials, np.broadcast_to(laws, hits.shape), words=words)


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


# Rounding of noisy counts and of the grid may move a distribution function by this much, beside half a lattice step.
ROUNDING = 1e-7
# What rounding of float64 can do to a distribution function of whole numbers.
_WHOLE_ROUNDING = 1e-9
_TAILS = np.array([0.1, 0.02, 5e-3, 1e-3, 2e-4, 2e-5])
# Half-widths, in probability, around the centre of the law: a mixture with draws without noise is heavy there.
_CENTRES = np.array([1e-2, 1e-3, 2e-4, 5e-5])
# What low bits are looked at, by exact binomials and by a chi-square of the last, times this for its approximation.
_MODULI, _CHI_SQUARE_MARGIN = (2, 4, 8), 10.0
# Values that are searched for repetitions: their transform takes 16 bytes each.
_VALUES_SEARCHED = 1_000_000


def seen_noise_evidence(
    uniform: Float64[ndarray, "batches queries classes"], *, rounding: float = ROUNDING
) -> list[Evidence]:
    """Every family of tests of values that should be uniform and independent, but for a rounding of this size."""
    batches, queries, classes = uniform.shape
    flat = uniform.reshape(batches, queries * classes)
    found = [
        _distance("distribution of the noise", [uniform.ravel()], rounding),
        _distance("distribution by class", [uniform[:, :, each].ravel() for each in range(classes)], rounding),
        _distance("distribution by cell", list(flat.T), rounding),
        _tails(flat, rounding),
        _centre(flat, rounding),
    ]
    sides = flat > 0.5
    sizes = np.abs(flat - 0.5) > 0.25
    for what, halves in (("signs", sides), ("sizes", sizes)):
        found += _half_pairs(what, halves, rounding)
    scores = ((uniform - 0.5) * np.sqrt(12)).ravel()[:_VALUES_SEARCHED]
    # |u - 1/2| is uniform on [0, 1/2].
    spread = (np.abs(uniform - 0.5) - 0.25).ravel()[:_VALUES_SEARCHED] * np.sqrt(48)
    return [*found, repeated_at_a_distance(scores), periodic_fault(spread, period=queries * classes)]


def whole_noise_evidence(
    values: Int64[ndarray, "releases queries classes"],
    below: Float64[ndarray, "releases queries classes"],
    upto: Float64[ndarray, "releases queries classes"],
    law: Float64[ndarray, " values"] | None,
    *,
    seed: int,
) -> list[Evidence]:
    """Every family of tests of noise in whole numbers, spread evenly between its distribution function's steps.

    below, upto: P[noise < value] and P[noise <= value]; law: as low_bits_evidence takes it.
    """
    uniform = below + simulation_rng(seed, "audit spread").random(values.shape) * (upto - below)
    found = seen_noise_evidence(uniform, rounding=_WHOLE_ROUNDING)
    return found + low_bits_evidence(values.reshape(len(values), -1), law)


def low_bits_evidence(
    values: Int64[ndarray, "releases cells"], law: Float64[ndarray, " values"] | None
) -> list[Evidence]:
    """Whether whole numbers leave the stated remainders modulo 2, 4 and 8: noise of even numbers tells parities.

    values: of the noise; law: its probabilities on -reach, ..., reach; None where every remainder is equally likely.
    Remainders of all cells together and of each cell are exact binomials; the chi-square of the remainders modulo 8 of
    all cells has its asymptotic tail, times 10.
    """
    masses = np.ones(_MODULI[-1]) / _MODULI[-1] if law is None else law
    reach = 0 if law is None else len(law) // 2
    hits, chances = [], []
    for modulus in _MODULI:
        chance = np.bincount((np.arange(len(masses)) - reach) % modulus, masses, modulus)
        seen = np.stack([(values % modulus == each).sum(axis=0) for each in range(modulus)], axis=1)
        hits.append(np.concatenate([seen, seen.sum(axis=0, keepdims=True)]))
        chances.append(np.broadcast_to(np.clip(chance / chance.sum(), 0.0, 1.0), hits[-1].shape))
    count = np.concatenate([np.full((values.shape[1], 1), len(values)), [[values.size]]])
    all_hits = np.concatenate(hits, axis=1)
    said = ("cell {}", "remainder {} of those of 2, 4 and 8")
    trials = np.broadcast_to(count, all_hits.shape)
    expected = values.size * chances[-1][-1]
    square = float(((hits[-1][-1] - expected) ** 2 / expected).sum())
    p = min(1.0, _CHI_SQUARE_MARGIN * float(scipy.special.chdtrc(_MODULI[-1] - 1, square)))
    return [
        binomial_evidence("low bits", all_hits, trials, np.concatenate(chances, axis=1), words=said),
        Evidence("low bits, chi-square", p, 1, values.size, ""),
    ]


def _distance(family: str, samples: list[Float64[ndarray, " values"]], rounding: float) -> Evidence:
    """The largest Kolmogorov-Smirnov distance of these samples from uniform, by Massart's bound."""
    p, size, worst = 2.0, 0, 0
    for at, sample in enumerate(samples):
        ordered, count = np.sort(sample), len(sample)
        steps = np.arange(count + 1) / count
        distance = max(float((steps[1:] - ordered).max()), float((ordered - steps[:-1]).max())) - rounding
        bound = 2 * float(np.exp(-2 * count * max(distance, 0.0) ** 2))
        if bound < p:
            p, size, worst = bound, count, at
    return Evidence(family, min(1.0, p * len(samples)), len(samples), size, f"sample {worst}")


def _tails(flat: Float64[ndarray, "batches cells"], rounding: float) -> Evidence:
    """Values beyond quantiles on either side, where rounding could move a value across none or few."""
    values = np.sort(flat.ravel())
    hits = np.stack(
        [np.searchsorted(values, _TAILS, side="right"), len(values) - np.searchsorted(values, 1 - _TAILS, side="left")]
    )
    # A quantile is moved towards the observed share by what rounding can do.
    seen = hits / len(values)
    chance = np.clip(seen, _TAILS - rounding, _TAILS + rounding)
    trials = np.full_like(hits, len(values))
    return binomial_evidence("tails", hits, trials, chance, words=("side {}", "quantile {}"))


def _centre(flat: Float64[ndarray, "batches cells"], rounding: float) -> Evidence:
    """Values next to the middle of the law, where draws without noise lie."""
    near = np.sort(np.abs(flat.ravel() - 0.5))
    hits = np.searchsorted(near, _CENTRES, side="right")
    chance = np.clip(hits / len(near), 2 * _CENTRES - 2 * rounding, 2 * _CENTRES + 2 * rounding)
    return binomial_evidence("centre", hits, np.full_like(hits, len(near)), chance, words=("width {}",))


def _half_pairs(what: str, halves: Bool[ndarray, "batches cells"], rounding: float) -> list[Evidence]:
    """Whether two cells are on the same side too often: in a batch, and in batches that share none."""
    batches = len(halves)
    signs: Float32[ndarray, "batches cells"] = np.where(halves, np.float32(1), np.float32(-1))
    place = np.arange(signs.shape[1])
    found = [_agreement(f"{what} in a batch", signs, signs, rounding, place[:, None] < place)]
    for distance in _DISTANCES:
        first = np.flatnonzero(np.arange(max(0, batches - distance)) // distance % 2 == 0)
        if len(first):
            found.append(
                _agreement(f"{what}, {distance} batches apart", signs[first], signs[first + distance], rounding, None)
            )
    return found


def _agreement(
    family: str,
    first: Float32[ndarray, "batches cells"],
    second: Float32[ndarray, "batches cells"],
    rounding: float,
    use: Bool[ndarray, "cells cells"] | None,
) -> Evidence:
    # Sums of at most 2^24 signs are exact in float32.
    same = np.rint((first.T @ second + len(first)) / 2).astype(np.int64)
    trials, words = np.full_like(same, len(first)), ("cell {}", "cell {}")
    chance = np.clip(same / len(first), 0.5 - 2 * rounding, 0.5 + 2 * rounding)
    return binomial_evidence(family, same, trials, chance, words=words, use=use)
