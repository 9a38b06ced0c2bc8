"""A lifetime cap and how full it is, now and with one more study."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor

from party.lifetime import LifetimeCap, allowance, epsilon_reached
from protocols.plural import at_least, at_most


@dataclass(frozen=True)
class LifetimeUse:
    """A lifetime cap and how full it is.

    currency: its filter's; reserved: nano-units; noise_used, noise_room: total variation
    distances of float64 noise from ideal noise, of all studies and allowed (party.lifetime.first_order); forfeited:
    whether it is charged in full, whatever is reserved (party.budget.forfeits).
    """

    data_set: str
    unit: str
    cap: LifetimeCap
    currency: float
    reserved: int = 0
    noise_used: float = 0.0
    noise_room: float = 0.0
    forfeited: bool = False

    @property
    def allowed(self) -> int:
        """Nano-units that may be reserved in total."""
        return allowance(self.cap, self.currency, self.noise_room)

    @property
    def epsilon_reserved(self) -> float:
        """The epsilon, at the cap's delta, of what is reserved."""
        return self.cap.epsilon if self.forfeited else self.epsilon_of(self.reserved, self.noise_used)

    def epsilon_of(self, nano: int, noise_distance: float) -> float:
        """The epsilon, at the cap's delta, of `nano` units alone, with noise at this distance from ideal noise."""
        return epsilon_reached(nano, self.currency, delta=self.cap.delta, noise_distance=noise_distance)

    @property
    def share(self) -> float:
        """The share, at least 0, of the allowed nano-units that is reserved."""
        if self.forfeited:
            return 1.0
        return self.reserved / self.allowed if self.allowed else float(self.reserved > 0)


@dataclass(frozen=True)
class Forecast:
    """What approving a study would do to one lifetime cap."""

    before: LifetimeUse
    after: LifetimeUse
    fits: bool


def too_much(forecast: Forecast) -> str:
    """The message that a study does not fit; its shares are rounded so that they never look as if it did."""
    before, after = forecast.before, forecast.after
    cap = f"epsilon {at_most(after.cap.epsilon)} at delta {at_most(after.cap.delta)}"
    said = f"unit {after.unit!r}: {cap} for {after.data_set!r}"
    if not after.noise_used <= after.noise_room:
        return (
            f"{said}: the share of delta set aside for float64 rounding of noise, fixed with the first study, allows a "
            f"distance of {after.noise_room:.3g}, and with this study {after.noise_used:.3g} would be needed; allowed: "
            "a study with integer noise (units in its level), or with fewer queries"
        )
    added, free = after.reserved - before.reserved, max(after.allowed - before.reserved, 0)
    wanted, left = ceil(1000 * added / after.allowed) / 10, floor(1000 * free / after.allowed) / 10
    alone, least = (before.epsilon_of(nano, after.noise_used - before.noise_used) for nano in (added, free))
    return (
        f"{said}: the study may use {wanted:.1f} % of it (alone epsilon {at_most(alone)}); allowed: at most the "
        f"{left:.1f} % that is left (alone epsilon {at_least(least)}). A cap of epsilon "
        f"{at_most(after.epsilon_reserved)} would have admitted it, but a cap is fixed with its first study"
    )
