"""Individualized PATE by vanishing: a party takes part in some queries only (Boenisch et al. 2023, Appendix B, C).

Three ways, by name:
- all: every party takes part in every query.
- periodic: in a public, fixed pattern, at each party's own rate; for each rate the number of voters varies by at most
  one. Everybody sees who takes part, so there is no amplification: a query in which a party takes part costs it the
  full
  price, and any other nothing.
- secret: by a coin that only the party's node sees. Every query costs, whether the vote entered or not, but less
  (privacy amplification, bounds/secret_sampling.py).

Rates are whole multiples of 1/LATTICE, so that the pattern is integer arithmetic and every side computes the same one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float64, Int64
from numpy import ndarray

from protocols.crypto.randomness import RandomSource
from protocols.errors import InvalidInput
from protocols.votes import LATTICE

Pattern = Literal["all", "periodic", "secret"]
PATTERNS: tuple[Pattern, ...] = ("all", "periodic", "secret")
_BITS = 20
assert LATTICE == 1 << _BITS


@dataclass(frozen=True, eq=False)
class Participation:
    """Who takes part in, and so pays for, which query, as far as that is public. Built by `participation`.

    paid: queries from this one on are paid for with those before; None: there are none.
    steps: rates in units of 1/LATTICE, in [1, LATTICE]; phases: where in the pattern each party starts, in [0,
    LATTICE). Party p takes part in query q where floor((q + 1) rate + phase) is above floor(q rate + phase): a
    rotation. Parties of the same rate start evenly spread, so that the number of them that vote varies by at most one.
    """

    pattern: Pattern
    steps: Int64[ndarray, " parties"]
    phases: Int64[ndarray, " parties"]
    paid: int | None = None

    @property
    def everyone(self) -> bool:
        """Whether every party takes part in every query, as far as that is public."""
        return bool((self.steps == LATTICE).all())

    def of(self, seat: int) -> Participation:
        """The participation of one seat alone."""
        return Participation(self.pattern, self.steps[seat : seat + 1], self.phases[seat : seat + 1], self.paid)

    def among(self, start: int, stop: int) -> Int64[ndarray, " parties"]:
        """The number of queries among start, ..., stop - 1 in which each party takes part."""
        return self._before(stop) - self._before(start)

    def votes(self, ids: Int64[ndarray, " queries"]) -> Bool[ndarray, "parties queries"]:
        """Whether each party takes part in each of these queries."""
        return self._before(ids[None, :] + 1) != self._before(ids[None, :])

    def reach(self, start: int, affordable: Int64[ndarray, " parties"], *, limit: int) -> Int64[ndarray, " parties"]:
        """The most queries from `start` on, at most `limit`, in which each party takes part no more than it affords.

        affordable: how many queries it can afford to take part in, >= 0.
        """
        often = np.minimum(affordable, limit)
        # The first query at which a party would take part once too often: floor(q rate + phase) reaches before + often
        # + 1.
        first_too_many = -(-(((self._before(start) + often + 1) << _BITS) - self.phases) // self.steps)
        return np.minimum(first_too_many - 1 - start, limit)

    def _before(self, queries: int | Int64[ndarray, "..."]) -> Int64[ndarray, "..."]:
        """The number of the first `queries` queries in which each party takes part."""
        steps, phases = self.steps, self.phases
        if self.paid is not None:
            queries = np.minimum(queries, self.paid)
        if isinstance(queries, np.ndarray):
            steps, phases = steps[:, None], phases[:, None]
        return (queries * steps + phases) >> _BITS


def participation(pattern: Pattern, rate: Float64[ndarray, " parties"], *, paid: int | None = None) -> Participation:
    """The public part of who takes part, for rates that `check_rate` accepts. paid: see Participation.

    Only a periodic pattern leaves parties out in public; in the others every party takes part in every query.
    """
    steps = np.rint(rate * LATTICE).astype(np.int64)
    if pattern != "periodic":
        return Participation(pattern, np.full_like(steps, LATTICE), np.zeros_like(steps), paid)
    _, member, size = np.unique(steps, return_inverse=True, return_counts=True)
    # The position of each party among those of its rate.
    order = np.argsort(member, kind="stable")
    position = np.empty_like(order)
    position[order] = np.arange(len(order)) - np.repeat(np.cumsum(size) - size, size)
    return Participation(pattern, steps, (position * LATTICE) // size[member], paid)


def coins(source: RandomSource, rate: float, *, teachers: int, queries: int) -> Bool[ndarray, "teachers queries"]:
    """Whether each vote of a party enters: one fresh coin per teacher and query, from 8 bytes of `source` each.

    Each vote has its own coin: votes that entered together would reveal each other's coin, and a record's vote would
    cost more than the amplified bound. rate: a multiple of 1/LATTICE; the coin is exact, as it compares as many bits as
    the lattice has.
    """
    drawn = np.frombuffer(source(8 * teachers * queries), dtype="<u8") >> np.uint64(64 - _BITS)
    return (drawn.astype(np.int64) < round(rate * LATTICE)).reshape(teachers, queries)


def check_pattern(pattern: str) -> Pattern:
    """Returns `pattern` if it is one. Raises InvalidInput otherwise."""
    for known in PATTERNS:
        if pattern == known:
            return known
    raise InvalidInput(f"participation is {pattern!r}; allowed: {', '.join(PATTERNS)}")


def check_rate(pattern: Pattern, rate: Float64[ndarray, " parties"]) -> None:
    """Raises InvalidInput unless rates are multiples of 1/LATTICE in (0, 1], and 1 if every party takes part."""
    units = rate * LATTICE
    if not (np.isfinite(rate).all() and (rate > 0).all() and (rate <= 1).all() and (units == np.rint(units)).all()):
        raise InvalidInput(f"rates span [{rate.min()}, {rate.max()}]; allowed: multiples of 1/{LATTICE} in (0, 1]")
    if pattern == "all" and (rate < 1).any():
        raise InvalidInput(f"rate is {rate.min()}; allowed: 1 with participation 'all'")


def rates_for(affordable: Float64[ndarray, " parties"]) -> Float64[ndarray, " parties"]:
    """Rates at which all budgets run out together: in proportion to the queries that each affords, the largest at 1.

    affordable: queries (a real number > 0) that each party's budget affords at the same weight. Rounded down to the
    lattice; at least 1/LATTICE.
    """
    share = affordable / affordable.max()
    return np.maximum(np.floor(share * LATTICE), 1.0) / LATTICE
