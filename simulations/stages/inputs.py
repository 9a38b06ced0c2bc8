"""What a run starts from, read and checked: a data set cut into shards, or stored votes.

With it what teachers and students learn from, records or features of them, and the order in which queries are asked.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import ClassVar

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray

from coordinator.queries import questions_of_a_batch
from coordinator.queries.features import features_for
from coordinator.queries.questions import in_order
from coordinator.students import EQUAL, SCORES, student_kind
from coordinator.students.choice import AUTO, SIMPLEST, USUAL, ToLearn, usual_student
from party.teachers import teacher_kind
from party.teachers.teacher import PRIVATE
from protocols.array_files import array_bytes
from protocols.errors import InvalidInput
from protocols.features.feature_map import FeatureMap
from protocols.labelling.replay import check_replayed
from protocols.labelling.stored_votes import StoredVotes, VoteCounts, labels_in, load_labels, load_votes, transposed
from protocols.mechanisms import MECHANISMS
from protocols.study.chosen import GIVEN
from protocols.study.several_findings import ONE_CLASS, WAYS, Asked, Powerset
from protocols.study.votes import TeacherVotes, UnitSums
from protocols.sums.blocks import Blocks
from protocols.sums.contributions import FEWEST_UNITS
from runtime.files import write_atomically
from simulations import datasets
from simulations.datasets.dataset import Dataset, DatasetRequest, content_digest
from simulations.datasets.doubts import doubts_of, doubts_of_holdings
from simulations.datasets.groups import groupings
from simulations.datasets.rendered import rendered
from simulations.engines import check_engine
from simulations.progress import Reporter
from simulations.setup.budgets import split_by_group, upsampling
from simulations.setup.experiment import (
    Experiment,
    experiment_budgets,
    is_graded,
    make_study,
    population_of,
    query_map,
    seat_units,
)
from simulations.setup.partition import BySite, ByTime, parse_partition, partition, teacher_shards
from simulations.source import source_digest
from simulations.stages.cached import cached_array
from simulations.stages.students import check_student_kind


def in_order_of_asking(settings: Experiment, dataset: Dataset) -> Dataset:
    """The data set with its pool in the order in which teachers are asked; as it is, where they are asked in no order
    that is fixed before. Raises InvalidInput."""
    if settings.questions == GIVEN or questions_of_a_batch(settings.questions) is not None:
        return dataset
    order = in_order(
        dataset.public_inputs,
        settings.questions,
        columns=dataset.columns,
        features=settings.features or "auto",
        seed=settings.data_seed,
    )
    return replace(dataset, public_inputs=dataset.public_inputs[order], public_labels=dataset.public_labels[order])


def encoded_dataset(
    dataset: Dataset, features: Callable[[], FeatureMap], *, named: str, cache_dir: Path | None
) -> Dataset:
    """The same records as rows of features. named: what the map is made of and by; cache_dir: where they are kept;
    None: nowhere.

    Raises InvalidInput for records that the map cannot take.
    """

    def of(records: Float32[ndarray, "records ..."], digest: str) -> Float32[ndarray, "records features"]:
        if cache_dir is None:
            return features()(records)
        key = content_digest(text=f"features {named} {digest} {source_digest('protocols.features')}")
        path = cache_dir / "features" / f"{key}.npy"
        known = cached_array(path)
        if known is not None and known.ndim == 2 and len(known) == len(records) and known.dtype == np.float32:
            return known
        made = features()(records)
        write_atomically(path, array_bytes(made))
        return made

    return replace(
        dataset,
        kind="table",
        columns=(),
        private_inputs=of(dataset.private_inputs, f"private {dataset.private_digest}"),
        public_inputs=of(dataset.public_inputs, f"public {dataset.public_digest}"),
        test_inputs=of(dataset.test_inputs, f"test {dataset.test_digest}"),
    )


def check_suited(settings: Experiment, dataset: Dataset, *, student: str) -> None:
    """Raises InvalidInput for a teacher or a student that needs images, and would learn from something else."""
    named = student not in ("none", AUTO, SCORES, USUAL)
    graded = settings.votes_by.once and is_graded(settings)
    if student == SCORES and (not graded or settings.student_features):
        raise InvalidInput(
            f"student is {SCORES!r}; allowed where records vote with graded features, which it sees: with --votes-by "
            "record, without --record-queries and --student-features"
        )
    for what, name, images, features in (
        ("teacher", settings.teacher, teacher_kind(settings.teacher).needs_images, settings.teacher_features),
        ("student", student, named and student_kind(student).needs_images, bool(settings.student_features)),
    ):
        if images and (dataset.kind != "image" or features):
            raise InvalidInput(
                f"{what} is {name!r}, which needs images; allowed for {'features of ' * features}{dataset.name}: "
                "one for tables, as mlp"
            )


@dataclass(frozen=True, kw_only=True)
class Host:
    """What a run uses that is not part of its settings: paths of data and caches, engine and workers.

    named: the flags of it that were given and that a command which repeats the run needs.
    """

    data_dir: Path | None
    cache_dir: Path
    engine: str
    workers: int | None
    named: Mapping[str, object] = field(default_factory=dict, hash=False)

    @property
    def folders(self) -> dict[str, str | int | float | bool]:
        """What `in_worker` makes it of again."""
        data_dir = "" if self.data_dir is None else str(self.data_dir.absolute())
        return {"here": str(Path.cwd()), "cache_dir": str(self.cache_dir.absolute()), "data_dir": data_dir}

    @classmethod
    def in_worker(cls, *, here: str, cache_dir: str, data_dir: str) -> Host:
        """The same in a worker, which works in the caller's folder `here`: settings may name files from there."""
        os.chdir(here)
        data = Path(data_dir) if data_dir else None
        return cls(data_dir=data, cache_dir=Path(cache_dir), engine="in_process", workers=1)


