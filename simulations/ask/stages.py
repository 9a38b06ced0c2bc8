"""The study of `ask`: level two_server, label view, integer noise from both servers; and what its budgets cover.

The querying party takes the coordinator's place, with the guardian. The terms are the same for every querying party, so
one study, and one cap per party, covers what all of them ask together.

Who asks when: rounds in which every querying party asks the same number of queries, under one cap per party.

The public rule. A round gives each querying party, in the order of the roster, one turn of the same size: as many
queries as the settings say, or fewer if the worst case of the whole round (every query of every turn answered) would
not fit what is left of some budget. A round that does not fit even with one query per turn is not begun, so no querying
party gets a turn more than another. After each turn its answers are settled: refused queries cost less, and the
difference pays for further rounds. Sizes, and who takes part, depend on public ledgers only.

Every answering party has one ledger over all turns of all querying parties, because they might collude. A querying
party does not answer itself, so its own turns cost it nothing.

Retraining: each querying party trains its own kind of model again, on its own records and the new labels.

Its own labelled records and the newly labelled ones have equal weight. Nobody else learns anything from this; for the
answering parties it is post-processing of the labels.

CaPC's experiment: querying parties get their private records labelled, and retrain their models.

Choquette-Choo et al. 2021 ("CaPC Learning", ICLR), sections 4 and 5. Stage by stage: data -> partition -> every party's
own kind of model -> votes in fixed point -> rounds of questions under one cap per party -> retraining. Heavy stages are
cached by the hash of their inputs, so an interrupted run continues where it stopped when started again.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float64, Int64, Integer
from numpy import ndarray

from party.teachers import teacher_kind
from party.teachers.teacher import PRIVATE
from protocols.budgets.accountant import accountant
from protocols.budgets.filter import BudgetFilter
from protocols.budgets.individualization import weights
from protocols.budgets.planned import Planned
from protocols.crypto.randomness import simulation_rng
from protocols.errors import BudgetExceeded, InvalidInput
from protocols.labelling.schedule import Stop
from protocols.mechanisms import MECHANISMS
from protocols.noise import LatticeNoise, Noise, lattice_noise
from protocols.plural import at_most, counted
from protocols.study.levels import TwoServer, guarded
from protocols.study.released_noise import little_released
from protocols.study.study import Seat, Study
from protocols.study.votes import TeacherVotes, votes_per_unit
from protocols.votes import ABSTAIN, NOT_ASKED, count_votes, plurality
from simulations.ask.kinds import SHARES
from simulations.ask.settings import AskSettings
from simulations.ask.votes import Consortium, HeterogeneousVotes, cast_kind, check_turn, consortium, heterogeneous_votes
from simulations.datasets.dataset import Dataset
from simulations.engines import check_engine
from simulations.progress import Reporter
from simulations.setup.budgets import Budgets
from simulations.setup.experiment import experiment_budgets
from simulations.setup.levels import seat_keys
from simulations.setup.partition import parse_partition, partition
from simulations.stages.inputs import Host, load_dataset


def ask_study(settings: AskSettings, *, classes: int) -> tuple[Budgets, Study]:
    """Every party's budget and the study that all querying parties ask under.

    Raises InvalidInput, before anything is trained or shared, for settings that do not go together, that would overflow
    the ring, or a budget that affords nothing.
    """
    budgets = experiment_budgets(settings.common)
    parties, units = settings.parties, settings.units
    kind = MECHANISMS[settings.mechanism]
    taken = kind.parameters(view="label")
    given = {name: getattr(settings, name) for name in SHARES}
    noise: dict[str, int | float | None] = {
        name: SHARES[name] * parties if name in taken and value is None else value for name, value in given.items()
    }
    confidentiality = TwoServer(
        units=units,
        abstention=False,
        guardian="guardian",
        sealing_key=_stand_in("sealing"),
        signing_key=_stand_in("signing"),
        seat_keys=seat_keys(parties),
    )
    charging = accountant("label_only")
    mechanism = kind.build(view="label", given=noise)
    planned = Planned(
        accountant=charging,
        mechanism=mechanism,
        epsilon=budgets.epsilon,
        delta=budgets.delta,
        sensitivity_per_weight=votes_per_unit(settings.unit, teachers=1),
        delta_squared=TeacherVotes.delta_squared,
        sigma=mechanism.label_sigma,
        view="label",
        classes=classes,
        # Weights only: integer noise needs no delta set aside for float64, so none is reserved here.
        query_limit=0,
        answer_rate=settings.answer_rate,
    )
    weight = weights(settings.weights, planned, units=units)
    if (threshold := mechanism.needed(second_round=False)) is not None:
        # On the lattice, as the circuit tests it.
        noise["threshold"] = float(np.floor(threshold * units) / units)
    queries = settings.queriers * settings.unlabelled
    rows = zip(budgets.names, budgets.epsilon.tolist(), budgets.delta.tolist(), weight.tolist(), strict=True)
    study = Study(
        name=f"ask-{settings.dataset}-{parties}",
        classes=classes,
        votes=TeacherVotes(
            mechanism=kind.build(view="label", given=noise),
            view="label",
            teachers=1,
            query_limit=queries,
            batch_limit=settings.turn,
            answer_rate=settings.answer_rate,
            stop=settings.stop,
            participation_name="all",
        ),
        unit=settings.unit,
        accountant_name=charging.name,
        quorum=settings.quorum,
        confidentiality=confidentiality,
        roster=tuple(Seat(party=p, epsilon=e, delta=d, weight=w, rate=1.0) for p, e, d, w in rows),
    )
    return budgets, study


def noise_of_both(study: Study, *, seed: int) -> LatticeNoise:
    """The sum of the noise of querying party and guardian, each the study's full noise; it is seeded and protects
    nobody.
    """
    units = guarded(study.confidentiality).units
    one, other = (lattice_noise(simulation_rng(seed, f"noise {who}").bytes, units=units) for who in ("one", "other"))
    return LatticeNoise(units, lambda count, sigma: one.draw(count, sigma) + other.draw(count, sigma))


def _stand_in(purpose: str) -> str:
    """A stand-in for a key of the guardian, which a simulation does not have."""
    return hashlib.sha256(f"simulated guardian, {purpose}".encode()).hexdigest()


@dataclass(frozen=True)
class Turn:
    """One querying party's batch: its round, and how many queries it asked and got answered."""

    number: int
    querier: int
    asked: int
    answered: int


