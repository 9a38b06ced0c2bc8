"""How strong an epsilon is, in words: how sure a guess can become, and by which factor odds can move.

All of it is about two values of one unit's data, under replace-one, and whoever has the epsilon's view.
"""

from __future__ import annotations

from math import ceil, exp, isfinite
from typing import Final

from protocols.errors import InvalidInput

# Up to this epsilon, a guarantee is called so. Lines are drawn by convention: the first is that of "strong formal
# privacy guarantees" in Ponomareva et al. 2023, "How to DP-fy ML", section 5.2.1; beyond the last, a guess can be right
# with more than 98.9 %.
RATINGS: Final = ((1.0, "strong"), (3.0, "moderate"), (4.5, "limited"))
WEAK: Final = "weak"
# Rounding up a figure that float64 has already rounded does not move it by a digit.
_DUST = 1e-9
# Beyond it, a factor is past what float64 holds.
_MOST = 700.0


def sure(epsilon: float, delta: float) -> float:
    """The largest probability, in [1/2, 1], of guessing right which of two equally likely values a unit's data have.

    No test of neighbours under (epsilon, delta)-DP has error rates a, b with e^epsilon a + b < 1 - delta, or the same
    with a and b changed over (Wasserman and Zhou 2010, Theorem 2.4; Kairouz, Oh and Viswanath 2015, Theorem 2.1). Their
    sum is then at least 2 (1 - delta) / (1 + e^epsilon), and 1 - (a + b) / 2 is the probability of a right guess. It is
    also the mean, over all that may come out, of how sure one is afterwards. Raises InvalidInput out of range.
    """
    if not (isfinite(epsilon) and epsilon >= 0 and 0 <= delta < 1):
        raise InvalidInput(f"epsilon, delta are {epsilon!r}, {delta!r}; allowed: at least 0, and 0 to below 1")
    return 1.0 - (1.0 - delta) / (1.0 + exp(min(epsilon, _MOST)))


def rounded_up(epsilon: float) -> float:
    """An epsilon as it is shown: rounded up, so that nothing shown promises more than the figure; to three digits after
    the point below 100, and to a whole number from there on.
    """
    digits = 3 if epsilon < 100 else 0
    return ceil(10**digits * epsilon * (1 - _DUST)) / 10**digits


def rating(epsilon: float) -> str:
    """What a guarantee of this epsilon is called everywhere: strong, moderate, limited or weak."""
    return next((name for limit, name in RATINGS if epsilon <= limit * (1 + _DUST)), WEAK)


def strength(epsilon: float | None, delta: float) -> str:
    """In one sentence: how strong the guarantee is; None: there is none at this delta. Figures are rounded up."""
    if epsilon is None:
        return "No guarantee at this delta."
    return f"{rating(epsilon).capitalize()}: {guess(epsilon, delta)}."


def guess(epsilon: float, delta: float) -> str:
    """What somebody who was half sure may gain, as the main clause of a sentence. Figures are rounded up."""
    return (
        f"somebody who was 50 % sure can become at most {sure_in_words(epsilon, delta)} sure (odds change by a factor "
        f"of at most {factor_in_words(epsilon)})"
    )


def sure_in_words(epsilon: float, delta: float) -> str:
    """`sure` as a percentage, as at_most_in_words."""
    return at_most_in_words(sure(epsilon, delta))


def at_most_in_words(share: float) -> str:
    """A share that is a bound, as a percentage, rounded up; with more digits only where it would read as certainty."""
    for digits in (0, 1, 2):
        shown = ceil(10**digits * 100 * share * (1 - _DUST)) / 10**digits
        if shown < 100:
            return f"{shown:.{digits}f} %"
    return "100 %"


def factor_in_words(epsilon: float) -> str:
    """e^epsilon, by which the odds of two values change at most (apart from delta), rounded up to three digits."""
    if epsilon > _MOST:
        return f"e^{epsilon:.0f}"
    value = exp(epsilon) * (1 - _DUST)
    if value < 100:
        return f"{ceil(100 * value) / 100:g}"
    if value < 1e6:
        return f"{ceil(value):,}"
    return f"{ceil(value / 1e6):,} million" if value < 1e12 else f"e^{epsilon:.1f}"


def found_at(false_positives: float, epsilon: float, delta: float) -> float:
    """The largest share, in [0, 1], of units that any attack can tell to be in the data, where it is wrong about this
    share of those that are not.

    Kairouz, Oh and Viswanath 2015, Theorem 2.1: the smaller of e^epsilon a + delta and 1 - e^-epsilon (1 - delta - a).
    Raises InvalidInput out of range.
    """
    if not 0 <= false_positives <= 1:
        raise InvalidInput(f"false_positives is {false_positives!r}; allowed: 0 to 1")
    factor = exp(min(epsilon, _MOST))
    return min(1.0, factor * false_positives + delta, 1.0 - max(0.0, 1.0 - delta - false_positives) / factor)
