"""A second sum of graded votes: how far each unit's label is from what the first noisy sum says of it.

The first sum makes scores of all classes, which are public from then on. A record whose label y has the probability
p(x) under them says r(x, y) x phi(x), where r is its one-hot label less p(x), divided by its length, or by CUT where it
is shorter. r is no longer than 1, so a record is no longer than in the first sum, whatever the scores are: both sums
cost twice what one does (docs/explanation/mathematics.md, section 2.4). It is one step of gradient descent for a
softmax regression, in which the difference of the pool from the records cancels.

All of it is in whole numbers, each record by itself, as phi is: the same on every machine.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from functools import lru_cache
from typing import Final

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.array_files import parse_arrays, typed_array
from protocols.errors import InvalidInput
from protocols.sums.blocks import NORM_STEPS, TARGET_STEPS, root_above
from protocols.sums.contributions import Said, Sum, divided_sum, graded_sum

# Of the distance between two one-hot labels, which is sqrt 2 long: residuals from here on count the same.
CUT: Final = (1, 2)
# Weights of features: so many steps for 1, and of no more steps than this. Logits of phi, of norm NORM_STEPS at most,
# stay far below 2**63.
_WEIGHT_STEPS, _MOST_WEIGHT = 2**10, 2**24
# exp(-i / _FINENESS) for the first so many i, in steps of 1 / _CHANCE_STEPS.
_FINENESS, _SMALLEST, _CHANCE_STEPS = 2**8, 16, 2**20
_BYTES: Final = 2**28


@dataclass(frozen=True, eq=False)
class FirstScores:
    """What the first sum says of every record: the probabilities of classes are the softmax of phi @ weights, in
    NORM_STEPS and _WEIGHT_STEPS. Raises InvalidInput for weights out of range."""

    weights: Int64[ndarray, "rows classes"] = field(repr=False)

    def __post_init__(self) -> None:
        largest = int(np.abs(self.weights).max(initial=0))
        if self.weights.shape[1] < 2 or largest > _MOST_WEIGHT:
            raise InvalidInput(
                f"scores of {self.weights.shape[1]} classes with weights of up to {largest} steps; allowed: at least 2 "
                f"classes, at most {_MOST_WEIGHT}"
            )

    @classmethod
    def of(cls, coefficients: Float64[ndarray, "rows classes"]) -> FirstScores:
        """Of scores, each 1 / classes + phi @ coefficients (fit.Scores), rounded; too large ones are cut off."""
        steps = coefficients * coefficients.shape[1] * _WEIGHT_STEPS
        return cls(np.rint(np.clip(steps, -_MOST_WEIGHT, _MOST_WEIGHT)).astype(np.int64))

    @property
    def of_one(self) -> Float64[ndarray, "rows classes"]:
        """The coefficients of scores, as they are rounded."""
        return self.weights / (self.weights.shape[1] * _WEIGHT_STEPS)

    def to_bytes(self) -> bytes:
        """The file that hospitals are sent: an .npz of one plain array."""
        content = io.BytesIO()
        np.savez(content, weights=self.weights.astype("<i8"))
        return content.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes, *, rows: int, classes: int) -> FirstScores:
        """The scores in what to_bytes gave, or anybody else made: untrusted. Raises DataCorrupt where it is no such
        file, InvalidInput for scores of other features or classes, or out of range."""
        where = "the scores of the first sum"
        weights = typed_array(parse_arrays(content, where=where, most=_BYTES), "weights", ("<i8", 2), where)
        if weights.shape != (rows, classes):
            raise InvalidInput(f"{where} have the shape {weights.shape}; allowed: {(rows, classes)}, the study's")
        return cls(weights.astype(np.int64))

    def psi(
        self, phi: Int64[ndarray, "records rows"], labels: Int64[ndarray, " records"]
    ) -> Int64[ndarray, "records classes"]:
        """r of each record, in TARGET_STEPS: of norm at most TARGET_STEPS, exactly; 0 for a label that is no class."""
        classes = self.weights.shape[1]
        known = (labels >= 0) & (labels < classes)
        rest = -self._chances(phi)
        rest[np.flatnonzero(known), labels[known]] += _CHANCE_STEPS
        length = np.maximum(root_above((rest * rest).sum(axis=1)), _CHANCE_STEPS * CUT[0] // CUT[1])
        found = np.sign(rest) * (np.abs(rest) * TARGET_STEPS // length[:, None])
        return np.where(known[:, None], found, 0)

    def _chances(self, phi: Int64[ndarray, "records rows"]) -> Int64[ndarray, "records classes"]:
        """The softmax, in steps of 1 / _CHANCE_STEPS."""
        logits = phi @ self.weights
        below = (logits.max(axis=1, keepdims=True) - logits) // (NORM_STEPS * _WEIGHT_STEPS // _FINENESS)
        table = _exponentials()
        sizes = table[np.minimum(below, len(table) - 1)]
        return sizes * _CHANCE_STEPS // sizes.sum(axis=1, keepdims=True)


def residual_sum(
    first: FirstScores,
    said: Said,
    units: Int64[ndarray, " records"] | None,
    *,
    weight_units: int,
    known_at: Int64[ndarray, " records"] | None = None,
) -> Sum:
    """The sum of a party's residuals, in lattice units. said: its class and phi of each record, as the function of this
    name gave it; units, weight_units, known_at: as in contribution_sum."""
    labels, phi = said[:, 0], said[:, 1:]
    psi = first.psi(phi, labels)

    def of_weight(rows: ndarray, held: Int64[ndarray, " records"] | None, weight: int) -> Sum:
        return graded_sum(phi[rows], psi[rows], held, weight=weight)

    return divided_sum(of_weight, len(said), units, weight_units=weight_units, known_at=known_at)


@lru_cache(maxsize=1)
def _exponentials() -> Int64[ndarray, " steps"]:
    """exp(-i / _FINENESS) in steps, rounded down: by decimal arithmetic, which is the same everywhere."""
    with localcontext() as context:
        context.prec = 40
        each = (int((Decimal(-i) / _FINENESS).exp() * _CHANCE_STEPS) for i in range(_SMALLEST * _FINENESS))
        return np.array(list(each), dtype=np.int64)
