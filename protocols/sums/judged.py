"""How good a model is, from the noisy sum of what judges say of it (judging.py): figures with 95 % intervals.

Every interval counts the noise and the sampling of the units. Those of ratios and of the area under the ROC curve are
the values that a test does not reject (Fieller 1954, with the binomial variance at the tested value, as Wilson 1927): A
- t B has the mean 0 at the true t, whatever the noise in B. So an interval is never outside its range, and all of the
range where noise hides the denominator. Sampling variances are upper bounds: of a mean of values in [0, 1] t(1 - t)/n,
of an area t(1 - t)/min(n, m) (van Dantzig 1951).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar  # Any: plain values for JSON

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from protocols.sums.judging import Evaluation, scales_of, scored

_Z = 1.959964
_GRID = np.linspace(0.0, 1.0, 1001)
# Of a group too small to say anything: the widest interval of the accuracy that is shown.
_WIDEST = 0.3
# How far probabilities of a model are from the truth before anything is known of it, as a standard deviation.
_PRIOR = 0.1

_T = TypeVar("_T")
_Table = Float64[ndarray, "rows columns"]
# Of the pool's probabilities in one bin, how many are compared.
_COMPARED = 200


@dataclass(frozen=True, eq=False)
class PoolBins:
    """What the model's probabilities on the public pool tell of each bin, rounded as files have it.

    means: their mean, the middle of a bin without any; ahead: how often, of one unit of a class and one of another, the
    first would have the larger probability if probabilities were right; 0.5 where all are the same.
    """

    means: Float64[ndarray, " bins"]
    ahead: Float64[ndarray, " bins"]

    @staticmethod
    def of(evaluation: Evaluation, probabilities: Float64[ndarray, "pool classes"]) -> PoolBins:
        """Of all scored classes together."""
        shown = probabilities[:, scored(probabilities.shape[1])].ravel()
        at = np.searchsorted(evaluation.edges, shown, side="right")
        ends = np.array([0.0, *evaluation.edges, 1.0])
        means, ahead = (ends[1:] + ends[:-1]) / 2, np.full(evaluation.bins, 0.5)
        for each in np.unique(at).tolist():
            held = np.sort(shown[at == each])
            few = np.clip(held[np.linspace(0, len(held) - 1, _COMPARED).astype(np.int64)], 1e-6, 1 - 1e-6)
            logit = np.log(few / (1 - few))
            means[each] = held.mean()
            ahead[each] = (1.0 / (1.0 + np.exp(-np.abs(logit[:, None] - logit[None])))).mean()
        return PoolBins(np.round(means, 4), np.round(ahead, 4))


@dataclass(frozen=True)
class _Figure:
    """An estimate with its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def plain(self) -> list[float]:
        """Value, low and high for JSON: four digits, so that machines agree."""
        return [round(each, 4) for each in (self.value, self.low, self.high)]


