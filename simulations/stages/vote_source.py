"""The votes of a run, where they come from, and the labels that a study releases with them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from coordinator.queries import choice_between_batches
from protocols.budgets.planned import Budgets
from protocols.features.feature_map import FeatureMap
from protocols.labelling.coordinator import TrainStudent
from protocols.labelling.questions import Choose
from protocols.labelling.stored_votes import CastVotes, StoredVotes
from protocols.study.several_findings import ONE_CLASS
from protocols.study.study import Study
from protocols.study.votes import TeacherVotes, UnitSums
from simulations.datasets.dataset import Dataset
from simulations.engines import open_engine
from simulations.progress import Reporter
from simulations.setup.budgets import upsampling
from simulations.setup.experiment import Experiment, make_record_study, make_study, units_of
from simulations.stages.cast import Cast, cast_votes
from simulations.stages.inputs import DatasetInputs, Host, Inputs, VoteInputs
from simulations.stages.label import SeedResult, label_seed
from simulations.stages.record_cells import RecordCells, find_cells
from simulations.stages.record_votes import label_record_seed
from simulations.stages.students import first_seeds_student

# So many of the pool's first queries are voted on at first, and more when they are asked: most budgets afford fewer.
_FIRST_CAST = 2000


@dataclass(frozen=True, eq=False)
class VoteSource:
    """Votes on a pool of queries, from simulated parties or from a file.

    dataset: None with a file of votes; taught, studied: the same as teachers and as students see it; linear: what
    linear students see of that, None: all. truth: of the pool; teachers: the folder of the trained teachers, None where
    there are none. choose: the questions of the next batch, None where their order is fixed before the first.
    agreement: where queries are hidden, the share of votes in fixed point that the teachers give, too.
    """

    settings: Experiment
    dataset: Dataset | None
    stored: StoredVotes | RecordCells
    truth: Int64[ndarray, " queries"] | None
    party_sizes: Int64[ndarray, " parties"] | None
    party_names: tuple[str, ...] | None
    teachers: Path | None = None
    taught: Dataset | None = None
    studied: Dataset | None = None
    choose: Choose | None = None
    linear: FeatureMap | None = None
    agreement: float | None = None

    @property
    def findings(self) -> tuple[str, ...]:
        """The findings of a record; none where it has a class."""
        return () if self.dataset is None else self.dataset.findings

    @property
    def of_columns(self) -> bool:
        """Whether records voted in cells of single columns alone."""
        return isinstance(self.stored, RecordCells) and self.stored.of_columns

    @property
    def released_words(self) -> str:
        """What is released, in the plural."""
        return "sums of votes released" if isinstance(self.stored, RecordCells) else "labels released"


def votes_source(inputs: Inputs, *, host: Host, reporter: Reporter) -> VoteSource:
    """The votes of a run: those of a file, or by training teachers and casting their votes."""
    if isinstance(inputs, VoteInputs):
        return VoteSource(inputs.settings, None, inputs.stored, inputs.truth, None, None)
    return _SOURCES[inputs.settings.votes_by](inputs, host, reporter)


def _sizes(inputs: DatasetInputs) -> Int64[ndarray, " parties"]:
    return np.array([sum(len(shard) for shard in of_party) for of_party in inputs.shards])


def _source_of_records(inputs: DatasetInputs, host: Host, reporter: Reporter) -> VoteSource:
    return VoteSource(
        inputs.settings,
        inputs.dataset,
        _record_cells(inputs, host=host, reporter=reporter),
        inputs.dataset.public_labels,
        _sizes(inputs),
        inputs.party_names,
        taught=inputs.taught,
        studied=inputs.studied,
        linear=inputs.linear,
    )


def _source_of_teachers(inputs: DatasetInputs, host: Host, reporter: Reporter) -> VoteSource:
    settings, sizes, asks = inputs.settings, _sizes(inputs), inputs.asks

    def cast_first(queries: int, *, input_bound: float | None = settings.input_bound) -> Cast:
        with reporter.stages() as on_stage:
            return cast_votes(
                inputs.taught,
                inputs.shards,
                teacher=settings.teacher,
                seed=settings.data_seed,
                # The engine is opened only if something is not cached: importing Flower takes seconds.
                engine=lambda: open_engine(host.engine, workers=host.workers),
                cache_dir=host.cache_dir,
                on_stage=on_stage,
                queries=queries,
                input_bound=input_bound,
            )

    cast = cast_first(_FIRST_CAST)
    reporter.say(
        f"teachers and votes: {cast.trained} of {cast.votes.shape[0] * cast.votes.shape[1]} teachers trained now, "
        "the rest from the cache"
    )
    if settings.individualization == "upsampling":
        ensemble = upsampling(settings.budgets, teachers=settings.parties)
        sizes = np.bincount(ensemble.groups(len(inputs.dataset.private_labels), seed=settings.data_seed))
    return VoteSource(
        settings,
        inputs.dataset,
        CastVotes(
            inputs.classes,
            asks.of_models(cast.votes),
            pool=inputs.queries,
            cast_more=lambda rows: asks.of_models(cast_first(-(-rows // asks.rows)).votes),
            asks=asks,
        ),
        asks.truth(inputs.dataset.public_labels),
        sizes,
        inputs.party_names,
        cast.folder,
        inputs.taught,
        inputs.studied,
        choice_between_batches(
            settings.questions,
            inputs.dataset.public_inputs,
            columns=inputs.dataset.columns,
            features=settings.features or "auto",
            seed=settings.data_seed,
        ),
        inputs.linear,
        agreement=(
            float((cast.votes == cast_first(_FIRST_CAST, input_bound=None).votes).mean()) if settings.askers else None
        ),
    )


_SOURCES = {TeacherVotes: _source_of_teachers, UnitSums: _source_of_records}


def _record_cells(inputs: DatasetInputs, *, host: Host, reporter: Reporter) -> RecordCells:
    """Where the records of every seat vote."""
    settings, dataset = inputs.settings, inputs.dataset
    holdings = [np.concatenate(of_seat) for of_seat in inputs.shards]
    units = tuple(units_of(settings.unit, dataset, records) for records in holdings)
    with reporter.stages() as on_stage:
        cells = find_cells(
            dataset,
            holdings,
            inputs.query_map,
            engine=lambda: open_engine(host.engine, workers=host.workers),
            cache_dir=host.cache_dir,
            on_stage=on_stage,
        )
    return RecordCells(dataset.labelled, inputs.population, inputs.query_map, tuple(cells), units, tuple(holdings))


def record_study_of(inputs: DatasetInputs, budgets: Budgets) -> Study:
    """The study in which the records of these inputs vote. Raises InvalidInput."""
    return make_record_study(
        inputs.settings, budgets, labelled=inputs.dataset.labelled, queries=inputs.query_map,
        population=inputs.population, pool=len(inputs.dataset.public_inputs),
    )  # fmt: skip


def study_for(settings: Experiment, budgets: Budgets, source: VoteSource) -> Study:
    """The study of these settings with votes that were cast already. Raises InvalidInput."""
    stored = source.stored
    if isinstance(stored, RecordCells):
        return make_record_study(
            settings, budgets, labelled=stored.labelled, queries=stored.map, population=stored.population,
            pool=0 if source.dataset is None else len(source.dataset.public_inputs),
        )  # fmt: skip
    asks = stored.asks if isinstance(stored, CastVotes) else ONE_CLASS
    return make_study(
        settings, budgets, classes=stored.classes, queries=stored.queries, asks=asks, findings=source.findings
    )


def labelled_source(study: Study, source: VoteSource, seed: int, settings: Experiment, host: Host) -> SeedResult:
    """The labels that a study releases with the noise of one seed."""
    if isinstance(source.stored, RecordCells) and source.dataset is not None:
        return label_record_seed(
            study,
            source.stored,
            pool=source.dataset.public_inputs,
            seed=seed,
            dropout=settings.dropout,
            truth=source.truth,
        )
    assert not isinstance(source.stored, RecordCells)  # records are those of a data set
    return label_seed(
        study,
        source.stored,
        seed=seed,
        dropout=settings.dropout,
        truth=source.truth,
        train=train_between(study, source, seed, settings, host),
        choose=source.choose,
    )


def train_between(study: Study, source: VoteSource, seed: int, settings: Experiment, host: Host) -> TrainStudent | None:
    """The function that trains the student between two rounds; None if the mechanism has one round."""
    if not study.mechanism.interactive or source.studied is None:
        return None
    return first_seeds_student(
        source.studied, student=str(settings.student), seed=seed, cache_dir=host.cache_dir, linear=source.linear
    )
