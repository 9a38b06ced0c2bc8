"""Worst-case accountants: what a query costs, what a budget affords, and back to an epsilon.

Each accountant has its own unit of account ("spend"): RDP at one order, or mu squared. All are data-independent,
so all may stop a study and enter a ledger. The protected unit determines the sensitivity of a mechanism's cost; the
view that is accounted for is an argument without a default.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from protocols.bounds.gaussian import gdp_epsilon, gdp_mu
from protocols.bounds.label_only import ORDERS
from protocols.bounds.label_pairs import LabelPairs
from protocols.bounds.rdp import epsilon_to_rdp, rdp_to_epsilon
from protocols.errors import InvalidInput
from protocols.mechanisms import Mechanism, QueryCost, Sensitivity, View
from protocols.plugins import Parts


class Accountant(ABC):
    """One way to bound worst-case privacy loss. `orders` are its Renyi orders (NaN where it has none).

    statement: what its epsilon is, in one word; source: paper and theorem; noise_law: for which noise, in a word.
    A mechanism itself says which accountants are valid for it; one that only converts another's bound names that, as
    `bound`.
    """

    name: ClassVar[str]
    statement: ClassVar[str]
    source: ClassVar[str]
    views: ClassVar[tuple[View, ...]]
    noise_law: ClassVar[str]
    # The unit of a billionth of its spend, in which ledgers count; spends of one unit add up.
    unit: ClassVar[str]
    # Whether its bound is proved for units that move a single vote only.
    single_vote: ClassVar[bool] = False
    orders: Float64[ndarray, " orders"]

    @abstractmethod
    def query_cost(self, mechanism: Mechanism, sensitivity: Sensitivity, *, view: View, classes: int) -> QueryCost:
        """Spend of one query for units of each sensitivity, shapes [units, orders]. Raises as `check` does."""

    @abstractmethod
    def affords(
        self, epsilon: Float64[ndarray, " units"], delta: Float64[ndarray, " units"]
    ) -> Float64[ndarray, "units orders"]:
        """The spend at each order that (epsilon, delta) allows; <= 0 if that order cannot give it."""

    @abstractmethod
    def to_epsilon(
        self, spend: Float64[ndarray, " units"], orders: Float64[ndarray, " units"], delta: Float64[ndarray, " units"]
    ) -> Float64[ndarray, " units"]:
        """The epsilon at delta of a spend at each unit's own fixed order; 0 if nothing was spent."""

    @abstractmethod
    def meaning(self, mechanism: Mechanism) -> str:
        """What its epsilon means, in plain words."""

    def pairs(self, mechanism: Mechanism, units: Sensitivity, *, view: View, classes: int) -> LabelPairs | None:
        """What one query reveals, if this accountant fixes the number of queries beforehand and counts them; else None.

        Raises InvalidInput where it does not hold.
        """
        return None

    @property
    def bound(self) -> str:
        """The name of the accountant whose bound it uses: its own, unless it only converts another's bound."""
        return self.name

    def source_for(self, mechanism: Mechanism) -> str:
        """The paper and theorem behind its charge for this mechanism."""
        return self.source

    def check(
        self,
        mechanism: type[Mechanism] | Mechanism,
        view: View,
        *,
        secret_coins: bool = False,
        several_votes: bool = False,
    ) -> None:
        """Raises InvalidInput if it is not valid for the view, the noise, secret coins, or a unit's several votes."""
        if self.bound not in (allowed := _holding(mechanism, view, secret_coins=secret_coins)):
            raise InvalidInput(
                f"accountant {self.name!r} does not hold for {_seen(mechanism, view, secret_coins=secret_coins)}; "
                f"allowed: {', '.join(allowed)}"
            )
        if several_votes and (self.single_vote or self.bound in mechanism.single_vote_bounds):
            others = [
                name
                for name in allowed
                if not ACCOUNTANTS[name].single_vote and name not in mechanism.single_vote_bounds
            ]
            raise InvalidInput(
                f"accountant {self.name!r} is proved for units that move one vote, and here a unit moves several; "
                f"allowed: {', '.join(others)}; or unit 'record' or one teacher per party, and no upsampling"
            )