@dataclass(frozen=True, eq=False)
class AskedLabels:
    """What all querying parties learned, and what that cost.

    labels: class ids, ABSTAIN or NOT_ASKED, one row per querying party; spent_after: nano-units in every ledger after
    each turn.
    """

    labels: Int64[ndarray, "queriers records"]
    turns: tuple[Turn, ...]
    spent_after: Int64[ndarray, "turns parties"]
    spent: Int64[ndarray, " parties"]
    stop: Stop


@dataclass(frozen=True)
class Round:
    """Every querying party asks `size` queries (>= 1) of the parties that are `active`."""

    size: int
    active: Bool[ndarray, " parties"]


def ask_all(
    study: Study,
    votes: Integer[ndarray, "parties queriers records"],
    queriers: Int64[ndarray, " queriers"],
    *,
    noise: Noise,
) -> AskedLabels:
    """Asks until a budget is exhausted or every record was asked about; returns the labels and their cost.

    votes: every party's on each querying party's records; queriers: positions in the roster, ascending. The study's
    batch_limit is the largest turn.
    """
    _, count, records = votes.shape
    budgets = study.budgets
    labels = np.full((count, records), NOT_ASKED, dtype=np.int64)
    spent = np.zeros(len(study.roster), dtype=np.int64)
    turns: list[Turn] = []
    history: list[Int64[ndarray, " parties"]] = []
    asked, number = 0, 0
    while isinstance(step := next_round(study, spent, queriers=queriers, left=records - asked), Round):
        batch = slice(asked, asked + step.size)
        for place, querier in enumerate(queriers.tolist()):
            voting = step.active.copy()
            voting[querier] = False
            counts = count_votes(votes[:, place, None, batch], study.weights * voting, classes=study.classes)
            released, _ = study.released(counts, noise, predictions=None)
            labels[place, batch] = released
            answered = int((released != ABSTAIN).sum())
            spent = spent + np.where(voting, budgets.amount(step.size, answered), 0)
            turns.append(Turn(number, place, step.size, answered))
            history.append(spent)
        asked += step.size
        number += 1
    rows = np.array(history, dtype=np.int64).reshape(len(history), len(spent))
    return AskedLabels(labels, tuple(turns), rows, spent, step)


def next_round(
    study: Study, spent: Int64[ndarray, " parties"], *, queriers: Int64[ndarray, " queriers"], left: int
) -> Round | Stop:
    """The next round, or the reason to stop; left: records that each querying party has not asked about yet."""
    if left == 0:
        return Stop("pool_exhausted", np.zeros(len(spent), dtype=bool))
    fits = _turns_that_fit(study.budgets, spent, queriers, limit=min(left, study.batch_limit))
    active = fits >= 1
    if study.votes.stop == "first-exhausted" and not active.all():
        return Stop("budget_exhausted", ~active)
    if not active.any():
        return Stop("all_budgets_exhausted", ~active)
    # The querying party of a turn is not among those that answer it.
    if active.sum() - int(active[queriers].any()) < study.quorum:
        return Stop("quorum_lost", ~active)
    return Round(int(fits[active].min()), active)


