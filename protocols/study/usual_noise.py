"""The noise and the threshold of a study for which none were given: shares of the votes cast, or less.

The shares are those of the mechanism (docs/explanation/one-draw.md, section 7), and depend on nothing private. Where
budgets outlast the pool with them, all of them are smaller by the same factor: the least with which the whole pool can
be asked, since what a budget affords beyond the pool is of no use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from protocols.errors import InvalidInput
from protocols.mechanisms import MECHANISMS, Mechanism, View

# How near the least factor is found: two parts in a hundred.
_NEAR: Final = 1.02
# Below that noise turns hardly any vote.
_LEAST: Final = 0.1


def is_usual(name: str, parameters: Mapping[str, int | float]) -> bool:
    """Whether neither noise nor threshold of this mechanism was given."""
    told = MECHANISMS[name].parameters()
    return not any(told[each].role in ("noise", "threshold") for each in parameters if each in told)


def scaled_mechanism(
    name: str,
    parameters: Mapping[str, int | float],
    *,
    view: View,
    classes: int,
    votes: float,
    scale: float = 1.0,
    factor: float = 1.0,
) -> Mechanism:
    """The mechanism with its parameters: the given ones times `scale`, the others as usual for the votes cast.

    factor: of the usual noise and threshold, in (0, 1]. Raises InvalidInput for a parameter out of range.
    """
    kind = MECHANISMS[name]
    given: dict[str, int | float | None] = dict(parameters)
    for key, each in kind.parameters(view=view).items():
        if (said := given.get(key)) is not None:
            given[key] = each.scaled(said, scale)
        elif (usual := each.usual(classes)) is not None:
            scaled = each.scaled(usual, votes)
            given[key] = each.wider(scaled, factor) if each.role in ("noise", "threshold") else scaled
        elif each.unit == "queries":
            given[key] = 1  # computed once the study is known
    return kind.build(view=view, given=given)


def check_parameters(name: str, parameters: Mapping[str, int | float], *, view: View) -> None:
    """Raises InvalidInput for a parameter of the mechanism that is out of range, however many votes there will be."""
    kind = MECHANISMS[name]
    given = {
        key: parameters.get(key, 1 if each.unit == "queries" else each.default)
        for key, each in kind.parameters(view=view).items()
    }
    if None not in given.values():
        kind.build(view=view, given=given)


def least_factor_for(queries: int, affords: Callable[[float], int]) -> float:
    """The factor in [_LEAST, 1] of the usual noise with which `queries` queries are afforded, to two parts in a
    hundred as small as that is possible; 1 where the usual noise affords no more than that.

    affords: the queries that the budgets afford at a factor, at most one more than `queries`. Its InvalidInput, that
    there is no study with so little noise, counts as none, except at 1.
    """
    if affords(1.0) <= queries:
        return 1.0
    low, high = 0.0, 1.0
    factor = _LEAST
    while True:
        try:
            enough = affords(factor) >= queries
        except InvalidInput:
            enough = False
        low, high = (low, factor) if enough else (factor, high)
        if high <= _LEAST or high <= low * _NEAR:
            return high
        factor = (low * high) ** 0.5