@dataclass(frozen=True, eq=False)
class DatasetInputs:
    """What a run that trains teachers starts from: a data set cut into shards.

    shards: for each seat (a party, or one of its privacy groups), the private records of each of its teachers; with
    upsampling, for each teacher of the pooled data. asker: the labelled records of the hospital that asks, which is no
    seat, where queries are hidden. host: where features of records are kept; None: nowhere.
    """

    settings: Experiment
    dataset: Dataset
    shards: list[list[Int64[ndarray, " records"]]]
    asker: Int64[ndarray, " records"] | None = None
    host: Host | None = None

    @property
    def cache_dir(self) -> Path | None:
        """Where features of records are kept; None: nowhere."""
        return None if self.host is None else self.host.cache_dir

    @property
    def party_names(self) -> tuple[str, ...] | None:
        """The names of the sites if each party is one site of the data set, otherwise None."""
        if not isinstance(parse_partition(self.settings.partition), BySite):
            return None
        sites, parties = self.dataset.site_names, self.settings.parties
        return sites[:parties] if len(sites) == parties + self.settings.askers else None

    @cached_property
    def doubts(self) -> tuple[str, ...]:
        """What casts doubt on all figures of these data, by what is public or tested."""
        little, _ = doubts_of_holdings(self.dataset, self.shards)
        return (*doubts_of(self.dataset), *filter(None, [little]))

    @cached_property
    def population(self) -> int:
        """Where records vote: how many protected units all parties have together."""
        return population_of(self.settings.unit, self.dataset, len(self.shards))

    @cached_property
    def query_map(self) -> Blocks:
        """Where records vote: the public queries. Raises InvalidInput for a kind that the data do not have."""
        return query_map(self.settings, self.dataset, population=self.population)

    @cached_property
    def features(self) -> FeatureMap | None:
        """What teachers or students learn from, and records are compared by; None: nobody does. Raises InvalidInput."""
        return _OF_VOTERS[self.settings.votes_by].features(self)

    @property
    def learned_features(self) -> FeatureMap | None:
        """What teachers or students learn from; None: nobody does. Raises InvalidInput."""
        settings = self.settings
        if settings.features is None or not (settings.teacher_features or settings.student_features):
            return None
        pool, columns = self.dataset.public_inputs, self.dataset.columns
        return features_for(pool, settings.features, columns=columns, seed=settings.data_seed)

    @cached_property
    def taught(self) -> Dataset:
        """The data set as teachers see it."""
        return self._encoded if self.settings.teacher_features else self.dataset

    @cached_property
    def studied(self) -> Dataset:
        """The data set as students see it."""
        return self._encoded if self.settings.student_features else self.dataset

    @cached_property
    def linear(self) -> FeatureMap | None:
        """What the linear kind sees of an image where student "auto" compares it with kinds that see images."""
        settings = self.settings
        if self.dataset.kind != "image" or settings.student != AUTO or settings.student_features is not None:
            return None
        return features_for(self.dataset.public_inputs, settings.features or "auto", seed=settings.data_seed)

    @cached_property
    def as_rows(self) -> Dataset:
        """The data set as linear models see it: images by the study's features, or by the usual ones where it has
        none. Raises InvalidInput without scikit-learn."""
        if self.dataset.kind != "image":
            return self.studied
        if self.features is not None:
            return self._encoded
        made = cache(partial(features_for, self.dataset.public_inputs, "auto", seed=self.settings.data_seed))
        return encoded_dataset(self.dataset, made, named=self.rows_named, cache_dir=self.cache_dir)

    @property
    def rows_named(self) -> str:
        """What `as_rows` are made of and by, without making them."""
        features = self.features.digest if self.features is not None else f"auto {self.settings.data_seed}"
        source = source_digest("coordinator.queries", "protocols.features")
        return f"{self.dataset.public_digest} {features} {bool(self.settings.student_features)} {source}"

    @cached_property
    def _encoded(self) -> Dataset:
        features = self.features
        assert features is not None  # the settings are checked
        return encoded_dataset(self.dataset, lambda: features, named=features.digest, cache_dir=self.cache_dir)

    @property
    def fingerprint(self) -> str:
        """A digest of the data that the run starts from, and of what maps them: settings just name an encoder."""
        features = "" if self.features is None else self.features.digest
        return content_digest(text=f"{self.dataset.private_digest} {self.dataset.public_digest} {features}")

    @cached_property
    def asks(self) -> Asked:
        """What a query asks of a teacher; a powerset has the sets of the pool's labels. Raises InvalidInput."""
        return asked(self.settings, self.dataset)

    @property
    def classes(self) -> int:
        """The number of classes; counts of a row where there are findings."""
        return self.asks.classes or self.dataset.classes

    @property
    def queries(self) -> int:
        """The size of the public pool, in rows of a study."""
        return len(self.dataset.public_labels) * self.asks.rows


