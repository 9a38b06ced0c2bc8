"""What a mechanism is: noise that turns weighted histograms into labels, and its own worst-case cost.

A mechanism knows what one query costs one protected unit of sensitivity s (votes), as two parts: what is charged
for every query that is asked, and what is added when it is answered. That the answer is charged only when given
is valid under a filter, because whether a query was answered is public (docs/explanation/mathematics.md, section 5.4).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.errors import InvalidInput
from protocols.noise import Noise

View = Literal["label", "histogram"]
VIEWS: tuple[View, ...] = ("label", "histogram")
NoiseLaw = Literal["gaussian", "laplace"]

# Every parameter that some mechanism takes, and what it is.
PARAMETERS: dict[str, str] = {
    "sigma": "the standard deviation of the label noise, in votes",
    "sigma_threshold": "the standard deviation of the threshold noise, in votes",
    "threshold": "the votes that the noisy plurality must reach",
    "gamma": "the inverse scale of Laplace noise, per vote",
    "interactive_threshold": "the votes by which parties and student must differ in round two",
    "reinforce_confidence": "the student's confidence from which its own label is reinforced, in (0, 1]",
}


@dataclass(frozen=True)
class QueryCost:
    """Privacy cost of one query, in the units of an accountant (RDP at each order, or mu squared).

    ask: paid for every query asked; answer: added when it was answered. Shapes [units, orders].
    """

    ask: Float64[ndarray, "units orders"]
    answer: Float64[ndarray, "units orders"]


@dataclass(frozen=True)
class Sensitivity:
    """How much protected units move: their total vote weight, and how often it enters.

    votes: >= 0, in votes, one a unit; rate: in (0, 1], the probability with which the unit's vote enters a query by
    a coin that nobody but its node sees (1: it always enters; docs/explanation/mathematics.md, section 6).
    """

    votes: Float64[ndarray, " units"]
    rate: Float64[ndarray, " units"]

    def __post_init__(self) -> None:
        if not (np.isfinite(self.votes).all() and (self.votes >= 0).all()):
            raise InvalidInput(f"units move {self.votes} votes; allowed: finite, >= 0")
        if not ((self.rate > 0).all() and (self.rate <= 1).all()):
            raise InvalidInput(f"rates are {self.rate}; allowed: in (0, 1]")

    @classmethod
    def always(cls, votes: Float64[ndarray, " units"]) -> Sensitivity:
        """Units whose vote enters every query, or of which everybody sees whether it does."""
        return cls(votes, np.ones_like(votes))

    @property
    def sampled(self) -> bool:
        """Whether some unit's vote enters by a secret coin."""
        return bool((self.rate < 1).any())


@dataclass(frozen=True)
class Lattice:
    """Integer noise, drawn exactly from discrete Gaussians, on votes that are whole multiples of 1/units.

    units: lattice units a vote, a power of two; shares: how many honest parties' independent shares make up the noise
    that is accounted for, 1 where one server draws all of it; classes: cells of a histogram.
    """

    units: int
    shares: int
    classes: int


class Mechanism(ABC):
    """A noisy argmax of weighted votes. Implementations are frozen dataclasses with keyword-only parameters."""

    name: ClassVar[str]
    # The law of the noise that is added to the histogram.
    noise_law: ClassVar[NoiseLaw]
    # Of integer noise; None for real-valued noise. A field of every mechanism with Gaussian noise.
    lattice: Lattice | None = None
    # Whether a second round compares the votes with a student's predictions.
    interactive: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def parameters(cls, *, view: View) -> tuple[str, ...]:
        """Which of PARAMETERS it takes under a view."""

    @classmethod
    def build(cls, *, view: View, given: Mapping[str, float | None], lattice: Lattice | None = None) -> Mechanism:
        """The mechanism with a study's noise; lattice: None for real-valued noise.

        Raises InvalidInput for a parameter that is missing or has no use.
        """
        wanted = cls.parameters(view=view)
        for name in wanted:
            if given.get(name) is None:
                raise InvalidInput(f"{name} is missing; {cls.name} needs it: {PARAMETERS[name]}")
        for name, value in given.items():
            if name not in PARAMETERS:
                raise InvalidInput(f"{name!r} is no parameter of a mechanism; allowed: {', '.join(PARAMETERS)}")
            if value is not None and name not in wanted:
                raise InvalidInput(
                    f"{name} is {value:g}; {cls.name} has no use for it under the view {view!r}: leave it out"
                )
        taken = {field.name for field in fields(cls)}  # type: ignore[arg-type]  # every mechanism is a dataclass
        if lattice is not None and "lattice" not in taken:
            raise InvalidInput(f"{cls.name} has no integer noise; allowed: a mechanism with Gaussian noise")
        values: dict[str, float | Lattice | None] = {name: given.get(name) for name in taken}
        if "lattice" in taken:
            values["lattice"] = lattice
        return cls(**values)  # type: ignore[arg-type]  # its dataclass checks the values

    @abstractmethod
    def release(
        self,
        counts: Float64[ndarray, "queries classes"],
        noise: Noise,
        *,
        view: View,
        predictions: Float64[ndarray, "queries classes"] | None = None,
        total_weight: float | None = None,
    ) -> Int64[ndarray, " queries"]:
        """One label or ABSTAIN a query; draws all its noise from `noise`.

        predictions: for an interactive mechanism's second round, the student's probabilities (public), with the
        nominal public total_weight in votes; None in all other cases.
        """

    @abstractmethod
    def noise_rdp(self, sensitivity: Sensitivity, orders: Float64[ndarray, " orders"], *, view: View) -> QueryCost:
        """Worst-case RDP of the noise itself, as if the noisy histogram (and threshold sum) were seen."""

    @abstractmethod
    def noise_distance(self, *, classes: int, total_weight: float) -> float:
        """Total variation distance per query between the noise that is drawn and ideal noise, label view."""


class GaussianMechanism(Mechanism):
    """A mechanism with Gaussian noise, for which label-only bounds hold; Gaussian DP only where lattice is None."""

    noise_law: ClassVar[NoiseLaw] = "gaussian"

    @abstractmethod
    def label_only_rdp(
        self, sensitivity: Sensitivity, orders: Float64[ndarray, " orders"], *, classes: int
    ) -> QueryCost:
        """Worst-case RDP of the label view, at most the Gaussian bound (docs/explanation/mathematics.md, section 3)."""

    def needed(self, *, second_round: bool) -> float | None:
        """The votes that the noisy maximum must reach in a round; None where every query is answered."""
        return None

    @abstractmethod
    def gaussian_dp(self, sensitivity: Sensitivity, *, view: View) -> QueryCost:
        """mu squared of Gaussian differential privacy (Dong, Roth, Su 2022), shapes [units, 1].

        Raises InvalidInput for units whose vote enters by a secret coin: a mixture is not Gaussian DP.
        """


def check_view(view: str) -> View:
    """`view` itself, if it is one; InvalidInput otherwise."""
    for known in VIEWS:
        if view == known:
            return known
    raise InvalidInput(f"view is {view!r}; allowed: {', '.join(VIEWS)}")
