"""Scores of membership from a student's probabilities: larger where a record looks like one that was learned.

loss              Yeom et al. 2018, the adversary with a threshold: a small loss on the true label
modified entropy  Song & Mittal 2021: a small entropy, where confidence in a wrong class counts against; with a
                  threshold for each class

Controls for the attack on the released student: models for which the answer is known beforehand.

The attack should succeed on the model trained on the private records without privacy. The student of public records and
their true labels has never seen anything private: what the attack finds there is a difference between the private and
the test part, not leakage.

The most that differential privacy allows any membership attack: rates, area and advantage.

The game: an attacker sees what was released and decides whether it came from data with one unit's records, or from the
same data with these replaced. Under (epsilon, delta)-differential privacy no decision reaches above the region
TPR <= e^epsilon FPR + delta and TPR <= 1 - e^-epsilon (1 - delta - FPR) (Wasserman & Zhou 2010, Thm 2.4;
Kairouz, Oh & Viswanath 2015, Thm 2.1).

A membership inference attack on the released student, and the most that differential privacy allows.

Members are private records that teachers learned; non-members are the test part. The attacker knows each record and its
true label, and asks the student for probabilities. Two standard attacks: a threshold on the loss (Yeom et al. 2018),
and one for each class on the modified entropy (Song & Mittal 2021). An attack learns its thresholds from one half of
the members and non-members, and is measured on the other; areas and rates of the loss need no threshold and are
measured on all.

The attack runs on private records, so its result is Private. A low area proves nothing: it is a lower bound on what can
be found, while the guarantee gives the ceiling.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import numpy as np
import scipy
from jaxtyping import Float32, Float64, Int64
from numpy import ndarray

from coordinator.students.student import one_hot
from protocols.crypto.randomness import simulation_rng
from protocols.errors import InvalidInput
from protocols.features.feature_map import FeatureMap
from protocols.research.private import Private
from simulations.datasets.dataset import Dataset
from simulations.membership.report import (
    FALSE_POSITIVE_RATES,
    AttackCeiling,
    AttackResult,
    BeyondShift,
    BudgetGroup,
    Estimate,
    MembershipReport,
    advantage,
    area,
    area_difference,
    best_threshold,
    curve,
    permuted_area,
    rates,
)
from simulations.setup.budgets import upsampling
from simulations.stages.inputs import DatasetInputs
from simulations.stages.students import ReleasedStudent

_Scores = Float64[ndarray, " records"]
_Labels = Int64[ndarray, " records"]
_Score = Callable[[Float64[ndarray, "records classes"], _Labels], _Scores]

# The sum of a row's probabilities may differ from 1 by this much, as they are float32.
_SUM_TOLERANCE = 1e-3
# Below any float32 probability; its logarithm is finite.
_TINY = 1e-60
# Cells of [records, classes] that are predicted and scored at a time.
_CELLS = 20_000_000


class Predictor(Protocol):
    """A model to attack: anything that gives the probability of each class, as ReleasedStudent does."""

    def probabilities(self, inputs: Float32[ndarray, "queries ..."]) -> Float32[ndarray, "queries classes"]:
        """The probability of each class; rows sum to 1."""


def loss(probabilities: Float64[ndarray, "records classes"], labels: _Labels) -> _Scores:
    """log(p_y/(1 - p_y)), y the true label: in the order of the negative cross-entropy loss.

    1 - p_y is summed from the other classes, so that records differ where p_y itself is 1 in floating point (Carlini et
    al. 2022 compute it so).
    """
    right, wrong = _right_and_wrong(probabilities, labels)
    return np.log(right + _TINY) - np.log(wrong + _TINY)


def modified_entropy(probabilities: Float64[ndarray, "records classes"], labels: _Labels) -> _Scores:
    """-Mentr = (1 - p_y) log p_y + sum_{i != y} p_i log(1 - p_i), at most 0 (Song & Mittal 2021)."""
    right, wrong = _right_and_wrong(probabilities, labels)
    rest = np.maximum(probabilities.sum(axis=1, keepdims=True) - probabilities, 0.0)
    terms = probabilities * np.log(rest + _TINY)
    terms[np.arange(len(labels)), labels] = 0.0
    return np.asarray(wrong * np.log(right + _TINY) + terms.sum(axis=1))


ATTACK_SCORES: Final[dict[str, _Score]] = {"loss": loss, "modified_entropy": modified_entropy}


def scores_of(
    predictor: Predictor, inputs: Float32[ndarray, "records ..."], labels: _Labels, *, classes: int
) -> dict[str, _Scores]:
    """Each of SCORES on these records, some rows at a time. Raises InvalidInput unless the model gives
    probabilities.
    """
    step = max(1, _CELLS // classes)
    found: dict[str, list[_Scores]] = {name: [] for name in ATTACK_SCORES}
    for start in range(0, len(labels), step):
        part, of_part = inputs[start : start + step], labels[start : start + step]
        probabilities = _checked(predictor.probabilities(part), rows=len(part), classes=classes)
        for name, score in ATTACK_SCORES.items():
            found[name].append(score(probabilities, of_part))
    return {name: np.concatenate(parts) if parts else np.zeros(0) for name, parts in found.items()}


def class_thresholds(
    members: _Scores, member_labels: _Labels, others: _Scores, other_labels: _Labels, *, classes: int
) -> Float64[ndarray, " classes"]:
    """The best threshold for each class (Song & Mittal 2021), learnt from records that the attacker knows.

    A class with fewer than two members or non-members gets the threshold that is best for all classes together.
    """
    thresholds = np.full(classes, best_threshold(members, others))
    for label in np.intersect1d(member_labels, other_labels):
        of_members, of_others = members[member_labels == label], others[other_labels == label]
        if min(len(of_members), len(of_others)) >= 2:
            thresholds[label] = best_threshold(of_members, of_others)
    return thresholds


def _right_and_wrong(probabilities: Float64[ndarray, "records classes"], labels: _Labels) -> tuple[_Scores, _Scores]:
    """The probability of the true label, and of all others together."""
    rows = np.arange(len(labels))
    others = probabilities.copy()
    others[rows, labels] = 0.0
    return probabilities[rows, labels], others.sum(axis=1)


def _checked(
    probabilities: Float32[ndarray, "records classes"], *, rows: int, classes: int
) -> Float64[ndarray, "records classes"]:
    """The probabilities as float64. Raises InvalidInput unless each row is a distribution over the classes."""
    if probabilities.shape != (rows, classes):
        raise InvalidInput(f"probabilities have shape {probabilities.shape}; allowed: {(rows, classes)}")
    exact = probabilities.astype(np.float64)
    if not np.isfinite(exact).all():
        raise InvalidInput("probabilities hold NaN or infinite values; allowed: in [0, 1]")
    sums = exact.sum(axis=1)
    if (exact < 0).any() or (np.abs(sums - 1) > _SUM_TOLERANCE).any():
        worst = float(sums[np.argmax(np.abs(sums - 1))])
        raise InvalidInput(f"probabilities are negative or sum to {worst:g} in a row; allowed: >= 0, with sum 1")
    return exact


@dataclass(frozen=True, eq=False)
class Controls:
    """The models beside the released student; None where one is not to be measured."""

    non_private: Predictor | None
    no_private_data: Predictor | None


def make_controls(
    dataset: Dataset,
    *,
    non_private: Predictor,
    student: str,
    answered: int,
    seed: int,
    cache_dir: Path,
    linear: FeatureMap | None = None,
) -> Controls:
    """Both controls, models of the released student's kind; nothing is trained before it is asked for.

    non_private: of `pooled_student`; answered: how many labels the released student learned from. The control without
    private data learns the true labels of as many public queries, drawn from the seed and not chosen by votes; it is
    None if nothing was answered.
    """
    if answered == 0:
        return Controls(non_private, None)
    order = simulation_rng(seed, "control").permutation(len(dataset.public_labels))
    chosen = np.sort(order[:answered])
    targets = one_hot(dataset.public_labels[chosen], dataset.classes)
    return Controls(
        non_private,
        ReleasedStudent(dataset, chosen, targets, student=student, seed=seed, cache_dir=cache_dir, linear=linear),
    )


Values = Float64[ndarray, "..."]


def true_positive_ceiling(false_positive_rate: Values, *, epsilon: Values, delta: Values) -> Values:
    """The largest true-positive rate at a false-positive rate; the three arguments are broadcast."""
    _check(epsilon, delta)
    if not ((false_positive_rate >= 0) & (false_positive_rate <= 1)).all():
        raise InvalidInput("a false-positive rate is outside [0, 1]")
    # e^epsilon FPR in logarithms: a large epsilon must not overflow. FPR = 0 leaves delta.
    with np.errstate(divide="ignore"):
        log_first = epsilon + np.log(false_positive_rate)
    first = np.exp(np.minimum(log_first, 0.0)) + delta
    second = 1 - np.exp(-epsilon) * np.maximum(1 - delta - false_positive_rate, 0.0)
    return np.asarray(np.minimum(np.minimum(first, second), 1.0))


def area_ceiling(*, epsilon: Values, delta: Values) -> Values:
    """The largest area under a curve inside that region: 1 - (1 - delta)^2/(1 + e^epsilon).

    The region's border is one line through each of (0, delta) and (1 - delta, 1), which meet on the antidiagonal where
    both errors are (1 - delta)/(1 + e^epsilon); what lies above it are two triangles of base 1 - delta.
    """
    _check(epsilon, delta)
    return np.asarray(1 - (1 - delta) ** 2 * scipy.special.expit(-epsilon))


def advantage_ceiling(*, epsilon: Values, delta: Values) -> Values:
    """The largest TPR - FPR: 1 - 2 (1 - delta)/(1 + e^epsilon) (Humphries et al. 2023, the tight bound for
    independent records)."""
    _check(epsilon, delta)
    return np.asarray(1 - 2 * (1 - delta) * scipy.special.expit(-epsilon))


def _check(epsilon: Values, delta: Values) -> None:
    for name, values, allowed, good in (
        ("epsilon", epsilon, "finite numbers >= 0", np.isfinite(epsilon) & (epsilon >= 0)),
        ("delta", delta, "in [0, 1]", (delta >= 0) & (delta <= 1)),
    ):
        if not good.all():
            raise InvalidInput(f"{name} is {values[~good].ravel()[0]:g}; allowed: {allowed}")


def membership_attack(
    student: Predictor,
    dataset: Dataset,
    *,
    epsilon: Float64[ndarray, " seats"],
    delta: Float64[ndarray, " seats"],
    seats: Int64[ndarray, " private"] | None,
    seed: int,
    controls: Controls,
) -> Private[MembershipReport]:
    """Attacks the student and each control; returns the report.

    epsilon, delta: what each seat is guaranteed; seats: the seat of each private record, -1 where no teacher learned it
    (`record_seats`); None: all private records are members, and there are no budget groups. Raises InvalidInput.
    """
    if epsilon.shape != delta.shape or epsilon.ndim != 1 or len(epsilon) == 0:
        raise InvalidInput(
            f"epsilon and delta of shapes {epsilon.shape} and {delta.shape}; allowed: one of each per seat"
        )
    seat_of = np.zeros(len(dataset.private_labels), dtype=np.int64) if seats is None else seats
    if seat_of.shape != dataset.private_labels.shape:
        raise InvalidInput(f"seats of shape {seat_of.shape}; allowed: one for each private record")
    if len(seat_of) and not (seat_of.min() >= -1 and seat_of.max() < len(epsilon)):
        raise InvalidInput(f"seats span [{seat_of.min()}, {seat_of.max()}]; allowed: [-1, {len(epsilon) - 1}]")
    members = np.flatnonzero(seat_of >= 0)
    for name, count in (("members", len(members)), ("non-members (test records)", len(dataset.test_labels))):
        if count < _FEWEST:
            raise InvalidInput(f"{count} {name}; allowed: at least {_FEWEST}")
    most_protected, least_protected = _ceilings(epsilon, delta)
    halves = _Halves.draw(len(members), len(dataset.test_labels), seed=seed)
    released = _scored(student, dataset, members)
    unseen = None if controls.no_private_data is None else _scored(controls.no_private_data, dataset, members)
    open_model = None if controls.non_private is None else _scored(controls.non_private, dataset, members)
    evidence = _evidence(released, halves)
    base = () if unseen is None else _evidence(unseen, halves)
    report = MembershipReport(
        released=_results(evidence),
        non_private=() if open_model is None else _results(_evidence(open_model, halves)),
        no_private_data=_results(base),
        beyond_shift=tuple(_beyond(one, other) for one, other in zip(evidence, base, strict=False)),
        permuted=permuted_area(released.members["loss"], released.others["loss"], rng=simulation_rng(seed, "permuted")),
        groups=() if seats is None else _groups(released, unseen, epsilon, delta, seat_of[members]),
        least_protected=least_protected,
        most_protected=most_protected,
        seed=seed,
    )
    return Private(report)


def record_seats(inputs: DatasetInputs) -> Int64[ndarray, " private"]:
    """The seat of each private record of a run: the one whose teachers learned it, -1 where none did.

    With upsampling, whose teachers share records, it is the group of the record's budget.
    """
    records = len(inputs.dataset.private_labels)
    settings = inputs.settings
    if settings.individualization == "upsampling":
        return upsampling(settings.budgets, teachers=settings.parties).groups(records, seed=settings.data_seed)
    seats = np.full(records, -1, dtype=np.int64)
    for seat, shards in enumerate(inputs.shards):
        seats[np.concatenate(shards)] = seat
    return seats


# Halves of this many suffice to learn a threshold and to measure an area.
_FEWEST = 8
# More distinct epsilons than this are given as ranges.
_MOST_GROUPS = 6


@dataclass(frozen=True, eq=False)
class _Scored:
    """Scores by name, and true labels, of members and non-members."""

    members: dict[str, _Scores]
    others: dict[str, _Scores]
    member_labels: Int64[ndarray, " members"]
    other_labels: Int64[ndarray, " others"]
    classes: int


@dataclass(frozen=True, eq=False)
class _Halves:
    """Positions of the members and non-members that the attacker knows, and of the others."""

    known: tuple[Int64[ndarray, " known"], Int64[ndarray, " known_others"]]
    left: tuple[Int64[ndarray, " left"], Int64[ndarray, " left_others"]]

    @classmethod
    def draw(cls, members: int, others: int, *, seed: int) -> _Halves:
        rng = simulation_rng(seed, "halves")
        orders = [rng.permutation(members), rng.permutation(others)]
        known = [np.sort(order[: len(order) // 2]) for order in orders]
        left = [np.sort(order[len(order) // 2 :]) for order in orders]
        return cls((known[0], known[1]), (left[0], left[1]))


def _scored(model: Predictor, dataset: Dataset, members: Int64[ndarray, " members"]) -> _Scored:
    labels = dataset.private_labels[members]
    classes = dataset.classes
    return _Scored(
        scores_of(model, dataset.private_inputs[members], labels, classes=classes),
        scores_of(model, dataset.test_inputs, dataset.test_labels, classes=classes),
        labels,
        dataset.test_labels,
        classes,
    )


@dataclass(frozen=True, eq=False)
class _Evidence:
    """Scores of one attack; called: for each record unknown to the attacker, 1 if it is called a member, else 0."""

    attack: str
    members: _Scores
    others: _Scores
    called: _Scores
    called_others: _Scores


def _evidence(scored: _Scored, halves: _Halves) -> tuple[_Evidence, ...]:
    """Both attacks; thresholds are learnt from the known halves."""
    known, known_others = halves.known
    left, left_others = halves.left
    members, others = scored.members["loss"], scored.others["loss"]
    threshold = best_threshold(members[known], others[known_others])
    by_loss = _Evidence(
        "loss", members, others, _calls(members[left] - threshold), _calls(others[left_others] - threshold)
    )
    members, others = scored.members["modified_entropy"], scored.others["modified_entropy"]
    thresholds = class_thresholds(
        members[known],
        scored.member_labels[known],
        others[known_others],
        scored.other_labels[known_others],
        classes=scored.classes,
    )
    above = members[left] - thresholds[scored.member_labels[left]]
    others_above = others[left_others] - thresholds[scored.other_labels[left_others]]
    by_class = _Evidence("modified_entropy_by_class", above, others_above, _calls(above), _calls(others_above))
    return by_loss, by_class


def _calls(above: _Scores) -> _Scores:
    return (above >= 0).astype(np.float64)


def _results(evidence: tuple[_Evidence, ...]) -> tuple[AttackResult, ...]:
    return tuple(
        AttackResult(
            one.attack,
            len(one.members),
            len(one.others),
            area(one.members, one.others),
            rates(one.members, one.others),
            advantage(one.called, one.called_others, threshold=0.5),
            curve(one.members, one.others),
        )
        for one in evidence
    )


def _beyond(one: _Evidence, base: _Evidence) -> BeyondShift:
    """The area of 0 and 1 as scores is (1 + TPR - FPR)/2, so the advantages differ by twice what these areas do."""
    half = area_difference(one.called, one.called_others, base_members=base.called, base_others=base.called_others)
    return BeyondShift(
        one.attack,
        area_difference(one.members, one.others, base_members=base.members, base_others=base.others),
        Estimate(2 * half.value, 2 * half.low, 2 * half.high),
    )


def _groups(
    scored: _Scored,
    unseen: _Scored | None,
    epsilon: Float64[ndarray, " seats"],
    delta: Float64[ndarray, " seats"],
    seats: Int64[ndarray, " members"],
) -> tuple[BudgetGroup, ...]:
    """Groups by ascending epsilon: one per value, or ranges if there are many; groups of one member are left out."""
    found = []
    values = np.unique(epsilon)
    for of_group in np.array_split(values, min(len(values), _MOST_GROUPS)):
        chosen = np.flatnonzero(np.isin(epsilon[seats], of_group))
        if len(chosen) < 2:
            continue
        highest = of_group.max()
        members, others = scored.members["loss"][chosen], scored.others["loss"]
        beyond = None
        if unseen is not None:
            base, base_others = unseen.members["loss"][chosen], unseen.others["loss"]
            beyond = area_difference(members, others, base_members=base, base_others=base_others)
        found.append(
            BudgetGroup(
                float(of_group.min()),
                float(highest),
                len(chosen),
                area(members, others),
                beyond,
                float(
                    area_ceiling(epsilon=np.asarray(highest), delta=np.asarray(delta[np.isin(epsilon, of_group)].max()))
                ),
            )
        )
    return tuple(found)


def _ceilings(
    epsilon: Float64[ndarray, " seats"], delta: Float64[ndarray, " seats"]
) -> tuple[AttackCeiling, AttackCeiling]:
    """The ceiling of the seat with the lowest area, and one that holds for every seat."""
    lowest = int(area_ceiling(epsilon=epsilon, delta=delta).argmin())
    return ceiling_of(epsilon[lowest], delta[lowest]), ceiling_of(epsilon.max(), delta.max())


def ceiling_of(epsilon: np.float64, delta: np.float64) -> AttackCeiling:
    """What (epsilon, delta) allows any attack on one unit."""
    values = {"epsilon": np.asarray(epsilon), "delta": np.asarray(delta)}
    at_rates = true_positive_ceiling(np.array(FALSE_POSITIVE_RATES), **values)
    return AttackCeiling(
        float(epsilon),
        float(delta),
        float(area_ceiling(**values)),
        tuple(at_rates.tolist()),
        float(advantage_ceiling(**values)),
    )