@dataclass(frozen=True, eq=False)
class VoteInputs:
    """What a replay starts from: stored votes, and the true labels where they are known."""

    settings: Experiment
    stored: StoredVotes
    truth: Int64[ndarray, " queries"] | None
    asks: ClassVar[Asked] = ONE_CLASS
    doubts: ClassVar[tuple[str, ...]] = ()

    @property
    def party_names(self) -> None:
        """Stored votes name no parties."""
        return

    @property
    def fingerprint(self) -> str:
        """A digest of the votes that the run starts from."""
        return content_digest(*self.stored.arrays, *(() if self.truth is None else (self.truth,)))

    @property
    def classes(self) -> int:
        """The number of classes."""
        return self.stored.classes

    @property
    def queries(self) -> int:
        """How many queries were voted on."""
        return self.stored.queries


Inputs = DatasetInputs | VoteInputs
# Tables are standardised: hardly a value is larger.
TABLE_BOUND = 8.0
# What stays where data and features stay, and the settings of features. Features of records are those of their queries.
_OF_FEATURES = ("features", "_encoded", "taught", "studied", "as_rows")
_SETTINGS_OF_FEATURES = ("features", "teacher_features", "student_features")
_SETTINGS_OF_QUERIES = ("record_queries", "bins", "nearest", "partitions", "features", "data_seed")


