"""Budgets that belong to records: privacy groups inside parties, and upsampling of pooled data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.crypto.randomness import simulation_rng
from protocols.errors import InvalidInput
from simulations.setup.budgets import Budgets, largest_remainder, parse_budgets, record_groups
from simulations.setup.upsampling import deal, duplicates, relative_size


def group_budgets(text: str, *, parties: int, delta: float, names: tuple[str, ...] | None) -> Budgets:
    """One seat PARTY/EPSILON for every party and every distinct budget of its records, party by party."""
    epsilon, _ = record_groups(text)
    called = parse_budgets("1.0", parties=parties, delta=delta, seed=0, names=names).names
    seats = tuple(f"{party}/{value:g}" for party in called for value in epsilon)
    return Budgets(seats, np.tile(epsilon, parties), np.full(len(seats), delta))


def split_by_group(
    holdings: list[Int64[ndarray, " records"]],
    patients: Int64[ndarray, " private"] | None,
    text: str,
    *,
    teachers: int,
    seed: int,
) -> list[Int64[ndarray, " records"]]:
    """Every party's records split by their budgets: one array per seat, in the order of `group_budgets`.

    Who has which budget is drawn from the seed, by the shares in `text`, party by party (all records of a patient
    have the same one). Raises InvalidInput for a party with fewer records or patients than its groups need.
    """
    _, shares = record_groups(text)
    seats = []
    for party, records in enumerate(holdings):
        keys = records if patients is None else patients[records]
        units = np.unique(keys)
        sizes = largest_remainder(shares, len(units))
        if (sizes < teachers).any():
            raise InvalidInput(
                f"party {party} has {len(units)} records or patients for {len(shares)} privacy groups of {teachers} "
                f"teachers; allowed: at least {teachers} in each group"
            )
        shuffled = simulation_rng(seed, "groups", party).permutation(units)
        for chosen in np.split(shuffled, np.cumsum(sizes)[:-1]):
            seats.append(records[np.isin(keys, chosen)])
    return seats


@dataclass(frozen=True, eq=False)
class Upsampling:
    """An ensemble on pooled data: groups of records by budget, how many teachers learn a record of each, and the number
    of teachers.

    scale: the number of teachers divided by that before upsampling.
    """

    epsilon: Float64[ndarray, " groups"]
    shares: Float64[ndarray, " groups"]
    copies: Int64[ndarray, " groups"]
    pooled_teachers: int
    scale: float

    def budgets(self, delta: float) -> Budgets:
        """One seat per group of records."""
        names = tuple(f"records-at-{value:g}" for value in self.epsilon)
        return Budgets(names, self.epsilon, np.full(len(names), delta))

    def groups(self, records: int, *, seed: int) -> Int64[ndarray, " records"]:
        """The group of each record, drawn from the seed by the shares."""
        sizes = largest_remainder(self.shares, records)
        if (sizes == 0).any():
            raise InvalidInput(f"{records} records leave a budget without any; allowed: at least one per budget")
        return simulation_rng(seed, "groups").permutation(np.repeat(np.arange(len(sizes)), sizes))

    def shards(self, records: int, *, seed: int) -> list[Int64[ndarray, " shard"]]:
        """The records of each teacher: each record in as many shards as its group has copies."""
        copies = self.copies[self.groups(records, seed=seed)]
        return deal(copies, teachers=self.pooled_teachers, rng=simulation_rng(seed, "deal"))


def upsampling(text: str, *, teachers: int) -> Upsampling:
    """The ensemble for budgets of records and `teachers` before upsampling (Boenisch et al. 2023, section 4)."""
    epsilon, shares = record_groups(text)
    copies = duplicates(epsilon)
    scale = relative_size(copies, shares)
    pooled = max(int(copies.max()), round(teachers * scale))
    return Upsampling(epsilon, shares, copies, pooled, pooled / teachers)
