"""The table of all accountants, charging and analysing, and how a run names them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from protocols.budgets import accountant
from protocols.errors import InvalidInput
from protocols.mechanisms import check_view
from protocols.research import DATA_DEPENDENT
from protocols.study.chosen import GIVEN
from protocols.study.votes import teacher_votes

if TYPE_CHECKING:
    from protocols.study.study import Study


@dataclass(frozen=True, kw_only=True)
class AccountantRow:
    """One accountant: what its figure means, and how it may be used.

    charges: whether it can charge budgets; only such a figure is publishable. source: paper and theorem; note: what
    else a reader of its figure must know.
    """

    name: str
    statement: str
    charges: bool
    unit: str
    view: str
    adjacency: str
    noise: str
    source: str
    note: str = ""


def accountant_table() -> list[AccountantRow]:
    """Every accountant, those that charge first."""
    from protocols.study.study import ADJACENCY

    charging = [
        AccountantRow(
            name=a.name, statement=a.statement, charges=True, unit="record or party", view=" or ".join(a.views),
            adjacency=ADJACENCY, noise=a.noise_law, source=a.source,
        )
        for a in accountant.ACCOUNTANTS.loadable().values()
    ]  # fmt: skip
    looking = [
        AccountantRow(
            name=d.name, statement=d.statement, charges=False, unit=d.units, view=" or ".join(d.views),
            adjacency=ADJACENCY, noise=d.noise_law, source=d.source, note=d.note,
        )
        for d in DATA_DEPENDENT.loadable().values()
    ]  # fmt: skip
    return [*charging, *looking]


def named_accountants(text: str | None) -> tuple[str | None, tuple[str, ...]]:
    """The accountant that charges (None: the default for mechanism and view), and those that analyse, from "a,b,c".

    Raises InvalidInput for an unknown name, for one given twice, and for more than one that charges.
    """
    names = [] if text is None else [name.strip() for name in text.split(",")]
    known = dict.fromkeys(accountant.ACCOUNTANTS, True) | dict.fromkeys(DATA_DEPENDENT, False)
    for name in names:
        if name not in known:
            raise InvalidInput(f"accountant is {name!r}; allowed: {', '.join(known)}")
    charging = [name for name in names if known[name]]
    if len(charging) > 1 or len(set(names)) < len(names):
        raise InvalidInput(
            f"accountants are {text!r}; allowed: each once, and at most one that charges budgets "
            f"({', '.join(accountant.ACCOUNTANTS)}); the others analyse what came out"
        )
    return (charging[0] if charging else None), tuple(name for name in names if not known[name])


def cast_weights(study: Study) -> Float64[ndarray, " votes"]:
    """The weight of each vote that may be cast in a query: one per teacher."""
    votes = teacher_votes(study)
    return np.ones(votes.pooled_teachers) if votes.pooled_teachers else np.repeat(study.weights, votes.teachers)


def check_analyses(names: tuple[str, ...], study: Study, *, drops: bool, trains: bool, votes_known: bool) -> None:
    """Raises InvalidInput, before anything is trained, if an accountant does not apply to this study.

    drops: whether parties may miss batches; trains: whether teachers are trained rather than votes replayed;
    votes_known: whether each vote will be known, not only their counts.
    """
    from protocols.research.data_dependent import Circumstances

    if names and study.votes.questions != GIVEN:
        raise InvalidInput(
            f"accountant {names[0]!r} adds up what given queries cost, and questions is {study.votes.questions!r}: "
            "what is asked depends on the votes before, and a sum of costs that depend on votes bounds nothing then; "
            "allowed: one that charges budgets"
        )
    if names and study.mechanism.names_sets:
        raise InvalidInput(
            f"accountant {names[0]!r} bounds what one class reveals, and a label of {study.mechanism.name!r} is a set; "
            "allowed: one that charges budgets"
        )
    sensitivity = study.votes_per_unit * study.weights
    several = study.votes_per_unit > 1 or (study.votes.pooled and bool(np.any(sensitivity > 1)))
    dropping = study.votes.stop == "drop-exhausted" and len(np.unique(study.budgets.cap)) > 1
    given = Circumstances(
        mechanism=study.mechanism,
        view=check_view(study.view),
        classes=study.classes,
        sensitivity=sensitivity,
        cast=cast_weights(study),
        votes_known=votes_known and study.votes.voters == 1 and not study.votes.pooled,
        one_vote=not several,
        everyone=not (drops or dropping) and study.participation.everyone,
        secret=study.secret_coins,
    )
    for name in names:
        DATA_DEPENDENT[name].check(given)