def read_inputs(settings: Experiment, *, host: Host, reporter: Reporter) -> Inputs:
    """Reads and checks everything that a run needs before anything is trained, spent or written.

    Raises InvalidInput, DataUnavailable or DataCorrupt.
    """
    check_student_kind(settings.student)
    if settings.votes is not None:
        of_votes = vote_file_inputs(settings, Path(settings.votes))
        if (doubt := transposed(of_votes.stored)) is not None:
            reporter.warn(f"not for release: {doubt}")
        if settings.labels is not None and settings.queries is None:
            held = len(labels_in(settings.labels))
            if held > of_votes.queries:
                reporter.warn(f"{settings.labels} has {held} labels: the first {of_votes.queries}, as many as queries "
                              "were voted on, are taken for true")  # fmt: skip
        return of_votes
    _check_training(settings)
    _OF_VOTERS[settings.votes_by].check_terms(settings)
    check_engine(host.engine)
    with reporter.stage(f"data, {settings.dataset}") as stage:
        dataset = load_dataset(settings, host)
        stage.result = (
            f"{len(dataset.private_labels)} private, {len(dataset.public_labels)} public, "
            f"{len(dataset.test_labels)} test records, "
            + (f"{len(dataset.findings)} findings" if dataset.findings else f"{dataset.classes} classes")
        )
    settings = _resolved(settings, dataset)
    _ = groupings(dataset, settings.group_columns)
    shards, asker = _shards(settings, dataset)
    inputs = DatasetInputs(settings, dataset, shards, asker, host)
    _OF_VOTERS[settings.votes_by].check(inputs, reporter)
    _ = inputs.features
    if (alone := doubts_of_holdings(dataset, shards)[1]) is not None:
        reporter.warn(f"not for release: {alone}")
    return inputs


def with_settings(inputs: Inputs, settings: Experiment, *, reporter: Reporter) -> Inputs:
    """What a run with these settings starts from, where the data, who holds them and, where records vote, the unit are
    those of `inputs`.

    As `read_inputs`, without reading or cutting the data again; features stay too. Raises InvalidInput.
    """
    check_student_kind(settings.student)
    if isinstance(inputs, VoteInputs):
        return inputs_of_votes(settings, inputs.stored, parties=inputs.settings.parties, truth=inputs.truth)
    _check_training(settings)
    resolved = _resolved(settings, inputs.dataset)
    made = DatasetInputs(resolved, inputs.dataset, inputs.shards, inputs.asker, inputs.host)
    voters, before = _OF_VOTERS[resolved.votes_by], inputs.settings
    vars(made).update({name: getattr(inputs, name) for name in voters.kept(resolved, before)})
    same_queries = vars(made).get("query_map") is vars(inputs).get("query_map")
    if resolved.votes_by is before.votes_by and same_queries and _same(resolved, before, _SETTINGS_OF_FEATURES):
        vars(made).update({name: vars(inputs)[name] for name in _OF_FEATURES if name in vars(inputs)})
    voters.check(made, reporter)
    return made


def asked(settings: Experiment, dataset: Dataset) -> Asked:
    """What a query of this data set asks of a teacher. Raises InvalidInput for findings that records do not have."""
    count, way = len(dataset.findings), settings.findings_by
    if settings.votes_by.once:  # A record says all of its findings.
        return ONE_CLASS
    if (way is None) != (count == 0):
        raise InvalidInput(
            f"findings_by is {way!r}; allowed for {dataset.name}: "
            + ("none, as a record has one class" if way else f"{', '.join(WAYS)}, as a record has {count} findings")
        )
    if way is None:
        return ONE_CLASS
    return Powerset.occurring(dataset.public_labels) if way == Powerset.by else WAYS[way](count)


def _check_training(settings: Experiment) -> None:
    """Raises InvalidInput for settings of a run that trains teachers which do not go together, whatever the data."""
    if settings.student == "none" and MECHANISMS[settings.mechanism].interactive:
        raise InvalidInput(f"student is 'none'; {settings.mechanism} trains one between its rounds")
    if settings.individualization == "upsampling" and settings.partition != "iid":
        raise InvalidInput(f"partition is {settings.partition!r}; allowed with upsampling, which pools all data: iid")
    if settings.labels is not None:
        raise InvalidInput(f"labels is {settings.labels!r}; allowed: only with stored votes (--votes)")
    parse_partition(settings.partition)
    teacher_kind(settings.teacher)
    if settings.askers and settings.teacher not in PRIVATE:
        raise InvalidInput(f"teacher is {settings.teacher!r}; allowed with hidden queries: {', '.join(PRIVATE)}")
    if settings.askers and settings.individualization == "upsampling":
        raise InvalidInput("individualization is 'upsampling', which pools all data; allowed without hidden queries")


