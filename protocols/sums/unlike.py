"""How far one party's sum stands apart from those of all others, from the sums alone: for whoever sees them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.sums.contributions import Claim


def distances(
    sums: Int64[ndarray, "parties rows columns"], claims: Sequence[Claim], declared: Sequence[int | None]
) -> Float64[ndarray, " parties"] | None:
    """Of each party, how far its units' mean is from that of all others, over the root of the mean square of that
    distance if all units were drawn alike and each as long as it may be: about 1 then, or less.

    claims: of the parties; declared: their numbers of units, which whole cells say themselves. None where a number is
    known neither way, or of fewer than two parties.
    """
    held = [
        float(each.sum()) / (claim.step * claim.votes) if claim.whole else units
        for each, claim, units in zip(sums, claims, declared, strict=True)
    ]
    if len(held) < 2 or not all(held):
        return None
    counts = np.array(held, dtype=np.float64)[:, None]
    said = np.stack([each.ravel() / claim.weight_units for each, claim in zip(sums, claims, strict=True)])
    others, rest = said.sum(axis=0) - said, counts.sum() - counts
    away = np.linalg.norm(said / counts - others / rest, axis=1)
    spread = max(1.0 - float(((said.sum(axis=0) / counts.sum()) ** 2).sum()), 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        far: Float64[ndarray, " parties"] = away / np.sqrt(spread * (1 / counts + 1 / rest))[:, 0]
    return far
