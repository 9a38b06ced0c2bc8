"""A membership inference attack on the released student, beside what differential privacy allows one at most.

Members are private records that teachers learned; non-members are the test part. The attacker knows each record and its
true label, and asks the student for probabilities. Two standard attacks: a threshold on the loss (Yeom et al. 2018),
and one for each class on the modified entropy (Song & Mittal 2021). What an attack has to learn, a threshold, it learns
from one half of the members and non-members, and is measured on the other; the areas and rates of the loss need nothing
learnt and are measured on all.

The attack runs on private records, so its result is Private. A low area proves nothing: it is a lower bound on what can
be found, and the guarantee is the ceiling.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.accounting.private import Private
from protocols.errors import InvalidInput
from protocols.randomness import simulation_rng
from simulations.datasets.dataset import Dataset
from simulations.membership_ceiling import advantage_ceiling, area_ceiling, true_positive_ceiling
from simulations.membership_controls import Controls
from simulations.membership_report import AttackResult, BudgetGroup, Ceiling, MembershipReport
from simulations.membership_scores import Predictor, Scores, class_thresholds, scores_of
from simulations.membership_statistics import (
    FALSE_POSITIVE_RATES,
    Estimate,
    advantage,
    area,
    area_difference,
    best_threshold,
    curve,
    rates,
)


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
    """Attacks the student, and each control.

    epsilon, delta: what each seat is guaranteed; seats: the seat of each private record, -1 where no teacher learned it
    (`record_seats`); None: all private records are members, and there are no budget groups. Raises InvalidInput.
    """
    if epsilon.shape != delta.shape or epsilon.ndim != 1 or len(epsilon) == 0:
        raise InvalidInput(f"epsilon and delta of shapes {epsilon.shape} and {delta.shape}; allowed: one each a seat")
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
    report = MembershipReport(
        released=_attacks(released, halves),
        non_private=() if open_model is None else _attacks(open_model, halves),
        no_private_data=() if unseen is None else _attacks(unseen, halves),
        beyond_shift=None if unseen is None else _beyond(released, unseen, np.arange(len(members))),
        permuted=_permuted(released, seed=seed),
        groups=() if seats is None else _groups(released, unseen, epsilon, delta, seat_of[members]),
        least_protected=least_protected,
        most_protected=most_protected,
        seed=seed,
    )
    return Private(report)


def record_seats(shards: list[list[Int64[ndarray, " records"]]], *, records: int) -> Int64[ndarray, " private"]:
    """The seat of each private record: the one whose teachers learned it, -1 where there is none.

    shards: for each seat the records of each of its teachers. Raises InvalidInput where seats share a record (pooled
    teachers of upsampling: there a record's seat is its budget's group).
    """
    seats = np.full(records, -1, dtype=np.int64)
    for seat, of_seat in enumerate(shards):
        own = np.unique(np.concatenate(of_seat))
        if (seats[own] >= 0).any():
            raise InvalidInput(f"seat {seat} shares records with another; allowed: each record in one seat")
        seats[own] = seat
    return seats


# Halves of this many leave a threshold to learn and an area to measure.
_FEWEST = 8
# More distinct epsilons than this are told in ranges.
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
    """Which members and non-members the attacker knows, in positions, and which are left."""

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


def _attacks(scored: _Scored, halves: _Halves) -> tuple[AttackResult, ...]:
    known, known_others = halves.known
    left, left_others = halves.left
    members, others = scored.members["loss"], scored.others["loss"]
    threshold = best_threshold(members[known], others[known_others])
    by_loss = _result("loss", members, others, advantage(members[left], others[left_others], threshold=threshold))

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
    return by_loss, _result(
        "modified_entropy_by_class", above, others_above, advantage(above, others_above, threshold=0.0)
    )


def _result(attack: str, members: Scores, others: Scores, gain: Estimate) -> AttackResult:
    return AttackResult(
        attack,
        len(members),
        len(others),
        area(members, others),
        rates(members, others),
        gain,
        curve(members, others),
    )


def _permuted(scored: _Scored, *, seed: int) -> Estimate:
    """The area of the loss attack after membership is permuted over all records: a check of the measurement."""
    pool = np.concatenate([scored.members["loss"], scored.others["loss"]])
    pool = simulation_rng(seed, "permuted").permutation(pool)
    count = len(scored.members["loss"])
    return area(pool[:count], pool[count:])


def _beyond(scored: _Scored, base: _Scored, chosen: Int64[ndarray, " chosen"]) -> Estimate:
    """How much the loss attack's area on the chosen members passes that on a base model."""
    return area_difference(
        scored.members["loss"][chosen],
        scored.others["loss"],
        base_members=base.members["loss"][chosen],
        base_others=base.others["loss"],
    )


def _groups(
    scored: _Scored,
    unseen: _Scored | None,
    epsilon: Float64[ndarray, " seats"],
    delta: Float64[ndarray, " seats"],
    seats: Int64[ndarray, " members"],
) -> tuple[BudgetGroup, ...]:
    """Groups by epsilon, ascending: one a value, or ranges where there are many; those of one member are left out."""
    found = []
    values = np.unique(epsilon)
    for of_group in np.array_split(values, min(len(values), _MOST_GROUPS)):
        chosen = np.flatnonzero(np.isin(epsilon[seats], of_group))
        if len(chosen) < 2:
            continue
        highest = of_group.max()
        found.append(
            BudgetGroup(
                float(of_group.min()),
                float(highest),
                len(chosen),
                area(scored.members["loss"][chosen], scored.others["loss"]),
                None if unseen is None else _beyond(scored, unseen, chosen),
                float(
                    area_ceiling(epsilon=np.asarray(highest), delta=np.asarray(delta[np.isin(epsilon, of_group)].max()))
                ),
            )
        )
    return tuple(found)


def _ceilings(epsilon: Float64[ndarray, " seats"], delta: Float64[ndarray, " seats"]) -> tuple[Ceiling, Ceiling]:
    """Of the seat with the lowest area, and one that holds for every seat."""
    lowest = int(area_ceiling(epsilon=epsilon, delta=delta).argmin())
    return _ceiling(epsilon[lowest], delta[lowest]), _ceiling(epsilon.max(), delta.max())


def _ceiling(epsilon: np.float64, delta: np.float64) -> Ceiling:
    values = {"epsilon": np.asarray(epsilon), "delta": np.asarray(delta)}
    at_rates = true_positive_ceiling(np.array(FALSE_POSITIVE_RATES), **values)
    return Ceiling(
        float(epsilon),
        float(delta),
        float(area_ceiling(**values)),
        tuple(at_rates.tolist()),
        float(advantage_ceiling(**values)),
    )