def _check_terms(settings: Experiment) -> None:
    """Raises InvalidInput for budgets, noise and threshold out of range, before any data are read."""
    # What is asked of findings, and how many parties sites are, the data determine.
    if settings.findings_by is None and not isinstance(parse_partition(settings.partition), BySite):
        classes, queries = settings.classes or 10, settings.queries or 100  # no data decided them
        trial = make_study(settings, experiment_budgets(settings), classes=classes, queries=queries, factor=1.0)
        _ = trial.budgets


def _resolved(settings: Experiment, dataset: Dataset) -> Experiment:
    """The settings with what the data set determines. Raises InvalidInput for models that it does not suit."""
    parties = party_count(settings, dataset)
    usual = _OF_VOTERS[settings.votes_by].student(settings, dataset, parties)
    student = usual if settings.student in (None, USUAL) else str(settings.student)
    if settings.askers and settings.student is None:
        student = "none"  # the labels are those of who asks: its own model learns from them
    if settings.student_features is None and dataset.kind == "image" and student.removesuffix(EQUAL) == SIMPLEST:
        # A linear model of pixels knows little more than how bright each of them is.
        settings = settings.changed(student_features=True, features=settings.features or "auto")
    if settings.askers and settings.input_bound is None:
        bound = 1.0 if dataset.kind == "image" and not settings.teacher_features else TABLE_BOUND
        settings = settings.changed(input_bound=bound)
    check_suited(settings, dataset, student=student)
    if settings.group_columns and student == "none":
        raise InvalidInput(f"groups is {settings.groups!r}; allowed: with a student, whose accuracy they tell apart")
    return settings.changed(parties=parties, student=student)


def _check_units(inputs: DatasetInputs, reporter: Reporter) -> None:
    """Where records vote: raises InvalidInput for queries and units that the data do not have; warns of few units."""
    unit = inputs.settings.unit
    few = sum(seat_units(unit, inputs.dataset, of_seat) < FEWEST_UNITS for of_seat in inputs.shards)
    if few == len(inputs.shards):
        raise InvalidInput(f"no party has {FEWEST_UNITS} units ({unit}s); allowed: some, to vote")
    if few:
        reporter.say(
            f"warning: {few} of {len(inputs.shards)} parties have fewer than {FEWEST_UNITS} units and vote "
            "with none, as a hospital's node would refuse to; their budgets are charged nevertheless"
        )
    _ = inputs.query_map


def _usual_of_records(settings: Experiment, dataset: Dataset, parties: int) -> str:
    """The usual kind where records vote: all of the pool has soft labels then."""
    features = bool(settings.student_features)
    given = ToLearn.of(
        dataset.public_inputs.reshape(len(dataset.public_inputs), -1) if features else dataset.public_inputs,
        labels=len(dataset.public_labels),
        units=population_of(settings.unit, dataset, parties),
        graded=is_graded(settings) and not features,
    )
    return usual_student(UnitSums, given).kind


def _shards(
    settings: Experiment, dataset: Dataset
) -> tuple[list[list[Int64[ndarray, " records"]]], Int64[ndarray, " records"] | None]:
    """The private records of each teacher of each seat, and those of a hospital that asks."""
    if settings.individualization == "upsampling":
        ensemble = upsampling(settings.budgets, teachers=settings.parties)
        return [[shard] for shard in ensemble.shards(len(dataset.private_labels), seed=settings.data_seed)], None
    scheme = parse_partition(settings.partition)
    holdings = partition(dataset, parties=settings.parties + settings.askers, scheme=scheme, seed=settings.data_seed)
    asker = holdings.pop() if settings.askers else None
    patients, teachers = dataset.private_patients, settings.teachers_per_party
    if settings.privacy_groups:
        holdings = split_by_group(holdings, patients, settings.budgets, teachers=teachers, seed=settings.data_seed)
    shards = [
        teacher_shards(
            records, None if patients is None else patients[records], teachers=teachers, seed=settings.data_seed
        )
        for records in holdings
    ]
    return shards, asker


