"""What the noisy sum of a study's units is for: labels of a public pool, or a count of patients.

Each answers for what differs: its checks, whether hospitals' sums are released one by one, and how sentences call it.
What stands above is a table keyed by the type, beside its user.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Final

from jaxtyping import Float64
from numpy import ndarray

from protocols.errors import InvalidInput

_Weights = Float64[ndarray, " seats"]
# The least lattice units with which a patient is counted in a cell: rounding then takes less than 1 %.
_LEAST_COUNTED = 100


class Purpose(ABC):
    """What a sum is for. words: of protocols/claims/protection.py; given: the option by which a hospital is given what
    is asked, "" for none; pool: whether there is a public pool; by_site: whether hospitals' sums are released one by
    one where the coordinator sees them."""

    name: ClassVar[str]
    words: ClassVar[str]
    given: ClassVar[str]
    pool: ClassVar[bool]
    by_site: ClassVar[bool]

    @abstractmethod
    def check(self, *, classes: int, weights: _Weights, counted: int, parts: int, judges: bool) -> None:
        """Raises InvalidInput unless a study can have such sums.

        weights: of the seats; counted: with how many lattice units a unit is counted in one cell of each column; parts:
        into how many parts a unit may be divided; judges: whether some units judge a model.
        """


class ForLabels(Purpose):
    """Labels of the pool, and a student of them."""

    name, words, given, pool, by_site = "labels", "record", "--queries", True, False

    def check(self, *, classes: int, weights: _Weights, counted: int, parts: int, judges: bool) -> None:
        if classes < 2:
            raise InvalidInput(f"classes is {classes}; allowed: 2 or more")


class ForCounts(Purpose):
    """How many patients have which values of the terms' columns, in all or by label: a "table 1"."""

    name, words, given, pool, by_site = "counts", "count", "", False, True

    def check(self, *, classes: int, weights: _Weights, counted: int, parts: int, judges: bool) -> None:
        if judges:
            raise InvalidInput("units judge a model, and a count makes none; allowed: no table [evaluation]")
        if len(set(weights.tolist())) > 1:
            raise InvalidInput(
                f"weights span [{weights.min():g}, {weights.max():g}]; allowed: one for all hospitals, as every "
                "patient counts the same"
            )
        if counted < (least := _LEAST_COUNTED * parts):
            raise InvalidInput(
                f"a patient is counted with {counted} lattice units in each column; allowed: at least {least}, with "
                "more units a vote, or fewer columns"
            )


PURPOSES: Final[Mapping[str, Purpose]] = {each.name: each for each in (ForLabels(), ForCounts())}