@dataclass(frozen=True, eq=False)
class Judged:
    """What judges said, in numbers of units.

    decisions: noisy counts of the model's decision (rows) and class (columns); scores: for each scored class, of its
    bins and whether a unit is of it; noise: the standard deviation in an entry of each of the two; heaviest: the
    largest weight of a unit over the mean's; pool: what the public pool tells of the bins.
    """

    evaluation: Evaluation
    decisions: _Table = field(repr=False)
    scores: Float64[ndarray, "scored bins 2"] = field(repr=False)
    noise: tuple[float, float]
    heaviest: float
    pool: PoolBins = field(repr=False)

    @staticmethod
    def of(
        evaluation: Evaluation,
        sums: _Table,
        *,
        noise: float,
        signed: bool,
        heaviest: float,
        pool: PoolBins,
        told: int = 1,
    ) -> Judged:
        """sums: of judges, in votes; noise: the standard deviation in each entry, in votes; signed: whether votes are;
        told: how many findings they are judged beside, itself among them."""
        classes = sums.shape[1]
        decision, score = scales_of(signed=signed, classes=classes, told=told)
        scores = sums[classes:].reshape(len(scored(classes)), evaluation.bins, classes)[:, :, :2]
        spread = (noise / decision, noise / score)
        return Judged(evaluation, sums[:classes] / decision, scores / score, spread, heaviest, pool)

    def figures(self) -> dict[str, Any]:
        """All figures as plain values for JSON."""
        classes = len(self.decisions)
        return {
            "judges": self.judges.plain,
            "accuracy": self.accuracy.plain,
            "brier": self.brier.plain,
            "calibration_error": self.calibration_error.plain,
            "by_class": [
                {
                    "sensitivity": self.sensitivity(each).plain,
                    "specificity": self.specificity(each).plain,
                    **({"auroc": self.auroc(each).plain} if each in scored(classes) else {}),
                }
                for each in range(classes)
            ],
            "calibration": [
                {"from": low, "to": high, "said": round(float(said), 4), "seen": seen.plain}
                for low, high, said, seen in zip(
                    [0.0, *self.evaluation.edges.tolist()],
                    [*self.evaluation.edges.tolist(), 1.0],
                    self.pool.means,
                    self.seen(),
                    strict=True,
                )
            ],
        }

    def says_something(self) -> bool:
        """Whether there are enough judges for the noise."""
        return self.accuracy.high - self.accuracy.low <= _WIDEST

    @property
    def judges(self) -> _Figure:
        """How many units judged, as far as the noise lets it be known; not their exact number, which is never told."""
        total, spread = float(self.decisions.sum()), self.noise[0] * np.sqrt(self.decisions.size)
        return _Figure(max(total, 0.0), max(total - _Z * spread, 0.0), max(total + _Z * spread, 0.0))

    @property
    def accuracy(self) -> _Figure:
        """The share of units for which the model's decision is right."""
        return self._ratio(np.eye(len(self.decisions)), np.ones_like(self.decisions))

    def sensitivity(self, which: int) -> _Figure:
        """Of the units of a class, the share that is found."""
        of = np.zeros_like(self.decisions)
        of[:, which] = 1.0
        found = np.zeros_like(of)
        found[which, which] = 1.0
        return self._ratio(found, of)

    def specificity(self, which: int) -> _Figure:
        """Of the units of other classes, the share that is not taken for this one."""
        of = np.ones_like(self.decisions)
        of[:, which] = 0.0
        right = of.copy()
        right[which] = 0.0
        return self._ratio(right, of)

    def auroc(self, which: int) -> _Figure:
        """The area under the ROC curve of a scored class against the others.

        Of two units in one bin the right one is taken to be ahead as often as with a calibrated model whose
        probabilities are spread as the pool's. Nothing tells whether the model is one, so the interval is from a model
        that guesses inside of bins to one that errs in none.
        """
        value, *ends = (self._area(which, inside) for inside in (self.pool.ahead, 0.5, 1.0))
        low, high = (min(each.low for each in ends), max(each.high for each in ends))
        return _Figure(float(np.clip(value.value, low, high)), low, high)

    def _area(self, which: int, inside: Float64[ndarray, " bins"] | float) -> _Figure:
        """The same, if of two units in one bin the right one is ahead so often."""
        no, yes = self.scores[scored(len(self.decisions)).index(which)].T
        ahead = np.tril(np.ones((len(yes), len(yes))), -1) + np.eye(len(yes)) * inside
        noise = self.noise[1]
        shifted = ahead[None] - _GRID[:, None, None]
        by_yes, by_no = shifted @ no, np.einsum("gij,i->gj", shifted, yes)
        spread = noise * np.sqrt(len(yes))
        n, m = (max(float(each.sum()), spread, 1.0) for each in (no, yes))
        variance = noise**2 * ((by_yes**2).sum(axis=1) + (by_no**2).sum(axis=1))
        variance += self.heaviest * _GRID * (1 - _GRID) * (n * m) ** 2 / min(n, m)
        return _inverted(by_yes @ yes, variance)

    @property
    def brier(self) -> _Figure:
        """The squared error of the probabilities, summed over all classes, in [0, 2]; each is taken as the mean of its
        bin on the pool."""
        squares = np.stack([self.pool.means**2, (1 - self.pool.means) ** 2], axis=1)
        mean, classes = self._mean(np.broadcast_to(squares, self.scores.shape)), len(self.decisions)
        return _Figure(*(min(classes * each, 2.0) for each in (mean.value, mean.low, mean.high)))

    def seen(self) -> list[_Figure]:
        """Of the probabilities in each bin, how often the class was right; over all scored classes."""
        pooled = self.scores.sum(axis=0)
        noise = self.noise[1] * np.sqrt(len(self.scores))
        found = []
        for no, yes in pooled.tolist():
            held = max(no + yes, noise, 1.0)
            value = yes - _GRID * (no + yes)
            variance = noise**2 * ((1 - _GRID) ** 2 + _GRID**2) + self.heaviest * held * _GRID * (1 - _GRID)
            found.append(_inverted(value, variance))
        return found

    @property
    def calibration_error(self) -> _Figure:
        """The mean over units of |how often a class was right - what the model said|, bin by bin.

        Noise makes it larger in the mean by at most the noise's own mean size, which is taken off half; the ends are 95
        % by concentration: the sum of sizes is a 1-Lipschitz function of the errors (Boucheron et al. 2013, Thm 5.6).
        """
        pooled, noise = self.scores.sum(axis=0), self.noise[1] * np.sqrt(len(self.scores))
        (no, yes), means = pooled.T, self.pool.means
        gap = (1 - means) * yes - means * no
        held = (1 - means) ** 2 * np.maximum(yes, 0) + means**2 * np.maximum(no, 0)
        spread = np.sqrt(noise**2 * ((1 - means) ** 2 + means**2) + self.heaviest * (held + noise / 2))
        bias, reach = np.sqrt(2 / np.pi) * spread.sum(), _Z * np.sqrt((spread**2).sum())
        size, total = np.abs(gap).sum(), pooled.sum()
        sure = _Z * noise * np.sqrt(pooled.size)
        if total <= sure:
            return _Figure(float(np.clip(size / max(total, 1.0), 0, 1)), 0.0, 1.0)
        low, high = (size - bias - reach) / (total + sure), (size + reach) / (total - sure)
        low, high = (float(np.clip(each, 0.0, 1.0)) for each in (low, high))
        return _Figure(float(np.clip((size - bias / 2) / total, low, high)), low, high)

    def calibrated(self) -> Float64[ndarray, " bins"]:
        """What a probability of each bin means: how often the class was seen, never falling from bin to bin, and near
        what the model says where judges say little."""
        import scipy.optimize

        seen = self.seen()
        spread = np.array([max(each.high - each.low, 1e-3) / (2 * _Z) for each in seen])
        weight = _PRIOR**2 / (_PRIOR**2 + spread**2)
        middle = np.array([each.value for each in seen])
        mixed = weight * middle + (1 - weight) * self.pool.means
        fitted = scipy.optimize.isotonic_regression(mixed, weights=1.0 / (spread**2 + _PRIOR**2))
        return np.round(np.clip(fitted.x, 0.0, 1.0), 4)

    def _ratio(self, a: _Table, b: _Table) -> _Figure:
        """The share a of b, both 0 or 1 for each of the decisions."""
        tables = self.decisions
        right, of = float((a * tables).sum()), float((b * tables).sum())
        held = max(of, self.noise[0] * np.sqrt(b.sum()), 1.0)
        noise = ((a[None] - _GRID[:, None, None] * b[None]) ** 2).sum(axis=(1, 2))
        variance = self.noise[0] ** 2 * noise + self.heaviest * held * _GRID * (1 - _GRID)
        return _inverted(right - _GRID * of, variance)

    def _mean(self, a: Float64[ndarray, "scored bins 2"]) -> _Figure:
        """The mean of values in [0, 1] over all units and scored classes."""
        value, total = float((a * self.scores).sum()), float(self.scores.sum())
        squares = ((a[None] - _GRID[:, None, None, None]) ** 2).reshape(len(_GRID), -1)
        spread = self.noise[1] * np.sqrt((squares**2).sum(axis=1))
        most = max(total, self.noise[1] * np.sqrt(a.size), 1.0) * _GRID * (1 - _GRID)
        # Of one unit, the errors of several classes may all be large together.
        sampling = len(a) * np.clip(squares @ self.scores.reshape(-1) + spread, 0.0, None)
        variance = self.noise[1] ** 2 * squares.sum(axis=1) + self.heaviest * np.minimum(sampling, len(a) * most)
        return _inverted(value - _GRID * total, variance)


