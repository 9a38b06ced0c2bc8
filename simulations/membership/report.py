"""A membership report: what attacks found on the released student and on controls, and the ceilings."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any  # the values of a JSON object

from simulations.membership.statistics import FALSE_POSITIVE_RATES, LEVEL, Curve, Estimate, RateAt


@dataclass(frozen=True, eq=False)
class AttackResult:
    """One attack on one model; members and non_members: how many records its area and rates were measured on."""

    attack: str
    members: int
    non_members: int
    area: Estimate
    rates: tuple[RateAt, ...]
    advantage: Estimate
    curve: Curve


@dataclass(frozen=True)
class BeyondShift:
    """By how much one attack on the released student exceeds the same attack on the student without private data."""

    attack: str
    area: Estimate
    advantage: Estimate


@dataclass(frozen=True)
class Ceiling:
    """The most that any attack on one unit of this (epsilon, delta) reaches; rates: at FALSE_POSITIVE_RATES."""

    epsilon: float
    delta: float
    area: float
    rates: tuple[float, ...]
    advantage: float


@dataclass(frozen=True)
class BudgetGroup:
    """The loss attack on the members of one budget, or a range of budgets, against all non-members.

    beyond_shift: by how much the area exceeds that of the model without private data on the same records. ceiling: of
    the area, at the largest epsilon of the group.
    """

    epsilon_low: float
    epsilon_high: float
    members: int
    area: Estimate
    beyond_shift: Estimate | None
    ceiling: float


@dataclass(frozen=True, eq=False)
class MembershipReport:
    """What two standard attacks found, controls, and ceilings.

    released, non_private, no_private_data: one result per attack; empty if a control was not measured. beyond_shift:
    one per attack, on the same records; empty if that student was not measured. permuted: areas of the loss
    attack when membership is permuted, their mean and range. least_protected: at the largest epsilon and the largest
    delta, which holds for every unit; most_protected: of the unit where the ceiling is lowest.
    """

    released: tuple[AttackResult, ...]
    non_private: tuple[AttackResult, ...]
    no_private_data: tuple[AttackResult, ...]
    beyond_shift: tuple[BeyondShift, ...]
    permuted: Estimate
    groups: tuple[BudgetGroup, ...]
    least_protected: Ceiling
    most_protected: Ceiling
    seed: int

    def to_json(self) -> dict[str, Any]:
        """The report as JSON values, without the curves."""
        plain: dict[str, Any] = {"level": LEVEL, "false_positive_rates": list(FALSE_POSITIVE_RATES), "seed": self.seed}
        for name in ("released", "non_private", "no_private_data"):
            plain[name] = [_attack_json(result) for result in getattr(self, name)]
        plain["beyond_shift"] = [asdict(beyond) for beyond in self.beyond_shift]
        plain["permuted"] = asdict(self.permuted)
        plain["groups"] = [asdict(group) for group in self.groups]
        plain["ceilings"] = {
            name: asdict(getattr(self, name)) | {"rates": list(getattr(self, name).rates)}
            for name in ("least_protected", "most_protected")
        }
        return plain


def _attack_json(result: AttackResult) -> dict[str, Any]:
    return {
        "attack": result.attack,
        "members": result.members,
        "non_members": result.non_members,
        "area": asdict(result.area),
        "rates": [asdict(rate) for rate in result.rates],
        "advantage": asdict(result.advantage),
    }
