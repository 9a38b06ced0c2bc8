"""Worst-case accountants: what a query costs, what a budget affords, and back to an epsilon.

Each accountant has its own unit of account ("spend"): RDP at one order, or mu squared. All are data-independent,
so all may stop a study and enter a ledger. Which unit is protected enters as the sensitivity of a mechanism's
cost; which view is accounted for is an argument without a default.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from protocols.bounds.gaussian import gdp_epsilon, gdp_mu
from protocols.bounds.label_only import ORDERS
from protocols.bounds.rdp import epsilon_to_rdp, rdp_to_epsilon
from protocols.errors import InvalidInput
from protocols.mechanisms.mechanism import GaussianMechanism, Mechanism, NoiseLaw, QueryCost, Sensitivity, View


class Accountant(ABC):
    """One way to bound worst-case privacy loss. `orders` are its Renyi orders (NaN where it has none).

    statement: what its epsilon is, in one word; source: paper and theorem.
    """

    name: ClassVar[str]
    statement: ClassVar[str]
    source: ClassVar[str]
    views: ClassVar[tuple[View, ...]]
    noise_law: ClassVar[NoiseLaw]
    # Whether it holds for discrete Gaussians as well.
    lattice: ClassVar[bool] = False
    orders: Float64[ndarray, " orders"]

    @abstractmethod
    def query_cost(self, mechanism: Mechanism, sensitivity: Sensitivity, *, view: View, classes: int) -> QueryCost:
        """Spend of one query for units of each sensitivity, shapes [units, orders]. Raises as `check` does."""

    @abstractmethod
    def affords(
        self, epsilon: Float64[ndarray, " units"], delta: Float64[ndarray, " units"]
    ) -> Float64[ndarray, "units orders"]:
        """The spend at each order that (epsilon, delta) allows; <= 0 where that order cannot give it."""

    @abstractmethod
    def to_epsilon(
        self,
        spend: Float64[ndarray, " units"],
        orders: Float64[ndarray, " units"],
        delta: Float64[ndarray, " units"],
    ) -> Float64[ndarray, " units"]:
        """epsilon at delta of a spend at each unit's own fixed order; 0 where nothing was spent."""

    def check(self, mechanism: type[Mechanism] | Mechanism, view: View) -> None:
        """Raises InvalidInput where the view sees more than this bound allows for, or the noise has another law."""
        on_lattice = mechanism.lattice is not None
        if not self._holds(mechanism, view, on_lattice=on_lattice):
            allowed = [a.name for a in ACCOUNTANTS.values() if a._holds(mechanism, view, on_lattice=on_lattice)]
            raise InvalidInput(
                f"accountant {self.name!r} does not hold for view {view!r} of {mechanism.name}"
                f"{' with integer noise' if on_lattice else ''}; "
                f"allowed: {', '.join(allowed)}"
            )

    def _holds(self, mechanism: type[Mechanism] | Mechanism, view: View, *, on_lattice: bool) -> bool:
        return view in self.views and mechanism.noise_law == self.noise_law and (self.lattice or not on_lattice)


class _RenyiAccountant:
    """The parts that every RDP accountant shares; see Accountant."""

    orders = ORDERS

    def affords(
        self, epsilon: Float64[ndarray, " units"], delta: Float64[ndarray, " units"]
    ) -> Float64[ndarray, "units orders"]:
        return epsilon_to_rdp(epsilon[:, None], self.orders[None, :], delta=delta[:, None])

    def to_epsilon(
        self,
        spend: Float64[ndarray, " units"],
        orders: Float64[ndarray, " units"],
        delta: Float64[ndarray, " units"],
    ) -> Float64[ndarray, " units"]:
        return np.where(spend > 0, rdp_to_epsilon(spend, orders, delta=delta), 0.0)


