"""A membership inference attack on the released student, and the most that differential privacy allows.

Members are private records that teachers learned; non-members are the test part. The attacker knows each record and its
true label, and asks the student for probabilities. Two standard attacks: a threshold on the loss (Yeom et al. 2018),
and one for each class on the modified entropy (Song & Mittal 2021). An attack learns its thresholds from one half of
the members and non-members, and is measured on the other; areas and rates of the loss need no threshold and are
measured on all.

The attack runs on private records, so its result is Private. A low area proves nothing: it is a lower bound on what can
be found, while the guarantee gives the ceiling.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.crypto.randomness import simulation_rng
from protocols.errors import InvalidInput
from protocols.research.published.private import Private
from simulations.datasets.dataset import Dataset
from simulations.membership.ceiling import advantage_ceiling, area_ceiling, true_positive_ceiling
from simulations.membership.controls import Controls
from simulations.membership.report import AttackResult, BeyondShift, BudgetGroup, Ceiling, MembershipReport
from simulations.membership.scores import Predictor, Scores, class_thresholds, scores_of
from simulations.membership.statistics import (
    FALSE_POSITIVE_RATES,
    Estimate,
    advantage,
    area,
    area_difference,
    best_threshold,
    curve,
    permuted_area,
    rates,
)
from simulations.setup.record_budgets import upsampling
from simulations.stages.inputs import DatasetInputs


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

    members: dict[str, Scores]
    others: dict[str, Scores]
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
    members: Scores
    others: Scores
    called: Scores
    called_others: Scores


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


def _calls(above: Scores) -> Scores:
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


def _ceilings(epsilon: Float64[ndarray, " seats"], delta: Float64[ndarray, " seats"]) -> tuple[Ceiling, Ceiling]:
    """The ceiling of the seat with the lowest area, and one that holds for every seat."""
    lowest = int(area_ceiling(epsilon=epsilon, delta=delta).argmin())
    return ceiling_of(epsilon[lowest], delta[lowest]), ceiling_of(epsilon.max(), delta.max())


def ceiling_of(epsilon: np.float64, delta: np.float64) -> Ceiling:
    """What (epsilon, delta) allows any attack on one unit."""
    values = {"epsilon": np.asarray(epsilon), "delta": np.asarray(delta)}
    at_rates = true_positive_ceiling(np.array(FALSE_POSITIVE_RATES), **values)
    return Ceiling(
        float(epsilon),
        float(delta),
        float(area_ceiling(**values)),
        tuple(at_rates.tolist()),
        float(advantage_ceiling(**values)),
    )
