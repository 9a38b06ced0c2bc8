"""RecordVotes: what a study fixes in which private records vote, each once, instead of teachers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import isqrt

from protocols.errors import InvalidInput
from protocols.ranges import check


@dataclass(frozen=True, kw_only=True)
class RecordVotes:
    """Each protected unit contributes once, to the public queries nearest to it (docs/explanation/record-votes.md).

    queries: how many there are, all asked in one batch; votes: in how many of them each record votes; queries_sha256:
    the digest of the QueryMap that says in which; population: the most protected units that all parties have together,
    which replace-one makes public. Raises InvalidInput, with the value and the allowed range.
    """

    queries: int
    votes: int
    queries_sha256: str
    population: int

    def __post_init__(self) -> None:
        check("study", "records.queries", self.queries)
        check("study", "records.votes", self.votes)
        check("study", "records.population", self.population)
        if self.votes > self.queries:
            raise InvalidInput(f"records: votes is {self.votes}; allowed: at most the {self.queries} queries")
        if not re.fullmatch("[0-9a-f]{64}", self.queries_sha256):
            raise InvalidInput(
                f"records: queries_sha256 is {self.queries_sha256[:80]!r}; allowed: 64 hexadecimal digits"
            )

    @property
    def held(self) -> float:
        """How many votes a query holds in the mean, if each unit's weight is 1 and it votes evenly."""
        return self.population * self.votes**0.5 / self.queries

    def cells_changed(self, unit: str, *, classes: int) -> int:
        """In how many cells a unit's contribution may differ from another's: 2 for each vote of a record."""
        everything = self.queries * classes
        return min(2 * self.votes, everything) if unit == "record" else everything

    def bounds(self, unit: str, *, weight_units: int, classes: int) -> tuple[int, int]:
        """What a party of this weight may put into one cell at most, and into all together, in lattice units.

        That is, if the whole population were its own: an honest party has fewer units.
        """
        if unit == "record":
            entry = isqrt(weight_units**2 // self.votes)
            return self.population * entry, self.population * self.votes * entry
        # A vector of L2 norm W over n cells has an L1 norm of at most W sqrt(n).
        return self.population * weight_units, self.population * isqrt(weight_units**2 * self.queries * classes)
