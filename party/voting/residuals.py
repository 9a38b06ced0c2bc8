"""What a hospital keeps for a second sum of residuals: what its records say, from its approval until it is asked again.

It lies in the study's folder, bound to the votes that were counted beside it, so that both sums are of the same units.
It is deleted once it was asked, or with a withdrawal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from party.voting.judges import later_bytes
from protocols.array_files import read_arrays
from protocols.errors import DataCorrupt, Refused
from protocols.refusals.code import Code
from protocols.study.deployed import DeployedStudy
from protocols.study.votes import unit_sums
from protocols.sums.contributions import Said, Sum
from protocols.sums.residuals import FirstScores, residual_sum

_FILE_BYTES: Final = 2**34
_NAMES: Final = ("study", "pair", "said", "units", "known_at")


@dataclass(frozen=True, eq=False)
class SaidAgain:
    """The records of one seat that vote. said: class and phi of each; units: the number of each one's unit; known_at:
    at how many hospitals that is known, 1 where nobody says; digests: none, as all units are asked."""

    said: Said = field(repr=False)
    units: Int64[ndarray, " records"] = field(repr=False)
    known_at: Int64[ndarray, " records"] = field(repr=False)
    digests: Int64[ndarray, " none"] = field(default_factory=lambda: np.zeros(0, np.int64), repr=False)

    def to_bytes(self, study: DeployedStudy, pair: bytes) -> bytes:
        """As it is kept. pair: names the votes that were counted with it."""
        return later_bytes(study, pair, **{name: getattr(self, name).astype("<i8") for name in _NAMES[2:]})


class KeptResiduals:
    """What one seat's records say, until they are asked again. listed: the pair that the policy names; None where it
    names none."""

    def __init__(self, path: Path, *, study: DeployedStudy, seat: str, listed: tuple[bytes, frozenset[int]] | None):
        self._path, self._study, self._seat, self._listed = path, study, seat, listed

    def answer(self, model: bytes) -> Sum:
        """The sum of residuals of these scores. Raises DataUnavailable, DataCorrupt for what is kept; InvalidInput,
        DataCorrupt for the scores; Refused("no_record_votes") where the policy lists nothing."""
        if self._listed is None:
            raise Refused(Code.NO_RECORD_VOTES, "the policy lists no votes that may be asked again")
        sums = unit_sums(self._study)
        first = FirstScores.from_bytes(model, rows=sums.queries, classes=self._study.classes)
        held = self._read(self._listed[0], width=1 + sums.queries)
        return residual_sum(
            first,
            held.said,
            held.units,
            weight_units=round(self._study.roster[self._study.seats[self._seat]].weight * self._study.units),
            known_at=held.known_at if sums.declared else None,
        )

    def _read(self, pair: bytes, *, width: int) -> SaidAgain:
        arrays = read_arrays(self._path, list(_NAMES), most=_FILE_BYTES)
        said, *others = (arrays[name] for name in _NAMES[2:])
        whole = {each.dtype.str for each in (said, *others)} == {"<i8"} and said.shape[1:] == (width,)
        of_these = (arrays["study"].tobytes(), arrays["pair"].tobytes()) == (self._study.digest, pair)
        if not (of_these and whole and {each.shape for each in others} == {said.shape[:1]}):
            raise DataCorrupt(f"{self._path} does not hold what was approved with this study's votes")
        return SaidAgain(*(each.astype(np.int64) for each in (said, *others)))
