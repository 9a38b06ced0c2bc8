"""A patient at several hospitals: what one protected unit moves where it may be known to as many as k of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from protocols.errors import InvalidInput

_Weights = Float64[ndarray, " seats"]
# Whether hospitals say of each unit at how many of them it is known.
UNKNOWN, DECLARED = "unknown", "declared"


def check_overlap(overlap: str, *, most: int) -> None:
    """Raises InvalidInput unless what hospitals say of overlaps goes with at most so many hospitals a unit."""
    if overlap not in (UNKNOWN, DECLARED) or (overlap == DECLARED and most == 1):
        raise InvalidInput(
            f"records: overlap is {overlap!r}, hospitals_per_patient {most}; allowed: {UNKNOWN}, or {DECLARED} with at "
            "least 2"
        )


def check_declared(declared: Sequence[int | None], most: int) -> None:
    """Raises InvalidInput if seats declare more units together than there can be, each at as many hospitals as are
    charged for: arithmetic modulo a prime would hold no honest sum of them."""
    if (held := sum(each or 0 for each in declared)) > most:
        raise InvalidInput(f"all [[party]] together have population {held}; allowed: at most {most}, as in [records]")


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """How many hospitals may know one patient. most: k >= 1; declared: whether hospitals say of each patient how many
    do, so that one of j of them gives 1/j at each; apart: whether the hospitals' sums are released one by one."""

    most: int
    declared: bool
    apart: bool

    def moved(self, weights: _Weights, hospitals: Sequence[str]) -> _Weights:
        """The weight, in votes, with which a patient of each seat moves what is released, wherever else it is known.

        weights: of the seats; hospitals: whose seat each is; a patient is in one seat of a hospital. At j hospitals a
        patient moves Delta (w_1 + ... + w_j), or Delta sqrt(w_1^2 + ... + w_j^2) where sums are apart; a j-th of that
        where overlaps are declared (docs/explanation/mathematics.md, 2.4).
        """
        largest = {name: 0.0 for name in hospitals}
        for name, weight in zip(hospitals, weights.tolist(), strict=True):
            largest[name] = max(largest[name], weight)
        power = 2 if self.apart else 1
        found = []
        for name, weight in zip(hospitals, weights.tolist(), strict=True):
            others = sorted((each for other, each in largest.items() if other != name), reverse=True)
            sums = np.cumsum([weight**power, *(each**power for each in others[: self.most - 1])]) ** (1 / power)
            shares = sums / np.arange(1, len(sums) + 1) if self.declared else sums
            found.append(float(shares.max()))
        return np.array(found)
