"""CaPC's experiment: querying parties get their private records labelled, and retrain their models.

Choquette-Choo et al. 2021 ("CaPC Learning", ICLR), sections 4 and 5. Stage by stage: data -> partition -> every party's
own kind of model -> votes in fixed point -> rounds of questions under one cap per party -> retraining. Heavy stages are
cached by the hash of their inputs, so an interrupted run continues where it stopped when started again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from party.teachers import teacher_kind
from party.teachers.teacher import PRIVATE
from protocols.errors import BudgetExceeded, InvalidInput
from protocols.labelling.schedule import Stop
from protocols.plural import counted
from protocols.study.released_noise import little_released
from protocols.study.study import Study
from protocols.votes import count_votes, plurality
from simulations.ask.models import check_turn
from simulations.ask.retraining import Retrained, retrain
from simulations.ask.schedule import AskedLabels, ask_all, next_round
from simulations.ask.settings import AskSettings
from simulations.ask.study import ask_study, noise_of_both
from simulations.ask.votes import Consortium, HeterogeneousVotes, consortium, heterogeneous_votes
from simulations.datasets.dataset import Dataset
from simulations.engines import check_engine
from simulations.progress import Reporter
from simulations.setup.budgets import Budgets
from simulations.setup.partition import parse_partition, partition
from simulations.stages.inputs import Host, load_dataset


@dataclass(frozen=True, eq=False)
class AskInputs:
    """The inputs of a run, read and checked before anything is trained."""

    settings: AskSettings
    dataset: Dataset
    budgets: Budgets
    study: Study
    who: Consortium


@dataclass(frozen=True, eq=False)
class AskResult:
    """Everything that a report is made from; asked, retrained: one per seed."""

    inputs: AskInputs
    cast: HeterogeneousVotes
    asked: list[AskedLabels]
    retrained: Retrained
    plurality: Int64[ndarray, "queriers records"]

    @property
    def truth(self) -> Int64[ndarray, "queriers records"]:
        """True labels of the querying parties' records: for evaluation only."""
        return self.inputs.dataset.public_labels.reshape(len(self.inputs.who.queriers), -1)


def read_ask_inputs(settings: AskSettings, *, host: Host, reporter: Reporter) -> AskInputs:
    """Reads and checks everything. Raises InvalidInput, DataUnavailable, DataCorrupt; BudgetExceeded if the smallest
    budget affords no round at all."""
    check_engine(host.engine)
    for kind in settings.models or PRIVATE:
        teacher_kind(kind)
    _, trial = ask_study(settings, classes=settings.classes or 10)
    _must_afford(settings, trial)
    with reporter.stage(f"data, {settings.dataset}") as stage:
        dataset = load_dataset(settings.common, host)
        stage.result = (
            f"{len(dataset.private_labels)} labelled records of all parties, {len(dataset.public_labels)} unlabelled "
            f"ones of {settings.queriers} querying parties, {len(dataset.test_labels)} test records, "
            f"{dataset.classes} classes"
        )
    wanted = settings.queriers * settings.unlabelled
    if len(dataset.public_labels) < wanted:
        raise InvalidInput(
            f"{settings.queriers} querying parties have {settings.unlabelled} unlabelled records each; allowed: at "
            f"most {len(dataset.public_labels) // settings.queriers}, as {dataset.name} has "
            f"{len(dataset.public_labels)} public records"
        )
    for kind in settings.models or ():
        if teacher_kind(kind).needs_images and dataset.kind != "image":
            raise InvalidInput(f"model is {kind!r}, which needs images; allowed for {dataset.name}: one for tables")
    budgets, study = ask_study(settings, classes=dataset.classes)
    if warning := little_released(study):
        reporter.warn(warning)
    scheme = parse_partition(settings.common.partition)
    shards = partition(dataset, parties=settings.parties, scheme=scheme, seed=settings.data_seed)
    who = consortium(settings, dataset, shards)
    for kind in dict.fromkeys(who.kinds):
        check_turn(kind, dataset, turn=settings.turn)
    return AskInputs(settings, dataset, budgets, study, who)


def ask(inputs: AskInputs, *, host: Host, reporter: Reporter) -> AskResult:
    """Runs everything that takes time. Raises ConclaveError; what was finished before stays cached."""
    settings, dataset, study, who = inputs.settings, inputs.dataset, inputs.study, inputs.who
    cast = heterogeneous_votes(settings, dataset, who, host=host, reporter=reporter)
    with reporter.stage(f"asking, {counted(len(settings.seeds), 'seed')}") as stage:
        asked = []
        for done, seed in enumerate(settings.seeds, 1):
            asked.append(ask_all(study, cast.votes, who.queriers, noise=noise_of_both(study, seed=seed)))
            stage.update(done, len(settings.seeds))
        given = np.mean([(one.labels >= 0).sum() for one in asked])
        stage.result = f"{given:.1f} labels given to {counted(len(who.queriers), 'querying party')}"
    retrained = retrain(settings, dataset, who, asked, host=host, reporter=reporter)
    return AskResult(inputs, cast, asked, retrained, _plurality(study, cast, who))


def _plurality(study: Study, cast: HeterogeneousVotes, who: Consortium) -> Int64[ndarray, "queriers records"]:
    """The weighted plurality of the others without noise or threshold: without privacy, for comparison."""
    rows = []
    for place, querier in enumerate(who.queriers.tolist()):
        weights = study.weights.copy()
        weights[querier] = 0.0
        rows.append(plurality(count_votes(cast.votes[:, place, None], weights, classes=study.classes)))
    return np.stack(rows)


def _must_afford(settings: AskSettings, study: Study) -> None:
    """Raises BudgetExceeded, before anything is trained, when no round fits."""
    first = next_round(
        study, np.zeros(len(study.roster), dtype=np.int64), queriers=np.arange(settings.queriers), left=1
    )
    if isinstance(first, Stop):
        poorest = min(study.roster, key=lambda seat: seat.epsilon)
        raise BudgetExceeded(
            f"epsilon {poorest.epsilon:g} at delta {poorest.delta:g} affords no round of one query for each of "
            f"{settings.queriers} querying parties at {study.mechanism.noise_words}; allowed: a larger budget, "
            f"more parties, fewer queriers or {study.mechanism.more_noise_words}"
        )
