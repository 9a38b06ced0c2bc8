"""A parameter of a mechanism: its meaning, its unit and its default in a simulation; and the views."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Literal

from protocols.errors import InvalidInput

View = Literal["label", "histogram"]
VIEWS: tuple[View, ...] = ("label", "histogram")
# Beartype tells an int from a float: a number of queries is an int.
Number = int | float
_Role = Literal["noise", "threshold", "setting"]
_Unit = Literal["votes", "per vote", "queries", ""]


@dataclass(frozen=True)
class Parameter:
    """One number that a mechanism takes, declared with its field by `parameter`.

    meaning: what it is, for help texts and pages; unit: of the number ("" for none); role: "noise" if it is a noise
    scale (in votes, or the inverse scale per vote), "threshold" if votes are compared with it; default: what a
    simulation uses if it is not given: times the votes cast for a number in votes, divided by them for one per vote,
    else as it is (None: the simulation computes it); default_of_two: the same with two classes, None for no other;
    views: those under which it is needed.
    """

    meaning: str
    unit: _Unit = ""
    role: _Role = "setting"
    default: float | None = None
    default_of_two: float | None = None
    default_words: str = ""
    views: tuple[View, ...] = VIEWS

    def number(self, name: str, value: Number | None) -> Number | None:
        """`value` as an int where it counts queries, a float elsewhere. Raises InvalidInput for part of a query, and
        for no number."""
        if value is None:
            return None
        if not isinstance(value, Real):
            raise InvalidInput(f"{name} is {value!r}; allowed: a number")
        if self.unit != "queries":
            return float(value)
        if value != int(value):
            raise InvalidInput(f"{name} is {value!r}; allowed: a whole number")
        return int(value)

    def usual(self, classes: int) -> float | None:
        """What a simulation of so many classes uses if it is not given, see `default`."""
        return self.default_of_two if classes == 2 and self.default_of_two is not None else self.default

    def scaled(self, value: Number, votes: float) -> Number:
        """A number given for one vote, scaled to that many votes."""
        return value * votes if self.unit == "votes" else value / votes if self.unit == "per vote" else value

    def wider(self, value: Number, factor: float) -> float:
        """The number that makes the noise `factor` times as wide."""
        return value / factor if self.unit == "per vote" else value * factor

    def noise_scale(self, value: Number) -> float:
        """The scale of the noise, in votes."""
        return 1 / value if self.unit == "per vote" else value

    @property
    def default_in_words(self) -> str:
        """In words: what a simulation uses if it is not given."""
        if self.default_words or self.default is None:
            return self.default_words
        each = {"votes": " per vote cast", "per vote": " over the votes cast"}.get(self.unit, "")
        two = "" if self.default_of_two is None else f"; two classes: {self.default_of_two:.3g}"
        return f"{self.default:.3g}{each}{two}"


def parameter(
    meaning: str,
    *,
    unit: _Unit = "",
    role: _Role = "setting",
    default: float | None = None,
    default_of_two: float | None = None,
    default_words: str = "",
    views: tuple[View, ...] = VIEWS,
) -> dict[str, Parameter]:
    """The metadata of a dataclass field that is a parameter: `sigma: float = field(metadata=parameter(...))`."""
    return {"parameter": Parameter(meaning, unit, role, default, default_of_two, default_words, views)}


def check_view(view: str) -> View:
    """Returns `view` if it is one. Raises InvalidInput otherwise."""
    for known in VIEWS:
        if view == known:
            return known
    raise InvalidInput(f"view is {view!r}; allowed: {', '.join(VIEWS)}")
