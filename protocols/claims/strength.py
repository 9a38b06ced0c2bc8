"""How strong a guarantee is, in words: how many are named wrongly by whoever finds out who took part.

"Who took part" is about two values of one unit's data, under replace-one, and whoever has the figure's view.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, copysign, erfc, exp, floor, inf, isfinite, log, log10, sqrt
from statistics import NormalDist
from typing import Final

from protocols.errors import InvalidInput
from protocols.plural import at_most

# Up to this epsilon, a guarantee is called so. Lines are drawn by convention: the first is that of "strong formal
# privacy guarantees" in Ponomareva et al. 2023, "How to DP-fy ML", section 5.2.1.
RATINGS: Final = ((1.0, "strong"), (3.0, "moderate"), (4.5, "limited"))
WEAK: Final = "weak"
# Of 100 who took part, so many are caught in the sentence about an attack.
_CAUGHT = 50
# Rounding a figure that float64 has already rounded does not move it by a digit.
_DUST = 1e-9
# A smaller share is that of nobody.
_NOBODY = 1e-8
# Beyond it, a factor is past what float64 holds.
_MOST = 700.0


@dataclass(frozen=True)
class Figure:
    """A guarantee as sentences need it: (epsilon, delta), and mu where it is Gaussian DP. Adjacency: replace-one.

    epsilon: infinite where there is no guarantee at this delta; mu: None where none is known; distance: total variation
    distance of what is released from what is mu-GDP. Raises InvalidInput out of range.
    """

    epsilon: float
    delta: float
    mu: float | None = None
    distance: float = 0.0

    def __post_init__(self) -> None:
        if not (self.epsilon >= 0 and 0 < self.delta < 1):
            raise InvalidInput(f"epsilon, delta are {self.epsilon!r}, {self.delta!r}; allowed: at least 0, in (0, 1)")

    @property
    def rating(self) -> str:
        """What a guarantee of this epsilon is called everywhere: strong, moderate, limited or weak."""
        if self.epsilon == inf:
            return "no guarantee"
        return next((name for limit, name in RATINGS if self.epsilon <= limit * (1 + _DUST)), WEAK)

    def accused(self, caught: float) -> float:
        """The smallest share, in [0, 1], of those who did not take part that an attack accuses, if it catches this
        share of those who did.

        The larger of two bounds: Kairouz, Oh and Viswanath 2015, Theorem 2.1, of (epsilon, delta); and the trade-off
        curve of mu-GDP, Phi(Phi^-1(caught) - mu) (Dong, Roth, Su 2022, section 2.2), where every event's probability is
        off by the distance at most. Raises InvalidInput out of range.
        """
        _check(caught)
        grows = exp(min(self.epsilon, _MOST))
        least = max(0.0, (caught - self.delta) / grows, 1.0 - self.delta - grows * (1.0 - caught))
        if self.mu is None:
            return least
        return max(least, _normal(_quantile(caught - self.distance) - self.mu) - self.distance)

    def caught(self, accused: float) -> float:
        """The largest share of those who took part that an attack catches, if it accuses this share of those who did
        not: `accused` turned round. Raises InvalidInput out of range.
        """
        _check(accused)
        grows = exp(min(self.epsilon, _MOST))
        most = min(1.0, grows * accused + self.delta, 1.0 - max(0.0, 1.0 - self.delta - accused) / grows)
        if self.mu is None:
            return most
        return min(most, _normal(_quantile(accused + self.distance) + self.mu) + self.distance)

    @property
    def guessed(self) -> float:
        """The largest share of guesses that are right, of who guesses which of two values, equally likely before, a
        unit's data have; 1/2 is a coin's.

        (1 + d)/2 for the total variation distance d between the two releases. The smaller of two bounds: of (epsilon,
        delta), d <= (e^epsilon - 1 + 2 delta)/(e^epsilon + 1) (Kairouz, Oh and Viswanath 2015, Theorem 2.1, where
        caught - accused is largest); of mu-GDP, d <= 2 Phi(mu/2) - 1 (Dong, Roth, Su 2022, section 2.2), and twice the
        distance.
        """
        shrinks = exp(-min(self.epsilon, _MOST))
        most = min(1.0, (1.0 + self.delta * shrinks) / (1.0 + shrinks))
        return most if self.mu is None else min(most, _normal(self.mu / 2) + self.distance)


# How many an attack accuses wrongly, in a main clause; `accused` is made of the last one.
ATTACK: Final = f"whoever rightly names {_CAUGHT} of 100 who took part wrongly names {{accused}} who did not"
ACCUSES_NOBODY: Final = f"somebody may name {_CAUGHT} of 100 who took part, and nobody wrongly"
ACCUSED: Final = "at least {number} of {of}"


def attack(
    figure: Figure,
    *,
    sentences: tuple[str, str, str] = (ATTACK, ACCUSES_NOBODY, ACCUSED),
    number: Callable[[str], str] = str,
) -> str:
    """What finding out who took part costs an attacker at least, as a main clause; sentences, number: in another
    language, number as figures are written there."""
    some, nobody, accused = sentences
    return some.format(accused=number(accused_in_words(figure, accused))) if _accused(figure) >= _NOBODY else nobody


def accused_in_words(figure: Figure, words: str = ACCUSED) -> str:
    """How many of those who did not take part are accused by whoever catches half of those who did: rounded down to two
    digits.
    """
    share = _accused(figure)
    of = 100 if share < _NOBODY else 10 ** max(2, 1 - floor(log10(share)))
    return words.format(number=floor(share * of), of=f"{of:,}")


def _accused(figure: Figure) -> float:
    return figure.accused(_CAUGHT / 100) * (1 + _DUST)


def strength(figure: Figure) -> str:
    """In one sentence: what the guarantee is called, and what an attack costs."""
    if not isfinite(figure.epsilon):
        return "No guarantee at this delta."
    return f"{figure.rating.capitalize()}: {attack(figure)}."


def odds(figure: Figure) -> str:
    """By how much odds move, in one sentence. Of (epsilon, delta) with a finite epsilon.

    P(L > epsilon + ln 2) <= 2 delta for the privacy loss L: delta >= E[(1 - e^(epsilon - L))+], which is at least half
    of it (Canonne, Kamath, Steinke 2020, section 3.1). There is no such bound at epsilon itself.
    """
    twice = 2 * figure.delta
    return (
        "The odds of these data against any other value grow by a factor above "
        f"{factor(figure.epsilon + log(2))} (twice e to the power of epsilon) with a probability of at most "
        f"{at_most(twice)}, one in {floor(1 / twice * (1 + _DUST)):,} (twice delta)."
    )


def factor(epsilon: float) -> str:
    """e^epsilon, rounded up to three digits."""
    if epsilon > _MOST:
        return f"e^{ceil(epsilon)}"
    value = exp(epsilon) * (1 - _DUST)
    if value < 100:
        return f"{ceil(100 * value) / 100:g}"
    if value < 1e6:
        return f"{ceil(value):,}"
    return f"{ceil(value / 1e6):,} million" if value < 1e12 else f"e^{ceil(10 * epsilon) / 10:g}"


def percent_at_most(share: float) -> str:
    """A share that is a bound, as a percentage, rounded up; with more digits only where it would read as certainty."""
    for digits in (0, 1, 2):
        shown = ceil(10**digits * 100 * share * (1 - _DUST)) / 10**digits
        if shown < 100:
            return f"{shown:.{digits}f} %"
    return "100 %"


def _check(share: float) -> None:
    if not 0 <= share <= 1:
        raise InvalidInput(f"share is {share!r}; allowed: 0 to 1")


def _normal(value: float) -> float:
    return 0.5 * erfc(-value / sqrt(2))


def _quantile(share: float) -> float:
    return NormalDist().inv_cdf(share) if 0 < share < 1 else copysign(inf, share - 0.5)