def _inverted(gap: Float64[ndarray, " grid"], variance: Float64[ndarray, " grid"]) -> _Figure:
    """The values at which gap, of mean 0 at the true one, is within its spread; and the one where it is nearest to
    0."""
    # At an end of the range a variance may be 0, and the gap too.
    score = np.abs(gap) / np.sqrt(np.maximum(variance, 1e-12))
    kept = np.flatnonzero(score <= _Z)
    best = int(np.abs(gap).argmin())
    if not len(kept):
        kept = np.array([best])
    low, high = float(_GRID[max(kept[0] - 1, 0)]), float(_GRID[min(kept[-1] + 1, len(_GRID) - 1)])
    low, high = (0.0 if kept[0] == 0 else low), (1.0 if kept[-1] == len(_GRID) - 1 else high)
    return _Figure(float(np.clip(_GRID[best], low, high)), low, high)


def by_finding(names: Sequence[str], each: Sequence[_T]) -> dict[str, _T] | _T:
    """What is said of each finding, by its name; of one label, that alone."""
    return dict(zip(names, each, strict=True)) if names else each[0]


def judged_rows(
    figures: dict[str, Any], class_names: Sequence[str], findings: Sequence[str] = ()
) -> list[tuple[str, str]]:
    """The figures of `Judged.figures` one by one for a person: what each is, and the value with its interval; how often
    the model is wrong comes first. figures: of several findings, by their names."""
    if findings:
        each = {name: judged_rows(figures[name], class_names) for name in findings}
        wrong = "; ".join(f"about {name} {of[0][1]}" for name, of in each.items())
        return [("wrong", wrong), *((f"{name}: {what}", value) for name, of in each.items() for what, value in of[1:])]
    named = list(zip(class_names, figures["by_class"], strict=True))
    of_two = len(named) == 2
    found, shares = [("accuracy", figures["accuracy"])], {"accuracy", "sensitivity", "specificity"}
    for name, each in named[1:] if of_two else named:
        kinds = [kind for kind in ("sensitivity", "specificity", "auroc") if kind in each]
        found += [(f"{kind.replace('auroc', 'AUROC')}, {name}", each[kind]) for kind in kinds]
    found += [("Brier score", figures["brier"]), ("calibration error", figures["calibration_error"])]
    right, least, most = (100 * each for each in figures["accuracy"])
    wrong = f"{100 - right:.0f} of 100 times ({100 - most:.0f} to {100 - least:.0f})"
    said = [("wrong", wrong)]
    for name, each in found:
        if name.partition(",")[0] in shares:
            value, low, high = (f"{100 * share:.1f}" for share in each)
            said.append((name, f"{value} % ({low} to {high})"))
        else:
            value, low, high = (f"{figure:.3f}" for figure in each)
            said.append((name, f"{value} ({low} to {high})"))
    return said


def summed_judgements(parts: list[Judged]) -> Judged:
    """The total of several hospitals, each with noise of its own."""
    first = parts[0]
    noise = np.sqrt(sum(np.square(each.noise) for each in parts))
    return Judged(
        first.evaluation,
        np.sum([each.decisions for each in parts], axis=0),
        np.sum([each.scores for each in parts], axis=0),
        (float(noise[0]), float(noise[1])),
        max(each.heaviest for each in parts),
        first.pool,
    )
