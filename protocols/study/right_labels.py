"""How often a released label can be the one that most votes name: a bound from public terms alone.

Let at most a share a of all votes name the plurality of a query, and let the rest name the other C - 1 classes in any
way. With independent noise Z of one log-concave law on every count, given the plurality's own noise z the others all
stay below with probability prod_j F(z + n_1 - n_j). As F is log-concave, sum_j ln F is concave in the counts, and is
largest for a given number of other votes where these are spread evenly. So is the probability that none of them reaches
a threshold. Hence no votes in which the plurality has the share a are released right more often, nor are fewer of the
released labels right, than where the rest is spread evenly: that is what is computed, by the mechanism's exact law.
docs/explanation/right-labels.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import scipy
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.study.released_noise import noise_in
from protocols.study.study import Study
from protocols.study.votes import TeacherVotes, UnitSums, Votes
from protocols.votes import NOT_ASKED, default_concentration

# Of queries that differ in difficulty; and the surest votes that are looked at.
_DIFFICULTIES, _SUREST = 40, 0.999
# Below this share of right labels, even if votes are as clear as they can be, a study is not worth its budget.
LEAST_RIGHT = 0.8
# Probability that noise alone answers so many queries, above which nothing says that votes were heard.
_CHANCE = 0.05
# A share of one class that is too large, and the fewest labels of which that is said.
_ONE_CLASS, _FEWEST_LABELS = 0.95, 20
# Labels of a class, in the mean, from which a model should foretell others, and the share that it should.
_TO_LEARN, _FORETOLD = 10, 0.5
# Of soft labels: a class is seldom the likeliest below this part of its mean probability, if that is this at least.
_SELDOM, _LEAST_EXPECTED = 0.25, 0.01


def most_right(study: Study, agreement: float) -> float:
    """The probability, at most, that a released label is the plurality, if it has a share `agreement` of all votes.

    agreement: in [1/classes, 1]. Independent of budgets; teachers' votes only.
    """
    right, answered = outcome(study, agreement)
    return right / answered if answered > 0 else 0.0


def answered_by_noise(study: Study) -> float:
    """The probability that a query is answered if its votes are spread evenly over all classes: by noise alone."""
    return outcome(study, 1 / study.classes)[1]


def needed_agreement(study: Study) -> float | None:
    """The least share of all votes for the plurality with which labels can be right as often as LEAST_RIGHT; None if no
    votes are enough, because the noise is too large for all votes together.
    """
    lowest = 1 / study.classes
    if most_right(study, 1.0) < LEAST_RIGHT:
        return None
    if most_right(study, lowest) >= LEAST_RIGHT:
        return lowest
    return float(scipy.optimize.brentq(lambda share: most_right(study, share) - LEAST_RIGHT, lowest, 1.0, xtol=1e-6))


def doubtful(study: Study, labels: Int64[ndarray, " queries"], foretold: int | None = None) -> list[str]:
    """Warnings from released labels alone (class, ABSTAIN or NOT_ASKED): that a model of some of them does not foretell
    the others, that no more were answered than noise alone would have answered, that nearly all are of one class, and
    that some class is missing.

    foretold: how many released labels were predicted by a model of others among them; None where the inputs are not
    known. None of record votes. That labels may be noise is said unless a one-sided binomial test at the level of 5 %
    finds that more queries were answered, or that more labels were foretold than are of the most frequent class: where
    there is nothing but noise, it is missing in at most one study of ten.
    """
    return _DOUBTS[type(study.votes)](study, labels, foretold)


def _doubts_of_labels(study: Study, labels: Int64[ndarray, " queries"], foretold: int | None) -> list[str]:
    if study.labelled.names:  # what is said below is of labels that name one class
        return []
    found, released = [], labels[labels >= 0]
    asked = int((labels != NOT_ASKED).sum())
    by_class = np.bincount(released, minlength=study.classes)
    named, share = np.count_nonzero(by_class), by_class.max() / max(len(released), 1)
    heard = foretold is not None and scipy.special.bdtrc(foretold - 1, len(released), share) <= _CHANCE
    if foretold is not None and _TO_LEARN * study.classes <= len(released) and foretold < _FORETOLD * len(released):
        found.append(
            f"a linear model of two thirds of the released labels predicts "
            f"{100 * foretold / len(released):.0f} % of the rest: "
            "many are wrong, or a student cannot learn them"
        )
    if study.mechanism.needed(second_round=False) is not None and asked and not heard:
        alone = answered_by_noise(study)
        if scipy.special.bdtrc(len(released) - 1, asked, alone) > _CHANCE:
            found.append(
                f"{len(released)} of {asked} queries were answered, and noise alone would have answered about "
                f"{alone * asked:.0f}: the labels may be noise"
            )
    if len(released) >= _FEWEST_LABELS and share >= _ONE_CLASS:
        found.append(f"{100 * share:.0f} % of the released labels are of one class: a student names little else")
    elif 0 < named < study.classes:
        found.append(f"the released labels name {named} of {study.classes} classes: a student of them names no other")
    return found


def seldom_named(probabilities: Float64[ndarray, "pool classes"], names: Sequence[str] | None) -> list[str]:
    """A warning from the soft labels of a pool alone: that a class of 1 % or more of all probability is hardly ever the
    likeliest. names: of the classes, None for their numbers."""
    expected = probabilities.mean(axis=0)
    named = np.bincount(probabilities.argmax(axis=1), minlength=len(expected)) / len(probabilities)
    few = np.flatnonzero((expected >= _LEAST_EXPECTED) & (named < _SELDOM * expected))
    if not len(few):
        return []
    worst = int(few[np.argmax(expected[few])])
    named_so = worst if names is None else names[worst]
    return [
        f"class {named_so} is the likeliest for {100 * named[worst]:.1f} % of the pool, with a probability of "
        f"{100 * expected[worst]:.1f} % in the mean ({len(few)} such of {len(expected)} classes): a student seldom "
        "names it. "
        "It may stand out in clusters of the pool, also beside columns"
    ]


def outcome(study: Study, agreement: float) -> tuple[float, float]:
    """The probabilities that the plurality is released, and that any label is, where it has a share `agreement` of all
    votes and the others are spread evenly."""
    released, heard = _outcomes(study, np.array([agreement]))
    return float(released[0]), float(heard[0])


def _outcomes(
    study: Study, agreement: Float64[ndarray, " queries"]
) -> tuple[Float64[ndarray, " queries"], Float64[ndarray, " queries"]]:
    """`outcome` of each."""
    mechanism, votes, others = study.mechanism, study.nominal_weight, study.classes - 1
    counts = np.stack([agreement * votes, (1 - agreement) * votes / others], axis=1)
    # More noise than is accounted for is the same as counts that are nearer to the threshold, and to each other.
    needed = mechanism.needed(second_round=False) or 0.0
    counts = needed + (counts - needed) * (mechanism.label_sigma / noise_in(study))
    law = np.exp(mechanism.outcome_log_law(counts, np.array([1, others])))
    return law[:, 0], law[:, :2].sum(axis=1)


def outcome_where_queries_differ(study: Study, agreement: float) -> tuple[float, float]:
    """The same where a vote is right with the probability `agreement`, in (0, 1), in the mean, which varies over
    queries with the default concentration. Where another class has as many votes, no label is counted as right."""
    concentration, even = default_concentration(study.classes), 1 / study.classes
    middle = (np.arange(_DIFFICULTIES) + 0.5) / _DIFFICULTIES
    shares = scipy.special.betaincinv(concentration * agreement, concentration * (1 - agreement), middle)
    released, heard = _outcomes(study, np.maximum(shares, even))
    return float(released[shares > even].sum() / _DIFFICULTIES), float(heard.mean())


def share_of_noise(study: Study, labels: Int64[ndarray, " queries"]) -> float:
    """The share of the released labels that the study's noise makes wrong, by how many queries it left unanswered.

    labels: a class, ABSTAIN or NOT_ASKED, as released: this is free. The agreement is the one, of votes that differ
    over queries, at which so many queries are answered. 0 without a threshold, of which the answers say nothing, of
    several findings, and where records vote. An estimate: that most votes may be wrong does not count.
    """
    asked, released = int((labels != NOT_ASKED).sum()), int((labels >= 0).sum())
    if not isinstance(study.votes, TeacherVotes) or study.labelled.names or not released:
        return 0.0
    if study.mechanism.needed(second_round=False) is None:
        return 0.0
    answered, low, high = released / asked, 1 / study.classes, _SUREST

    of = cache(lambda agreement: outcome_where_queries_differ(study, agreement))

    def above(agreement: float) -> float:
        return of(agreement)[1] - answered

    if above(low) < 0 < above(high):
        high = low = scipy.optimize.brentq(above, low, high, xtol=1e-3)
    right, heard = of(low if above(low) >= 0 else high)
    return 1 - right / heard


# Of sums there are none: their soft labels say how sure they are.
_DOUBTS: dict[type[Votes], Callable[[Study, Int64[ndarray, " queries"], int | None], list[str]]] = {
    TeacherVotes: _doubts_of_labels,
    UnitSums: lambda study, labels, foretold: [],
}
