"""A lifetime cap and how full it is, now and with one study more."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor

from party.lifetime import LifetimeCap, allowance, epsilon_reached


@dataclass(frozen=True)
class Standing:
    """A lifetime cap and how full it is: nano-units reserved of those allowed, and the epsilon that they amount to.

    noise_used, noise_room: total variation distances of float64 noise from ideal noise, of all studies and allowed; see
    party.lifetime.first_order.
    """

    data_set: str
    unit: str
    cap: LifetimeCap
    currency: float | None
    reserved: int
    allowed: int
    epsilon_reserved: float
    noise_used: float
    noise_room: float

    @property
    def share(self) -> float:
        """Reserved, as a share of what is allowed."""
        return self.reserved / self.allowed if self.allowed else float(self.reserved > 0)


@dataclass(frozen=True)
class Forecast:
    """What approving a study would do to one lifetime cap."""

    before: Standing
    after: Standing
    fits: bool


def filled(
    data_set: str, unit: str, cap: LifetimeCap, currency: float, room: float, nano: int, distance: float
) -> Standing:
    """A cap of which `nano` are reserved, by studies whose noise is at most `distance` from ideal noise."""
    return Standing(
        data_set,
        unit,
        cap,
        currency,
        nano,
        allowance(cap, currency, room),
        epsilon_reached(nano, currency, delta=cap.delta, noise_distance=distance),
        noise_used=distance,
        noise_room=room,
    )


def too_much(forecast: Forecast) -> str:
    """Shares of the cap, rounded against the study: it never reads as if it fitted."""
    before, after = forecast.before, forecast.after
    cap = f"epsilon {after.cap.epsilon:g} at delta {after.cap.delta:g}"
    said = f"unit {after.unit!r}: {cap} for {after.data_set!r}"
    if not after.noise_used <= after.noise_room:
        return (
            f"{said}: its share of delta for the rounding of float64 noise, fixed with the first study, bears a "
            f"distance of {after.noise_room:.3g}, and {after.noise_used:.3g} were needed with this study; allowed: a "
            "study of integer noise (units in its level), or of fewer queries"
        )
    wanted = ceil(1000 * (after.reserved - before.reserved) / after.allowed) / 10
    left = floor(1000 * max(1 - before.reserved / after.allowed, 0.0)) / 10
    return f"{said}: the study may use {wanted:.1f} % of it; allowed: at most the {left:.1f} % that is left"
