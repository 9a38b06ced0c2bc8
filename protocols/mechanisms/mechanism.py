"""What a mechanism is: noise that turns weighted histograms into labels, and its own worst-case cost.

A mechanism knows what one query costs one protected unit of sensitivity s (votes), as two parts: what is charged
for every query that is asked, and what is added when it is answered. That the answer is charged only when given
is legitimate under a filter, because whether a query was answered is public (PRIVACY.md, section 2; Feldman &
Zrnic 2021).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.errors import InvalidInput
from protocols.noise import StandardNormal

View = Literal["label", "histogram"]
VIEWS: tuple[View, ...] = ("label", "histogram")


@dataclass(frozen=True)
class QueryCost:
    """Privacy cost of one query, in the units of an accountant (RDP at each order, or mu squared).

    ask: paid for every query asked; answer: added when it was answered. Shapes [units, orders].
    """

    ask: Float64[ndarray, "units orders"]
    answer: Float64[ndarray, "units orders"]


class Mechanism(ABC):
    """A noisy argmax of weighted votes. Implementations are frozen dataclasses with keyword-only parameters."""

    name: ClassVar[str]

    @classmethod
    @abstractmethod
    def parameters(cls, *, view: View) -> tuple[str, ...]:
        """Which of sigma, sigma_threshold and threshold (all in votes) it takes under a view."""

    @classmethod
    @abstractmethod
    def build(cls, *, sigma: float, sigma_threshold: float | None, threshold: float | None, view: View) -> Mechanism:
        """The mechanism with a study's noise. Raises InvalidInput for a parameter that is missing or has no use."""

    @abstractmethod
    def release(
        self, counts: Float64[ndarray, "queries classes"], noise: StandardNormal, *, view: View
    ) -> Int64[ndarray, " queries"]:
        """One label or ABSTAIN a query; draws all its noise from `noise`."""

    @abstractmethod
    def gaussian_rdp(
        self, sensitivity: Float64[ndarray, " units"], orders: Float64[ndarray, " orders"], *, view: View
    ) -> QueryCost:
        """Worst-case RDP by the Gaussian bound: a s^2/sigma^2 for a histogram, a s^2/(2 sigma^2) for a bit."""

    @abstractmethod
    def label_only_rdp(
        self, sensitivity: Float64[ndarray, " units"], orders: Float64[ndarray, " orders"], *, classes: int
    ) -> QueryCost:
        """Worst-case RDP of the label view (PRIVACY.md section 2); never above the Gaussian bound."""

    @abstractmethod
    def gaussian_dp(self, sensitivity: Float64[ndarray, " units"], *, view: View) -> QueryCost:
        """mu squared of Gaussian differential privacy (Dong, Roth, Su 2022), shapes [units, 1]."""

    @abstractmethod
    def float_noise_distance(self, *, classes: int, total_weight: float) -> float:
        """Total variation distance per query between float64 noise and ideal noise, label view."""


def check_view(view: str) -> View:
    """`view` itself, if it is one; InvalidInput otherwise."""
    for known in VIEWS:
        if view == known:
            return known
    raise InvalidInput(f"view is {view!r}; allowed: {', '.join(VIEWS)}")