class RenyiAccountant:
    """The parts that every RDP accountant shares; see Accountant."""

    unit = "nano-RDP"
    orders = ORDERS

    def affords(
        self, epsilon: Float64[ndarray, " units"], delta: Float64[ndarray, " units"]
    ) -> Float64[ndarray, "units orders"]:
        return epsilon_to_rdp(epsilon[:, None], self.orders[None, :], delta=delta[:, None])

    def to_epsilon(
        self, spend: Float64[ndarray, " units"], orders: Float64[ndarray, " units"], delta: Float64[ndarray, " units"]
    ) -> Float64[ndarray, " units"]:
        return np.where(spend > 0, rdp_to_epsilon(spend, orders, delta=delta), 0.0)


# How the statement of each Renyi accountant ends; see RenyiAccountant.
_CONVERTED = "at one order per party, fixed beforehand; converted as in Canonne, Kamath and Steinke 2020"


class LabelOnly(RenyiAccountant, Accountant):
    """Worst-case label-only RDP: only labels and refusals are seen (docs/explanation/mathematics.md, section 3)."""

    name = "label_only"
    statement = "worst_case_label_only"
    source = "docs/explanation/label-only-bound.md"
    views = ("label",)
    noise_law = "gaussian"

    def query_cost(self, mechanism: Mechanism, sensitivity: Sensitivity, *, view: View, classes: int) -> QueryCost:
        self.check(mechanism, view, secret_coins=sensitivity.sampled)
        return mechanism.label_only_rdp(sensitivity, self.orders, classes=classes)

    def meaning(self, mechanism: Mechanism) -> str:
        return (
            "worst case, label only: what a label or an abstention can reveal at most, in Rényi differential privacy "
            f"{_CONVERTED}"
        )


class ExactComposition(LabelOnly):
    """Exact composition of a number of labels that is fixed beforehand (docs/explanation/exact-composition.md).

    Its cap is that number. Its costs are those of LabelOnly: with them a study composes with others, and is planned
    roughly.
    """

    name = "exact_composition"
    statement = "worst_case_label_only_exact_composition"
    source = "docs/explanation/exact-composition.md"
    single_vote = True

    def pairs(self, mechanism: Mechanism, units: Sensitivity, *, view: View, classes: int) -> LabelPairs | None:
        self.check(mechanism, view, secret_coins=units.sampled)
        return mechanism.label_pairs(units, classes=classes)

    def meaning(self, mechanism: Mechanism) -> str:
        return (
            "worst case, label only, for a number of queries that was fixed beforehand: what that many labels or "
            "abstentions can reveal at most, by exact composition"
        )


class NoiseRdp(RenyiAccountant, Accountant):
    """Worst-case RDP that a mechanism proves for its own noise, whatever that is."""

    name = "renyi"
    statement = "worst_case"
    source = "the mechanism's own"
    views = ("label", "histogram")
    noise_law = "the mechanism's own"

    def query_cost(self, mechanism: Mechanism, sensitivity: Sensitivity, *, view: View, classes: int) -> QueryCost:
        self.check(mechanism, view, secret_coins=sensitivity.sampled)
        return mechanism.noise_rdp(sensitivity, self.orders, view=mechanism.charged_view(view))

    def meaning(self, mechanism: Mechanism) -> str:
        return (
            f"worst case of {mechanism.title} ({mechanism.rdp_source}): what its output can reveal at most, in Rényi "
            f"differential privacy {_CONVERTED}"
        )

    def source_for(self, mechanism: Mechanism) -> str:
        return mechanism.rdp_source


class _OfOneLaw(NoiseRdp):
    def meaning(self, mechanism: Mechanism) -> str:
        bound = f"worst case, {self.noise_law.capitalize()} bound"
        return f"{bound}: what the noisy counts can reveal at most, in Rényi differential privacy {_CONVERTED}"


class GaussianRdp(_OfOneLaw):
    """Worst-case RDP of the Gaussian mechanism (Mironov 2017, Prop. 7)."""

    name = "gaussian"
    statement = "worst_case_gaussian"
    source = "Mironov 2017, Prop. 7"
    noise_law = "gaussian"


class LaplaceRdp(_OfOneLaw):
    """Worst-case RDP of the Laplace mechanism (Mironov 2017, Prop. 6), for LNMax."""

    name = "laplace"
    statement = "worst_case_laplace"
    source = "Mironov 2017, Prop. 6"
    noise_law = "laplace"


