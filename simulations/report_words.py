"""Plain words for a run: numbers as people read them, and why a figure was not measured."""

from __future__ import annotations

_STOPS = {
    "pool_exhausted": "every query of the pool was asked",
    "budget_exhausted": "the first budget was used up",
    "all_budgets_exhausted": "every budget was used up",
    "quorum_lost": "too few parties with budget were left",
}


def count(value: float) -> str:
    """A count, or a mean of counts with one decimal; thousands apart."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def parties_words(number: int) -> str:
    """So many parties."""
    return f"{number:,} {'party' if number == 1 else 'parties'}"


def percent(share: float) -> str:
    """A share in [0, 1] as a percentage with one decimal."""
    return f"{100 * share:.1f} %"


def number(value: float) -> str:
    """A number in four significant digits; powers of ten where it is tiny."""
    return f"{value:.4g}"


def stop_words(reason: str) -> str:
    """Why a study ended."""
    return _STOPS[reason]


def interval(half: float | None, *, seeds: int, unit: str) -> str:
    """The 95 % confidence interval over seeds, or why there is none. unit "points" takes a share."""
    if half is None:
        return "one seed: no interval" if seeds == 1 else "too few seeds with a figure: no interval"
    width = f"{100 * half:.1f} points" if unit == "points" else f"{half:,.1f}"
    return f"± {width} (95 %, {seeds} seeds)"
