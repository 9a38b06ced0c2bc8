"""An analysis of stored votes without a budget: a fixed number of queries, and what they cost on these votes.

There is no study: nothing is charged, so nothing stops, and no label may be published; none is kept. Every query is
asked once, as the tables of the PATE papers count, by all parties, each vote of weight one. View "label", adjacency
replace-one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from protocols.budgets.accountant import Accountant, default_accountant
from protocols.crypto.randomness import simulation_rng
from protocols.errors import InvalidInput
from protocols.mechanisms import Mechanism, Sensitivity
from protocols.noise import simulated
from protocols.research.data_dependent import DATA_DEPENDENT
from protocols.research.evidence import Circumstances, Figures, QueryVotes, Units
from protocols.research.published.private import Private
from protocols.study.study import votes_per_unit
from protocols.votes import ABSTAIN
from simulations.setup.accountants import BAYESIAN, named_accountants
from simulations.setup.experiment import Experiment
from simulations.setup.usual_noise import scaled_mechanism
from simulations.stages.inputs import VoteInputs
from simulations.stages.stored_votes import TeacherVotes


@dataclass(frozen=True, eq=False)
class VoteAnalysis:
    """What an analysis found.

    answered: how many queries got a label with this seed's noise; label_accuracy: of these, None without true labels or
    answers; worst_case: the epsilon of `charging`, at delta, if every query were answered, whatever the votes.
    figures, refused: of each accountant, or why it has none for these votes.
    """

    settings: Experiment
    mechanism: Mechanism
    queries: int
    votes: int
    seed: int
    answered: Private[int]
    label_accuracy: Private[float | None]
    charging: Accountant
    worst_case: float
    figures: Mapping[str, Private[Figures]]
    refused: Mapping[str, Private[str]]


def analyse_votes(inputs: VoteInputs, *, seed: int) -> VoteAnalysis:
    """Releases every query once with the noise of `seed`, and lets the accountants look.

    Raises InvalidInput, before any vote is looked at, for an accountant that charges, that needs teachers, or that does
    not hold for the mechanism.
    """
    settings, stored = inputs.settings, inputs.stored
    teachers = settings.teachers_per_party
    votes = settings.parties * teachers
    mechanism = scaled_mechanism(
        settings.mechanism, settings.parameters, view="label", classes=stored.classes, votes=float(votes)
    )
    moved = np.array([float(votes_per_unit(settings.unit, teachers=teachers))])
    own = stored.votes[:, 0].astype(np.int64) if isinstance(stored, TeacherVotes) and teachers == 1 else None
    given = Circumstances(
        mechanism=mechanism,
        view="label",
        classes=stored.classes,
        sensitivity=moved,
        cast=np.ones(votes),
        votes_known=own is not None,
        one_vote=bool(moved[0] == 1),
        everyone=True,
        secret=False,
    )
    names = _analyses(settings, mechanism)
    for name in names:
        DATA_DEPENDENT[name].check(given)
    charging = default_accountant(mechanism, "label")
    worst_case = worst_case_epsilon(
        charging, mechanism, moved, classes=stored.classes, queries=stored.queries, delta=settings.delta
    )
    counts = stored.histogram()
    labels = mechanism.labels(counts, simulated(simulation_rng(seed, "noise")), view="label")
    answered = labels != ABSTAIN
    evidence = QueryVotes(
        mechanism=mechanism,
        counts=counts,
        abstentions=bool((counts.sum(axis=1) < votes).any()),
        answered=answered,
        student_votes=None,
    )
    # Without the units' own votes all units are alike, so one stands for them.
    units = 1 if own is None else len(own)
    protected = Units(
        sensitivity=np.repeat(moved, units),
        cast=given.cast,
        delta=np.full(units, settings.delta),
        present=np.ones((units, stored.queries), dtype=bool),
        own_votes=own,
    )
    figures: dict[str, Private[Figures]] = {}
    refused: dict[str, Private[str]] = {}
    for name in names:
        try:
            figures[name] = DATA_DEPENDENT[name].figures(evidence, protected)
        except InvalidInput as error:
            refused[name] = Private(str(error))
    accuracy = None
    if inputs.truth is not None and answered.any():
        accuracy = float((labels == inputs.truth)[answered].mean())
    return VoteAnalysis(
        settings=settings,
        mechanism=mechanism,
        queries=stored.queries,
        votes=votes,
        seed=seed,
        answered=Private(int(answered.sum())),
        label_accuracy=Private(accuracy),
        charging=charging,
        worst_case=worst_case,
        figures=figures,
        refused=refused,
    )


def _analyses(settings: Experiment, mechanism: Mechanism) -> tuple[str, ...]:
    """The accountants that were named, or the first that there is for the mechanism."""
    if settings.accountant is None:
        first = next((name for name, each in DATA_DEPENDENT.items() if type(mechanism) in each.mechanisms), None)
        if first is None:
            raise InvalidInput(f"no accountant analyses votes under {mechanism.name}; allowed: another mechanism")
        return (first,)
    charging, names = named_accountants(settings.accountant)
    if charging is not None or BAYESIAN in names:
        why = "trains teachers again" if charging is None else "charges budgets, and here are none"
        raise InvalidInput(f"accountant {charging or BAYESIAN!r} {why}; allowed: {', '.join(DATA_DEPENDENT)}")
    return names


def worst_case_epsilon(
    charging: Accountant,
    mechanism: Mechanism,
    moved: Float64[ndarray, "1"],
    *,
    classes: int,
    queries: int,
    delta: float,
) -> float:
    """The least epsilon over the orders: they are public, as all of this is but the votes."""
    cost = charging.query_cost(mechanism, Sensitivity.always(moved), view="label", classes=classes)
    spend = queries * (cost.ask + cost.answer)[0]
    return float(charging.to_epsilon(spend, charging.orders, np.full(len(spend), delta)).min())