class LabelOnly(_RenyiAccountant, Accountant):
    """Worst-case label-only RDP: only labels and refusals are seen (docs/explanation/mathematics.md, section 3)."""

    name = "label_only"
    statement = "worst_case_label_only"
    source = "docs/explanation/label-only-bound.md"
    views = ("label",)
    noise_law = "gaussian"
    lattice = True

    def query_cost(self, mechanism: Mechanism, sensitivity: Sensitivity, *, view: View, classes: int) -> QueryCost:
        self.check(mechanism, view)
        assert isinstance(mechanism, GaussianMechanism)
        return mechanism.label_only_rdp(sensitivity, self.orders, classes=classes)


class GaussianRdp(_RenyiAccountant, Accountant):
    """Worst-case RDP of the Gaussian mechanism (Mironov 2017, Prop. 7)."""

    name = "gaussian"
    statement = "worst_case_gaussian"
    source = "Mironov 2017, Prop. 7"
    views = ("label", "histogram")
    noise_law = "gaussian"
    lattice = True

    def query_cost(self, mechanism: Mechanism, sensitivity: Sensitivity, *, view: View, classes: int) -> QueryCost:
        self.check(mechanism, view)
        return mechanism.noise_rdp(sensitivity, self.orders, view=view)


class LaplaceRdp(_RenyiAccountant, Accountant):
    """Worst-case RDP of the Laplace mechanism (Mironov 2017, Prop. 6), for LNMax."""

    name = "laplace"
    statement = "worst_case_laplace"
    source = "Mironov 2017, Prop. 6"
    views = ("label", "histogram")
    noise_law = "laplace"

    def query_cost(self, mechanism: Mechanism, sensitivity: Sensitivity, *, view: View, classes: int) -> QueryCost:
        self.check(mechanism, view)
        return mechanism.noise_rdp(sensitivity, self.orders, view=view)


class GaussianDp(Accountant):
    """Exact Gaussian differential privacy; the spend is mu squared (Dong, Roth, Su 2022)."""

    name = "gaussian_dp"
    statement = "worst_case_gaussian"
    source = "Dong, Roth, Su 2022, Cor. 2.13"
    views = ("label", "histogram")
    noise_law = "gaussian"
    orders = np.array([np.nan])

    def query_cost(self, mechanism: Mechanism, sensitivity: Sensitivity, *, view: View, classes: int) -> QueryCost:
        self.check(mechanism, view)
        assert isinstance(mechanism, GaussianMechanism)
        return mechanism.gaussian_dp(sensitivity, view=view)

    def affords(
        self, epsilon: Float64[ndarray, " units"], delta: Float64[ndarray, " units"]
    ) -> Float64[ndarray, "units orders"]:
        return (gdp_mu(epsilon, delta) ** 2)[:, None]

    def to_epsilon(
        self,
        spend: Float64[ndarray, " units"],
        orders: Float64[ndarray, " units"],
        delta: Float64[ndarray, " units"],
    ) -> Float64[ndarray, " units"]:
        if not (spend >= 0).all():
            raise InvalidInput(f"spend is {spend.min()}; allowed: >= 0")
        return gdp_epsilon(np.sqrt(spend), delta)


ACCOUNTANTS: dict[str, Accountant] = {a.name: a for a in (LabelOnly(), GaussianRdp(), GaussianDp(), LaplaceRdp())}


def accountant(name: str) -> Accountant:
    """The accountant of that name. Raises InvalidInput with the known names."""
    if name not in ACCOUNTANTS:
        raise InvalidInput(f"accountant is {name!r}; allowed: {', '.join(ACCOUNTANTS)}")
    return ACCOUNTANTS[name]


def default_accountant(mechanism: type[Mechanism] | Mechanism, view: View) -> Accountant:
    """The tightest accountant that the noise and the view allow.

    Gaussian noise: label-only for labels, exact Gaussian DP for histograms (of integer noise: Gaussian RDP, as a
    discrete Gaussian is not Gaussian DP); Laplace noise: its own RDP.
    """
    if mechanism.noise_law == "laplace":
        return ACCOUNTANTS["laplace"]
    if view == "histogram" and mechanism.lattice is not None:
        return ACCOUNTANTS["gaussian"]
    return ACCOUNTANTS["label_only" if view == "label" else "gaussian_dp"]
