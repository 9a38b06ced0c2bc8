"""What a study guarantees to a unit of each seat, and to a patient known to several of its hospitals."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float64
from numpy import ndarray

from protocols.budgets.guarantee import Accounting, Guarantee, known_to, worst_known_to
from protocols.errors import InvalidInput
from protocols.mechanisms import check_view
from protocols.study.study import Study, party_of


def noise_distance(study: Study) -> float:
    """The total variation distance between all labels that may be released and those with ideal noise."""
    of_row = study.mechanism.noise_distance(classes=study.classes, total_weight=study.largest_weight)
    return study.rows_noised * of_row


def each_seat(study: Study) -> list[Guarantee]:
    """For each seat of the roster: the guarantee of its cap, which may be published."""
    budgets, distance = study.budgets, noise_distance(study)
    rows = zip(study.roster, budgets.epsilon_guaranteed, budgets.order, budgets.spend(budgets.cap), strict=True)
    return [
        Guarantee(float(epsilon), seat.delta, float(order), float(spend), distance)
        for seat, epsilon, order, spend in rows
    ]


def any_hospitals(study: Study) -> list[Guarantee]:
    """For 1, 2, ... hospitals: the guarantee of the worst choice of so many, at the smallest delta of the roster.

    Of as many as each seat is charged for, it is one: what the worst of the seats guarantees."""
    seats, most = list(_seats(study).values()), study.votes.hospitals_per_patient
    every = worst_known_to(_accounting(study, study.weights), seats, delta=_delta(study))
    if most == 1:
        return every
    covered = worst_known_to(_accounting(study, study.charged), seats, delta=_delta(study))[0]
    return [covered] * most + every[most:]


def these_hospitals(study: Study, hospitals: Sequence[str]) -> Guarantee:
    """The guarantee of a patient known to all of these. Raises InvalidInput for a name that is not on the roster."""
    seats = _seats(study)
    unknown = [name for name in hospitals if name not in seats]
    if unknown or not hospitals or len(set(hospitals)) < len(hospitals):
        raise InvalidInput(f"hospitals {list(hospitals)} are named; allowed: each once, from {', '.join(seats)}")
    # A declared overlap leaves a part of the patient at each; of more hospitals than are allowed for, nothing is known.
    parts = len(hospitals) if len(hospitals) <= study.votes.parts else 1
    accounting = _accounting(study, study.weights / parts)
    return known_to(accounting, [seats[name] for name in hospitals], delta=_delta(study))


def _seats(study: Study) -> dict[str, list[int]]:
    seats: dict[str, list[int]] = {}
    for position, seat in enumerate(study.roster):
        seats.setdefault(party_of(seat.party), []).append(position)
    return seats


def _delta(study: Study) -> float:
    return min(seat.delta for seat in study.roster)


def _accounting(study: Study, weights: Float64[ndarray, " parties"]) -> Accounting:
    return Accounting(
        budgets=study.budgets,
        mechanism=study.mechanism,
        votes=study.votes_per_unit * weights,
        delta_squared=study.votes.delta_squared,
        apart=study.apart,
        view=check_view(study.view),
        classes=study.classes,
        noise_distance=noise_distance(study),
    )
