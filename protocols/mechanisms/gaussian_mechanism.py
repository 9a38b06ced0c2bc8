"""What mechanisms with Gaussian noise have in common: their accountants, their lattice, and their exact law."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import ClassVar

from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.bounds.lattice_gaussian import least_sigma_units
from protocols.mechanisms.decision import Decision
from protocols.mechanisms.mechanism import Lattice, Mechanism, QueryCost, Sensitivity
from protocols.mechanisms.parameter import View


class GaussianMechanism(Mechanism):
    """A mechanism with Gaussian noise, for which label-only bounds hold, and Gaussian DP unless its lattice is coarse.

    sigma: standard deviation of the noise on each count, votes.
    """

    noise_law: ClassVar[str] = "gaussian"
    rdp_source: ClassVar[str] = "Mironov 2017, Prop. 7"
    sigma: float
    lattice: Lattice | None

    @classmethod
    def accountants(cls, *, view: View, on_lattice: bool, secret_coins: bool) -> tuple[str, ...]:
        # A mixture over coins is not Gaussian DP; a label of integer noise is not a function of a label of real noise.
        exact = () if secret_coins or (on_lattice and view == "label") else ("gaussian_dp",)
        return ("label_only", "gaussian", *exact) if view == "label" else (*exact, "gaussian")

    def on_lattice(self, lattice: Lattice | None) -> GaussianMechanism:
        if lattice == self.lattice:
            return self
        return replace(self, lattice=lattice)  # type: ignore[type-var]  # every mechanism is a dataclass

    @property
    def coarse(self) -> bool:
        lattice = self.lattice
        return lattice is not None and self.sigma * lattice.units < least_sigma_units(lattice.shares)

    @property
    def label_sigma(self) -> float:
        return self.sigma

    @abstractmethod
    def label_only_rdp(
        self, sensitivity: Sensitivity, orders: Float64[ndarray, " orders"], *, classes: int
    ) -> QueryCost:
        """Worst-case RDP of the label view, at most the Gaussian bound (docs/explanation/mathematics.md, section 3)."""

    @abstractmethod
    def gaussian_dp(self, sensitivity: Sensitivity, *, view: View) -> QueryCost:
        """mu squared of Gaussian differential privacy (Dong, Roth, Su 2022), shapes [units, 1].

        Raises InvalidInput for units whose vote enters by a secret coin: a mixture is not Gaussian DP.
        """

    def decision(self, *, second_round: bool) -> Decision:
        """How a query of this round is decided; under the view "histogram" a threshold is held against what is seen."""
        return Decision(sigma=self.sigma)

    @property
    def threshold_noise(self) -> float | None:
        return self.decision(second_round=False).sigma_threshold

    @property
    def tested_scale(self) -> float | None:
        decision = self.decision(second_round=False)
        return decision.sigma if decision.one_draw else decision.sigma_threshold

    def outcome_log_law(
        self,
        counts: Float64[ndarray, "*pairs levels"],
        multiplicity: Int64[ndarray, " levels"],
        *,
        offsets: Float64[ndarray, "*pairs levels"] | None = None,
    ) -> Float64[ndarray, "*pairs outcomes"]:
        return self.decision(second_round=offsets is not None).log_law(counts, multiplicity, offsets=offsets)

    def noise_log_density(self, z: Float64[ndarray, "..."]) -> Float64[ndarray, "..."]:
        return -z * z / 2
