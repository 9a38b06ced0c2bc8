"""Amount: a whole number of one unit of account, such as nano-RDP, nano-mu^2 or queries."""

from __future__ import annotations

from typing import Self

from protocols.errors import InvalidInput


class Amount(int):
    """A number that carries its unit: amounts of different units are neither added nor compared, and print with it.

    A plain number takes the unit of the amount that it is added to. Operations raise InvalidInput for another unit.
    """

    unit: str

    def __new__(cls, count: int, unit: str) -> Self:
        made = super().__new__(cls, count)
        made.unit = unit
        return made

    def __getnewargs__(self) -> tuple[int, str]:  # type: ignore[override]  # to copy the unit with the number
        return int(self), self.unit

    def __str__(self) -> str:
        return f"{int(self)} {self.unit}"

    def __repr__(self) -> str:
        return str(self)

    def __add__(self, other: int) -> Amount:
        return Amount(int(self) + self._same(other), self.unit)

    def __sub__(self, other: int) -> Amount:
        return Amount(int(self) - self._same(other), self.unit)

    def __rsub__(self, other: int) -> Amount:
        return Amount(self._same(other) - int(self), self.unit)

    __radd__ = __add__

    def __lt__(self, other: int) -> bool:
        return int(self) < self._same(other)

    def __le__(self, other: int) -> bool:
        return int(self) <= self._same(other)

    def __gt__(self, other: int) -> bool:
        return int(self) > self._same(other)

    def __ge__(self, other: int) -> bool:
        return int(self) >= self._same(other)

    def __eq__(self, other: object) -> bool:
        return int(self) == (self._same(other) if isinstance(other, int) else other)

    def __ne__(self, other: object) -> bool:  # int has its own
        return not self == other

    __hash__ = int.__hash__

    def _same(self, other: int) -> int:
        if getattr(other, "unit", self.unit) != self.unit:
            raise InvalidInput(f"{other} beside {self}; allowed: {self.unit}")
        return int(other)