def _turns_that_fit(
    budgets: BudgetFilter, spent: Int64[ndarray, " parties"], queriers: Int64[ndarray, " queriers"], *, limit: int
) -> Int64[ndarray, " parties"]:
    """The largest turn, at most `limit`, whose round fits each party's cap; each turn rounds its own cost up."""
    answers = np.full(len(spent), len(queriers))
    answers[queriers] -= 1
    paying = answers > 0
    most = np.maximum(answers, 1)
    left = budgets.cap - spent
    size = np.minimum(budgets.affordable(spent, limit=limit * len(queriers)) // most, limit)
    # One charge per turn, each rounded up, may be a few nano-units more than one charge for all of them.
    while (over := paying & (size > 0) & (most * budgets.amount(size, size) > left)).any():
        size = size - over
    return np.where(paying, size, limit)


@dataclass(frozen=True, eq=False)
class Retrained:
    """Predictions of the querying parties' retrained models on the test part, for each seed.

    with_truth: the same, had the records been given their true labels instead; None if that was not measured.
    """

    after: Int64[ndarray, "seeds queriers tests"]
    with_truth: Int64[ndarray, "seeds queriers tests"] | None


def retrain(
    settings: AskSettings,
    dataset: Dataset,
    who: Consortium,
    asked: list[AskedLabels],
    *,
    host: Host,
    reporter: Reporter,
) -> Retrained:
    """Trains every querying party's model again for every seed; asked: one result per seed. Cached."""
    truth = dataset.public_labels.reshape(len(who.queriers), -1)
    given = [[one.labels for one in asked]]
    if settings.baselines:
        given.append([np.where(one.labels >= 0, truth, one.labels) for one in asked])
    shape = (len(given), len(asked), len(who.queriers), len(dataset.test_labels))
    predicted = np.empty(shape, dtype=np.int64)
    kinds = [who.kinds[querier] for querier in who.queriers.tolist()]
    for kind in dict.fromkeys(kinds):
        places = [place for place, other in enumerate(kinds) if other == kind]
        cells = [(way, seed, place) for way in range(len(given)) for seed in range(len(asked)) for place in places]
        parts = [_training_set(dataset, who, place, given[way][seed][place]) for way, seed, place in cells]
        with reporter.stages() as on_stage:
            cast = cast_kind(
                *_together(dataset, parts),
                dataset.test_inputs,
                kind=kind,
                seed=settings.data_seed,
                host=host,
                on_stage=lambda stage, done, total, kind=kind: on_stage(f"{kind}, retrained: {stage}", done, total),  # type: ignore[misc]  # a closure over the loop's variable
            )
        for cell, row in zip(cells, cast.votes[:, 0], strict=True):
            predicted[cell] = row
    return Retrained(predicted[0], predicted[1] if settings.baselines else None)


Part = tuple[ndarray, ndarray]


def _training_set(dataset: Dataset, who: Consortium, place: int, labels: Int64[ndarray, " records"]) -> Part:
    """The inputs and labels: the party's own, then those that it was given."""
    own = who.shards[who.queriers[place]]
    answered = np.flatnonzero(labels >= 0)
    inputs = dataset.public_inputs[place * len(labels) + answered]
    return (
        np.concatenate([dataset.private_inputs[own], inputs]),
        np.concatenate([dataset.private_labels[own], labels[answered]]),
    )


def _together(dataset: Dataset, parts: list[Part]) -> tuple[Dataset, list[Int64[ndarray, " records"]]]:
    """All training sets as one data set, and the positions of each in it."""
    ends = np.cumsum([len(labels) for _, labels in parts]).tolist()
    joined = replace(
        dataset,
        private_inputs=np.concatenate([inputs for inputs, _ in parts]),
        private_labels=np.concatenate([labels for _, labels in parts]),
        private_sites=None,
        site_names=(),
        private_patients=None,
    )
    return joined, [np.arange(end - len(labels), end) for end, (_, labels) in zip(ends, parts, strict=True)]


def per_class(
    predicted: Int64[ndarray, "... tests"], truth: Int64[ndarray, " tests"], *, classes: int
) -> Float64[ndarray, "... classes"]:
    """Share of each class's test records that are right; NaN for a class without any."""
    right = predicted == truth
    found = [right[..., truth == label] for label in range(classes)]
    return np.stack([one.mean(axis=-1) if one.shape[-1] else np.full(one.shape[:-1], np.nan) for one in found], axis=-1)


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
            f"epsilon {at_most(poorest.epsilon)} at delta {at_most(poorest.delta)} affords no round of one query "
            f"for each of {settings.queriers} querying parties at {study.mechanism.noise_words}; allowed: a larger "
            f"budget, more parties, fewer queriers or {study.mechanism.more_noise_words}"
        )
