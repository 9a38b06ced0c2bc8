"""Tau voting: a noisy count of each of several findings, of votes that are clipped together (mathematics.md, 2.6).

Dziedzic et al. 2023, "Private Multi-Winner Voting for Machine Learning", PoPETs 2023(1), arXiv 2211.15410, section 4:
a voter names a set of findings, a vector of 0 and 1, which is scaled down to an L2 norm of tau where it is longer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from math import inf, isqrt, nextafter
from typing import ClassVar, Final

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.bounds.label_only import threshold_rdp
from protocols.bounds.lattice_label_only import lattice_bit_rdp
from protocols.errors import InvalidInput
from protocols.mechanisms.gnmax import NoisyHistogram, sigma_words
from protocols.mechanisms.mechanism import Lattice, QueryCost, Sensitivity
from protocols.mechanisms.parameter import View, parameter
from protocols.noise import Noise, check_sigma
from protocols.votes import LATTICE

# The most findings of a query: a set of them is one number of 64 bits, of which one is the sign.
MOST_FINDINGS: Final = 62
# The usual tau for Pascal VOC in the authors' program (github.com/cleverhans-lab/private-multi-winner-voting).
_TAU: Final = 1.8


@dataclass(frozen=True, kw_only=True)
class TauVoting(NoisyHistogram):
    """Each finding whose count + N(0, sigma^2) reaches the threshold; what is released is the set, as a number.

    sigma: standard deviation in votes, > 0; tau: the norm to which a vote is clipped, >= 1, so that a single finding
    counts in full; threshold: votes, finite, the same for each finding; lattice: of integer noise, None for real-valued
    noise. Bit i of a label is finding i. Every query is answered, and costs one price.
    """

    sigma: float = field(
        metadata=parameter(
            "the standard deviation of the noise on each count, in votes", unit="votes", role="noise", default=0.16
        )
    )
    tau: float = field(metadata=parameter("the L2 norm to which a vote on several findings is clipped", default=_TAU))
    threshold: float = field(
        metadata=parameter(
            "the votes that the noisy count of a finding must reach", unit="votes", role="threshold", default=0.5
        )
    )
    lattice: Lattice | None = None
    name: ClassVar[str] = "tau"
    title: ClassVar[str] = "Tau voting"
    names_sets: ClassVar[bool] = True
    single_vote_bounds: ClassVar[tuple[str, ...]] = ("label_only",)

    def __post_init__(self) -> None:
        check_sigma("sigma", self.sigma)
        if not 1 <= self.tau < inf:
            raise InvalidInput(f"tau is {self.tau}; allowed: finite, at least 1")
        if not np.isfinite(self.threshold):
            raise InvalidInput(f"threshold is {self.threshold}; allowed: a finite number of votes")

    @classmethod
    def accountants(cls, *, view: View, on_lattice: bool, secret_coins: bool) -> tuple[str, ...]:
        # What a coin amplifies is proved for votes that move from one class to another.
        return () if secret_coins else super().accountants(view=view, on_lattice=on_lattice, secret_coins=False)

    def squared_move(self, classes: int) -> float:
        """min(2 tau^2, L), as the entries of a vote are in [0, 1]
        (docs/explanation/mathematics.md, section 2.6)."""
        return min(nextafter(2 * self.tau**2, inf), float(classes))

    def release(
        self,
        counts: Float64[ndarray, "queries findings"],
        noise: Noise,
        *,
        view: View,
        predictions: Float64[ndarray, "queries findings"] | None = None,
        total_weight: float | None = None,
    ) -> Int64[ndarray, " queries"]:
        present = self.noisy(counts, noise, view=view) >= self.threshold
        return set_of(present.astype(np.int64))

    def label_only_rdp(
        self, sensitivity: Sensitivity, orders: Float64[ndarray, " orders"], *, classes: int
    ) -> QueryCost:
        """The largest sum of the findings' bits over all pairs of sets (mathematics.md, section 2.6)."""
        units = LATTICE if self.lattice is None else self.lattice.units
        weights, back = np.unique(np.ceil(sensitivity.votes * units).astype(np.int64), return_inverse=True)
        cost = np.stack([self._label_rdp(int(weight), units, orders, findings=classes) for weight in weights])[back]
        if self.lattice is None or self.lattice.shares == 1:
            cost = np.minimum(cost, self.noise_rdp(sensitivity, orders, view="label").ask)
        return QueryCost(cost, np.zeros_like(cost))

    def _label_rdp(
        self, weight: int, units: int, orders: Float64[ndarray, " orders"], *, findings: int
    ) -> Float64[ndarray, " orders"]:
        moves = worst_moves(weight, tau=self.tau, findings=findings)
        sizes, at = np.unique(moves.sizes, return_inverse=True)
        if self.lattice is None:
            bits = threshold_rdp(sizes[:, None] / (units * self.sigma), orders[None, :])
        else:
            bits = lattice_bit_rdp(sizes, orders, sigma_units=self.sigma * units)
        each = bits[at.reshape(moves.sizes.shape)]
        worst: Float64[ndarray, " orders"] = (moves.times[:, :, None] * each).sum(axis=1).max(axis=0)
        return worst

    def released_words(self, *, total_weight: float) -> str:
        reach = f"{self.threshold:g} of {total_weight:.4g} votes"
        return (
            f"Tau voting: each finding whose noisy count reaches {reach}, of votes clipped to a norm of {self.tau:g}; "
            f"{sigma_words(self.sigma)}"
        )


@dataclass(frozen=True, eq=False)
class Moves:
    """How far one vote's change moves the counts: of each pair of sizes of sets, so many counts by so many units."""

    times: Int64[ndarray, "pairs 3"] = field(repr=False)
    sizes: Int64[ndarray, "pairs 3"] = field(repr=False)


def entries(weight: int, *, tau: float, findings: int) -> Int64[ndarray, " sizes"]:
    """What each finding of a set of k counts for, in whole lattice units, k from 0 to `findings`; weight: of the vote.

    w where k <= tau^2, else the floor of w tau/sqrt(k): the squared norm of a set is at most tau^2 w^2, exactly.
    """
    square = Fraction(tau) ** 2
    clipped = [isqrt(weight**2 * square.numerator // (square.denominator * k)) for k in range(1, findings + 1)]
    return np.array([weight, *(min(weight, each) for each in clipped)], dtype=np.int64)


def worst_moves(weight: int, *, tau: float, findings: int) -> Moves:
    """Of each two sizes of sets the pair that moves most: with the fewest findings in common (mathematics.md, 2.6)."""
    of_size, size = entries(weight, tau=tau, findings=findings), np.arange(findings + 1)
    before, after = (each.ravel() for each in np.meshgrid(size, size))
    common = np.maximum(before + after - findings, 0)
    times = np.stack([before - common, after - common, common], axis=1)
    sizes = np.stack([of_size[before], of_size[after], np.abs(of_size[before] - of_size[after])], axis=1)
    return Moves(times, sizes)


def set_of(present: Int64[ndarray, "... findings"]) -> Int64[ndarray, "..."]:
    """The number of each set: bit i is finding i; present: 0 or 1."""
    return present @ (1 << np.arange(present.shape[-1], dtype=np.int64))


def findings_of(sets: Int64[ndarray, "..."], *, findings: int) -> Int64[ndarray, "... findings"]:
    """0 or 1 for each finding of each set: `set_of` undone."""
    return (sets[..., None] >> np.arange(findings, dtype=np.int64)) & 1
