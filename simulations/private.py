"""Findings: figures computed from a run's private votes and records, all Private, computed after the labels.

Two kinds: data-dependent accountants (`--accountant`), and the membership attack on the released student. Both are of
the first seed. simulations/report/private_section.py shows them.

An analysis of stored votes without a budget: a fixed number of queries, and what they cost on these votes.

There is no study: nothing is charged, so nothing stops, and no label may be published; none is kept. Every query is
asked once, as the tables of the PATE papers count, by all parties, each vote of weight one. View "label", adjacency
replace-one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from protocols.budgets.accountant import Accountant, default_accountant
from protocols.crypto.randomness import simulation_rng
from protocols.errors import InvalidInput
from protocols.labelling.stored_votes import CastVotes, StoredVotes
from protocols.mechanisms import ONE_VOTE, Mechanism, Sensitivity
from protocols.noise import simulated
from protocols.research import DATA_DEPENDENT
from protocols.research.data_dependent import Circumstances, Figures, QueryVotes, Units
from protocols.research.private import Private
from protocols.study.study import Study
from protocols.study.units import votes_per_unit
from protocols.study.usual_noise import scaled_mechanism
from protocols.votes import ABSTAIN, NOT_ASKED
from simulations.membership.attack import Controls, make_controls, membership_attack, record_seats
from simulations.membership.report import MembershipReport
from simulations.progress import Reporter
from simulations.setup.accountants import named_accountants
from simulations.setup.experiment import Experiment
from simulations.stages.asked_votes import AskedVotes
from simulations.stages.inputs import DatasetInputs, Host, Inputs, VoteInputs
from simulations.stages.label import SeedResult
from simulations.stages.record_cells import RecordCells
from simulations.stages.students import ReleasedStudent, first_seeds_student, pooled_student


@dataclass(frozen=True, eq=False)
class Findings:
    """All findings of a run; None or empty if not requested, or if there is nothing to analyse.

    refused: why an accountant has no figure for these votes; private too, because it depends on them.
    """

    accountants: Mapping[str, Private[Figures]]
    refused: Mapping[str, Private[str]]
    attack: Private[MembershipReport] | None


def compute_findings(
    inputs: Inputs,
    study: Study,
    stored: StoredVotes | RecordCells,
    first: SeedResult,
    released: ReleasedStudent | None,
    *,
    host: Host,
    reporter: Reporter,
) -> Findings:
    """Computes all findings that the settings request.

    first: the labelling of the first seed; released: its student.
    """
    _, names = named_accountants(inputs.settings.accountant)
    figures: dict[str, Private[Figures]] = {}
    refused: dict[str, Private[str]] = {}
    if names and first.asked and not isinstance(stored, RecordCells):
        asked = AskedVotes(study, stored, first, _predictions(inputs, study, first, host))
        with reporter.stage("analysis of the votes") as stage:
            figures, refused = _figures(names, asked.evidence, asked.units, told=stage.update)
            stage.result = f"{', '.join(figures) or 'refused'} (private figures)"
    attack = None
    if isinstance(inputs, DatasetInputs):
        attack = _attack(inputs, study, first, released, host=host, reporter=reporter)
    return Findings(figures, refused, attack)


def _figures(
    names: Sequence[str], evidence: QueryVotes, units: Units, *, told: Callable[[int, int], None] | None = None
) -> tuple[dict[str, Private[Figures]], dict[str, Private[str]]]:
    """The figures of each accountant, or why it has none for these votes: other refusals were raised before.

    told: is called with how many are done, and of how many, after each.
    """
    figures: dict[str, Private[Figures]] = {}
    refused: dict[str, Private[str]] = {}
    for done, name in enumerate(names, 1):
        try:
            figures[name] = DATA_DEPENDENT[name].figures(evidence, units)
        except InvalidInput as error:
            refused[name] = Private(str(error))
        if told is not None:
            told(done, len(names))
    return figures, refused


def _predictions(
    inputs: Inputs, study: Study, first: SeedResult, host: Host
) -> Float64[ndarray, "queries classes"] | None:
    """The predictions of the student between the rounds of an interactive mechanism; None if there is none."""
    labels, round_one = first.labelling.labels, study.mechanism.round_one
    if not isinstance(inputs, DatasetInputs) or round_one is None or (labels[round_one:] == NOT_ASKED).all():
        return None
    train = first_seeds_student(
        inputs.studied, student=str(inputs.settings.student), seed=first.seed, cache_dir=host.cache_dir,
        linear=inputs.linear,
    )  # fmt: skip
    before = labels.copy()
    before[round_one:] = NOT_ASKED
    return train(before)


def _attack(
    inputs: DatasetInputs,
    study: Study,
    first: SeedResult,
    released: ReleasedStudent | None,
    *,
    host: Host,
    reporter: Reporter,
) -> Private[MembershipReport] | None:
    settings, dataset = inputs.settings, inputs.studied
    answered = len(first.training_set(dataset.classes)[0])
    if not settings.attack or released is None or answered == 0:
        return None
    controls = Controls(None, None)
    if settings.baselines:
        controls = make_controls(
            dataset,
            # Of the released student's kind, so that the two differ in privacy alone.
            non_private=pooled_student(
                dataset,
                student=released.taught_kind,
                seed=settings.data_seed,
                cache_dir=host.cache_dir,
                linear=released.linear,
            ),
            student=released.taught_kind,
            linear=released.linear,
            answered=answered,
            seed=first.seed,
            cache_dir=host.cache_dir,
        )
    with reporter.stage("membership attack on the student") as stage:
        found = membership_attack(
            released,
            dataset,
            epsilon=study.budgets.epsilon_guaranteed,
            delta=np.array([seat.delta for seat in study.roster]),
            seats=record_seats(inputs),
            seed=first.seed,
            controls=controls,
        )
        stage.result = "done (private figures)"
    return found


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

    Raises InvalidInput, before any vote is looked at, for an accountant that charges, or that does not hold for the
    mechanism.
    """
    settings, stored = inputs.settings, inputs.stored
    teachers = settings.teachers_per_party
    votes = settings.parties * teachers
    mechanism = scaled_mechanism(
        settings.mechanism, settings.parameters, view="label", classes=stored.classes, votes=float(votes)
    )
    moved = np.array([float(votes_per_unit(settings.unit, teachers=teachers))])
    own = stored.votes[:, 0].astype(np.int64) if isinstance(stored, CastVotes) and teachers == 1 else None
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
    figures, refused = _figures(names, evidence, protected)
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
        known = DATA_DEPENDENT.loadable().items()
        first = next((name for name, each in known if type(mechanism) in each.mechanisms), None)
        if first is None:
            raise InvalidInput(f"no accountant analyses votes under {mechanism.name}; allowed: another mechanism")
        return (first,)
    charging, names = named_accountants(settings.accountant)
    if charging is not None:
        raise InvalidInput(
            f"accountant {charging!r} charges budgets, and here are none; allowed: {', '.join(DATA_DEPENDENT)}"
        )
    return names


def worst_case_epsilon(
    charging: Accountant,
    mechanism: Mechanism,
    moved: Float64[ndarray, "1"],
    *,
    classes: int,
    queries: int,
    delta: float,
    delta_squared: int | float = ONE_VOTE,
) -> float:
    """The least epsilon over the orders: they are public, as all of this is but the votes."""
    units = Sensitivity.always(moved, delta_squared=delta_squared)
    cost = charging.query_cost(mechanism, units, view="label", classes=classes)
    spend = queries * (cost.ask + cost.answer)[0]
    return float(charging.to_epsilon(spend, charging.orders, np.full(len(spend), delta)).min())
