"""Findings: figures computed from a run's private votes and records, all Private, computed after the labels.

Three kinds: data-dependent accountants (`--accountant`), leave-one-out retraining (the accountant "bayesian"), and the
membership attack on the released student. All are of the first seed. simulations/report/private_section.py shows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from protocols.errors import InvalidInput
from protocols.research.data_dependent import DATA_DEPENDENT
from protocols.research.evidence import Figures
from protocols.research.published.private import Private
from protocols.study.study import Study
from protocols.votes import NOT_ASKED
from simulations.membership.attack import membership_attack, record_seats
from simulations.membership.controls import Controls, make_controls
from simulations.membership.report import MembershipReport
from simulations.progress import Reporter
from simulations.retraining.retraining import Retraining, retraining
from simulations.setup.accountants import BAYESIAN, named_accountants
from simulations.stages.asked_votes import AskedVotes
from simulations.stages.inputs import DatasetInputs, Host, Inputs
from simulations.stages.label import SeedResult
from simulations.stages.record_cells import RecordCells
from simulations.stages.stored_votes import StoredVotes, TeacherVotes
from simulations.stages.students import ReleasedStudent, between_rounds


@dataclass(frozen=True, eq=False)
class Findings:
    """All findings of a run; None or empty if not requested, or if there is nothing to analyse.

    refused: why an accountant has no figure for these votes; private too, because it depends on them.
    """

    accountants: Mapping[str, Private[Figures]]
    refused: Mapping[str, Private[str]]
    retraining: Private[Retraining] | None
    attack: Private[MembershipReport] | None


def find(
    inputs: Inputs,
    study: Study,
    stored: StoredVotes | RecordCells,
    first: SeedResult,
    released: ReleasedStudent | None,
    pooled: ReleasedStudent | None,
    *,
    host: Host,
    reporter: Reporter,
) -> Findings:
    """Computes all findings that the settings request.

    first: the labelling of the first seed; released: its student; pooled: the model without privacy, as a control.
    """
    _, names = named_accountants(inputs.settings.accountant)
    figures: dict[str, Private[Figures]] = {}
    refused: dict[str, Private[str]] = {}
    retrained = None
    if names and first.asked and not isinstance(stored, RecordCells):
        predictions = _predictions(inputs, study, first, host)
        wanted = [name for name in names if name != BAYESIAN]
        if wanted:
            asked = AskedVotes(study, stored, first, predictions)
            with reporter.stage("analysis of the votes") as stage:
                for done, name in enumerate(wanted, 1):
                    try:
                        figures[name] = DATA_DEPENDENT[name].figures(asked.evidence, asked.units)
                    except InvalidInput as error:
                        # Refusals that do not depend on votes were raised earlier; one that does must not end the run.
                        refused[name] = Private(str(error))
                    stage.update(done, len(wanted))
                stage.result = f"{', '.join(figures) or 'refused'} (private figures)"
        # check_analyses refuses it for votes of a file, whose records are not known.
        if BAYESIAN in names and isinstance(inputs, DatasetInputs) and isinstance(stored, TeacherVotes):
            retrained = _retrained(inputs, study, stored, first, predictions, reporter)
    attack = None
    if isinstance(inputs, DatasetInputs):
        attack = _attack(inputs, study, first, released, pooled, host=host, reporter=reporter)
    return Findings(figures, refused, retrained, attack)


def _predictions(
    inputs: Inputs, study: Study, first: SeedResult, host: Host
) -> Float64[ndarray, "queries classes"] | None:
    """The predictions of the student between the rounds of an interactive mechanism; None if there is none."""
    labels, round_one = first.labelling.labels, study.mechanism.round_one
    if not isinstance(inputs, DatasetInputs) or round_one is None or (labels[round_one:] == NOT_ASKED).all():
        return None
    train = between_rounds(
        inputs.studied, student=str(inputs.settings.student), seed=first.seed, cache_dir=host.cache_dir
    )
    before = labels.copy()
    before[round_one:] = NOT_ASKED
    return train(before)


def _retrained(
    inputs: DatasetInputs,
    study: Study,
    stored: TeacherVotes,
    first: SeedResult,
    predictions: Float64[ndarray, "queries classes"] | None,
    reporter: Reporter,
) -> Private[Retraining]:
    settings = inputs.settings
    with reporter.stage("teachers with another record") as stage:
        found = retraining(
            study,
            inputs.taught,
            inputs.shards,
            stored.votes,
            first,
            teacher=settings.teacher,
            seed=settings.data_seed,
            parties=None,
            retrainings=settings.retrainings,
            # Half of the smallest delta is left for the conversion.
            confidence=1 - float(study.budgets.delta.min()) / 2,
            population="federation",
            predictions=predictions,
            on_progress=stage.update,
        )
        stage.result = f"{settings.retrainings * len(study.roster)} trainings (private figures)"
    return found


def _attack(
    inputs: DatasetInputs,
    study: Study,
    first: SeedResult,
    released: ReleasedStudent | None,
    pooled: ReleasedStudent | None,
    *,
    host: Host,
    reporter: Reporter,
) -> Private[MembershipReport] | None:
    settings, dataset = inputs.settings, inputs.studied
    answered = len(first.training_set(dataset.classes)[0])
    if not settings.attack or released is None or answered == 0:
        return None
    controls = Controls(None, None)
    if pooled is not None:
        controls = make_controls(
            dataset,
            non_private=pooled,
            student=released.kind,
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
