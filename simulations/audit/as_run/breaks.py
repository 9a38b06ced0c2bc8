"""Deliberately broken code of the levels: a function of the running code is replaced where it is called.

Everything else is the code of parties and servers. An audit of the studies as they run must detect each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from importlib import import_module
from typing import Any  # Any: functions of any signature are replaced

import numpy as np

from protocols.errors import InvalidInput
from protocols.votes import ABSTAIN
from simulations.audit.as_run.weights import WEIGHTS

Function = Callable[..., Any]


@dataclass(frozen=True)
class RunBreak:
    """meaning: what is wrong; level: where; places: module:name of what is replaced; wrong: from the right function."""

    meaning: str
    level: str
    places: tuple[str, ...]
    wrong: Callable[[Function], Function]


def _first_class_for_none(right: Function) -> Function:
    return lambda votes, *given, **more: right(np.where(votes == ABSTAIN, 0, votes), *given, **more)


def _heaviest_twice(right: Function) -> Function:
    heaviest = WEIGHTS.max()
    return lambda votes, weights, **more: right(votes, np.where(weights == heaviest, 2 * weights, weights), **more)


def _heaviest_units_twice(right: Function) -> Function:
    def weights(*given: Any, **more: Any) -> Any:
        units = right(*given, **more)
        return np.where(units == units.max(), 2 * units, units)

    return weights


def _last_party_left_out(right: Function) -> Function:
    return lambda votes, weights, **more: right(votes[:-1], weights[:-1], **more)


def _as_of_one_server(right: Function) -> Function:
    return lambda words, *, sigma: right(words, sigma=sigma * 7 / 10)


def _known_draws(right: Function) -> Function:
    def draw(words: Any, *, sigma: Any) -> Any:
        known = words.copy()
        # Whatever the words are: the same quantile.
        known[:, ::2] = 1 << 62
        return right(known, sigma=sigma)

    return draw


def _smaller_share(right: Function) -> Function:
    return lambda study: right(study) * 9 / 10


def _multiples_of(step: int) -> Callable[[Function], Function]:
    """Noise of the same variance on every `step`-th whole number alone."""
    return lambda right: lambda *given, sigma, **more: step * right(*given, sigma=sigma / step, **more)


def _shared_by_all(right: Function) -> Function:
    """A share as if nobody dropped out or colluded."""

    def share(study: Any) -> Any:
        honest = study.quorum - study.confidentiality.colluders
        smaller = float(right(study)) * (honest / len(study.roster)) ** 0.5
        return Fraction(smaller).limit_denominator(2**16)

    return share


def _nine_tenths_charged(right: Function) -> Function:
    return lambda spend: right(spend) * 0.9


def _price_over(right: Function) -> Function:
    """Every cap is larger by 0.006: of more than 170 queries, by one or two."""
    return lambda spend: np.floor(right(spend) * 1.006)


def _every_sixth_silent(right: Function) -> Function:
    calls = 0

    def draw(*given: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        drawn = right(*given, **more)
        return np.zeros_like(drawn) if calls % len(WEIGHTS) == 0 else drawn

    return draw


def _smaller_units(right: Function) -> Function:
    return lambda source, *, sigma, size: right(source, sigma=sigma * 17 / 20, size=size)


_FILTER = "protocols.budgets.filter"
_COUNTED, _SUMMED = "protocols.study.votes", "protocols.levels.secure_sum.ballot"
_POOL, _BOUND = "protocols.levels.two_server.noise_pool", "protocols.levels.two_server.circuit_inputs"
RUN_BREAKS: dict[str, RunBreak] = {
    "abstentions-first": RunBreak(
        "clear: abstentions are counted for class 0", "clear", (f"{_COUNTED}:count_votes",), _first_class_for_none
    ),
    "weight-twice": RunBreak(
        "clear: one party's weight is doubled", "clear", (f"{_COUNTED}:count_votes",), _heaviest_twice
    ),
    "vote-left-out": RunBreak(
        "clear: the last party's votes are not counted", "clear", (f"{_COUNTED}:count_votes",), _last_party_left_out
    ),
    "smaller-integers": RunBreak(
        "clear: integer noise of 0.85 of its sigma", "clear", ("protocols.noise:discrete_gaussian",), _smaller_units
    ),
    "share-missing": RunBreak(
        "secure_sum: one party adds no noise", "secure_sum", (f"{_SUMMED}:integer_gaussian",), _every_sixth_silent
    ),
    "smaller-shares": RunBreak(
        "secure_sum: shares of nine tenths of the noise", "secure_sum", (f"{_SUMMED}:noise_share",), _smaller_share
    ),
    **{
        f"multiples-of-{step}-{where}": RunBreak(
            f"{level}: noise is a multiple of {step}", level, (place,), _multiples_of(step)
        )
        for step in (2, 4, 8)
        for level, where, place in (
            ("clear", "drawn", "protocols.noise:discrete_gaussian"),
            ("secure_sum", "shared", f"{_SUMMED}:integer_gaussian"),
            ("two_server", "inverted", f"{_POOL}:inverted"),
        )
    },
    "shared-by-all": RunBreak(
        "secure_sum: shares as if nobody dropped out or colluded", "secure_sum",
        (f"{_SUMMED}:noise_share", "protocols.levels.secure_sum.terms:noise_share"), _shared_by_all,
    ),
    "charges-90": RunBreak(
        "budgets: nine tenths are charged", "budgets", (f"{_FILTER}:spend_nano",), _nine_tenths_charged
    ),
    "cap-past": RunBreak("budgets: caps let a query past", "budgets", (f"{_FILTER}:cap_nano",), _price_over),
    "shares-first": RunBreak(
        "secure_sum: abstentions are counted for class 0", "secure_sum", (f"{_COUNTED}:count_votes",),
        _first_class_for_none,
    ),
    "one-server": RunBreak(
        "two_server: both servers' noise is together as much as one's", "two_server", (f"{_POOL}:inverted",),
        _as_of_one_server,
    ),
    "known-seed": RunBreak(
        "two_server: the noise of every other class is the same in every batch", "two_server",
        (f"{_POOL}:inverted",), _known_draws,
    ),
    "units-twice": RunBreak(
        "two_server: one party's weight is doubled by both servers", "two_server",
        (f"{_BOUND}:own_weights",), _heaviest_units_twice,
    ),
}  # fmt: skip


@contextmanager
def broken_code(name: str | None) -> Iterator[None]:
    """The running code is broken in this block. None: it is not. Raises InvalidInput with the known names."""
    if name is None:
        yield
        return
    if name not in RUN_BREAKS:
        raise InvalidInput(f"break is {name!r}; allowed: {', '.join(RUN_BREAKS)}")
    broken, right = RUN_BREAKS[name], {}
    for place in broken.places:
        module, _, function = place.partition(":")
        right[place] = import_module(module), function, getattr(import_module(module), function)
    try:
        for found, function, was in right.values():
            setattr(found, function, broken.wrong(was))
        yield
    finally:
        for found, function, was in right.values():
            setattr(found, function, was)