def party_count(settings: Experiment, dataset: Dataset) -> int:
    """The number of parties: as given, or one per site if parties are sites and no number was given."""
    by_site = isinstance(parse_partition(settings.partition), BySite)
    if by_site and "parties" not in settings.given and dataset.site_names:
        return len(dataset.site_names) - settings.askers
    return settings.parties


def load_dataset(settings: Experiment, host: Host) -> Dataset:
    """The data set of an experiment, with a private part of the requested size, and its pool in the order of asking."""
    scheme = parse_partition(settings.partition)
    request = DatasetRequest(
        seed=settings.data_seed,
        data_dir=host.data_dir,
        private_size=settings.private_size,
        public_size=settings.queries,
        classes=settings.classes,
        imbalance=settings.imbalance,
        mislabelled=settings.mislabelled,
        schema=None if settings.schema_file is None else Path(settings.schema_file),
        groups=settings.group_columns,
        time=scheme.column if isinstance(scheme, ByTime) else None,
    )
    if settings.dataset in datasets.RENDERED:
        dataset = rendered(settings.dataset, request, load=datasets.load, cache_dir=host.cache_dir)
    else:
        dataset = datasets.load(settings.dataset, request)
    return in_order_of_asking(settings, dataset)


def vote_file_inputs(settings: Experiment, path: Path) -> VoteInputs:
    """Inputs with votes from a file, which determines the number of parties."""
    given = settings.parties if "parties" in settings.given else None
    stored, parties = load_votes(path, kind=settings.votes_kind, classes=settings.classes, parties=given)
    queries = settings.queries or stored.queries
    if queries > stored.queries:
        raise InvalidInput(f"queries is {queries}; allowed: at most the {stored.queries} of {path}")
    if queries < stored.queries:
        stored = stored.first(queries)
    truth = None
    if settings.labels is not None:
        truth = load_labels(settings.labels, queries=queries, classes=stored.classes)
    return inputs_of_votes(settings, stored, parties=parties, truth=truth)


def inputs_of_votes(
    settings: Experiment, stored: StoredVotes, *, parties: int, truth: Int64[ndarray, " queries"] | None
) -> VoteInputs:
    """What a replay starts from: votes of `parties` parties, and the true labels if they are known.

    Raises InvalidInput for settings that need teachers.
    """
    check_replayed(settings.individualization, settings.mechanism)
    changes = {"parties": parties, "teachers_per_party": stored.teachers, "student": "none"}
    if settings.weights is None and isinstance(stored, VoteCounts):
        changes["weights"] = "uniform"
    return VoteInputs(settings.changed(**changes), stored, truth)


@dataclass(frozen=True)
class _OfVoters:
    """What a run starts from with one kind of voters. kept: what stays of inputs that were made by other settings, the
    second, if data, holders and unit do; student: the usual kind."""

    features: Callable[[DatasetInputs], FeatureMap | None]
    check: Callable[[DatasetInputs, Reporter], None]
    check_terms: Callable[[Experiment], None]
    student: Callable[[Experiment, Dataset, int], str]
    kept: Callable[[Experiment, Experiment], tuple[str, ...]]


def _same(settings: Experiment, before: Experiment, names: tuple[str, ...]) -> bool:
    return all(getattr(settings, name) == getattr(before, name) for name in names)


def _kept_of_records(settings: Experiment, before: Experiment) -> tuple[str, ...]:
    """Graded features follow from the budgets, too."""
    same = _same(settings, before, _SETTINGS_OF_QUERIES) and not is_graded(settings)
    return ("population", "query_map") if same else ("population",)


_OF_VOTERS = {
    TeacherVotes: _OfVoters(
        features=lambda inputs: inputs.learned_features,
        check=lambda inputs, reporter: None,
        check_terms=_check_terms,
        student=lambda settings, dataset, parties: USUAL,
        kept=lambda settings, before: (),
    ),
    UnitSums: _OfVoters(
        features=lambda inputs: inputs.query_map.features,
        check=_check_units,
        check_terms=lambda settings: None,
        student=_usual_of_records,
        kept=_kept_of_records,
    ),
}