class GaussianDp(Accountant):
    """Exact Gaussian differential privacy; the spend is mu squared (Dong, Roth, Su 2022).

    For integer noise, of a histogram, as lattice_gaussian.py says.
    """

    name = "gaussian_dp"
    statement = "worst_case_gaussian"
    source = "Dong, Roth, Su 2022, Cor. 2.13"
    unit = "nano-mu^2"
    views = ("label", "histogram")
    noise_law = "gaussian"
    orders = np.array([np.nan])

    def query_cost(self, mechanism: Mechanism, sensitivity: Sensitivity, *, view: View, classes: int) -> QueryCost:
        self.check(mechanism, view, secret_coins=sensitivity.sampled)
        return mechanism.gaussian_dp(sensitivity, view=mechanism.charged_view(view))

    def meaning(self, mechanism: Mechanism) -> str:
        return (
            "worst case, Gaussian bound: what the noisy counts can reveal at most, by exact Gaussian differential "
            "privacy (Dong, Roth and Su 2022)"
        )

    def affords(
        self, epsilon: Float64[ndarray, " units"], delta: Float64[ndarray, " units"]
    ) -> Float64[ndarray, "units orders"]:
        return (gdp_mu(epsilon, delta) ** 2)[:, None]

    def to_epsilon(
        self, spend: Float64[ndarray, " units"], orders: Float64[ndarray, " units"], delta: Float64[ndarray, " units"]
    ) -> Float64[ndarray, " units"]:
        if not (spend >= 0).all():
            raise InvalidInput(f"spend is {spend.min()}; allowed: >= 0")
        return gdp_epsilon(np.sqrt(spend), delta)


def _check(name: str, loaded: object) -> Accountant:
    if not isinstance(loaded, Accountant):
        raise InvalidInput(f"it is {loaded!r}; allowed: an Accountant")
    if loaded.name != name:
        raise InvalidInput(f"its name is {loaded.name!r}; allowed: {name!r}")
    if loaded.unit != RenyiAccountant.unit or not np.array_equal(loaded.orders, ORDERS):
        raise InvalidInput(
            f"it counts in {loaded.unit} at {len(loaded.orders)} orders; allowed: {RenyiAccountant.unit} at the "
            f"{len(ORDERS)} ORDERS, at which a hospital adds up studies"
        )
    return loaded


ACCOUNTANTS = Parts(
    "accountant",
    {a.name: a for a in (ExactComposition(), LabelOnly(), GaussianRdp(), GaussianDp(), LaplaceRdp(), NoiseRdp())},
    group="conclave.accountants",
    check=_check,
)


def accountant(name: str) -> Accountant:
    """The accountant of that name. Raises InvalidInput with the known names."""
    return ACCOUNTANTS[name]


def default_accountant(mechanism: type[Mechanism] | Mechanism, view: View, *, secret_coins: bool = False) -> Accountant:
    """The first accountant that the mechanism names for its noise, the view and the participation, and that holds for
    units which move several votes, if there is one. Raises InvalidInput if there is none."""
    known = [accountant(name) for name in _holding(mechanism, view, secret_coins=secret_coins)]
    return next((each for each in known if not each.single_vote), known[0])


def _holding(mechanism: type[Mechanism] | Mechanism, view: View, *, secret_coins: bool) -> tuple[str, ...]:
    """The names of the valid accountants, the tightest first. Raises InvalidInput if none is valid."""
    on_lattice = mechanism.lattice is not None
    names = mechanism.holding(view=view, on_lattice=on_lattice, secret_coins=secret_coins)
    if isinstance(mechanism, Mechanism) and mechanism.coarse:
        names = tuple(name for name in names if name != GaussianDp.name)
    if not names:
        raise InvalidInput(
            f"no accountant holds for {_seen(mechanism, view, secret_coins=secret_coins)}; allowed: another mechanism, "
            "view or participation, or one that proves the bounds of its own release"
        )
    return names


def _seen(mechanism: type[Mechanism] | Mechanism, view: View, *, secret_coins: bool) -> str:
    noise = " with integer noise" if mechanism.lattice is not None else ""
    return f"view {view!r} of {mechanism.name}{noise}{' with secret coins' if secret_coins else ''}"
