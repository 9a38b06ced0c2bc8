"""Labels of a public pool from records of your own, which vote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float32, Float64, Int64
from numpy import ndarray
from numpy.typing import ArrayLike

from conclave.arguments import budgets_of, check_whole, frame, numbers, warn_of_delta
from protocols.errors import InvalidInput
from protocols.labelling.stored_votes import MOST_CLASSES, check_labels
from protocols.study.released_noise import noise_in
from protocols.study.study import Study
from protocols.sums.contributions import said
from simulations.datasets.dataset import Dataset
from simulations.setup.experiment import experiment, query_map, units_of
from simulations.stages.inputs import DatasetInputs
from simulations.stages.record_cells import RecordCells
from simulations.stages.record_votes import label_record_seed
from simulations.stages.vote_source import record_study_of

if TYPE_CHECKING:
    import pandas as pd

_SETTINGS = frozenset(
    "weights quorum dropout confidentiality units colluders record_queries bins nearest partitions features "
    "residuals".split()
)


@dataclass(frozen=True, eq=False, kw_only=True)
class PoolLabels:
    """The labels of a public pool that records' votes give, and what each party spent on them.

    probabilities: of each class for each record of the pool; sums: what was released, the noisy sum of votes for each
    query and class, in votes; again: the second sum, of residuals, alike, None without one; noise: the standard
    deviation of the noise in each entry of either sum, in votes; reliability: of each query, in [0, 1], the share of
    what is known of it that comes from its sums; parties, epsilon, delta, weight, epsilon_guaranteed, epsilon_spent: as
    in Labels; accuracy: share of likeliest labels that are true, None where the truth is not known; study: its terms.
    """

    probabilities: Float64[ndarray, "pool classes"] = field(repr=False)
    sums: Float64[ndarray, "queries classes"] = field(repr=False)
    again: Float64[ndarray, "queries classes"] | None = field(repr=False)
    noise: float
    reliability: Float64[ndarray, " queries"] = field(repr=False)
    parties: tuple[str, ...] = field(repr=False)
    epsilon: Float64[ndarray, " parties"]
    delta: Float64[ndarray, " parties"]
    weight: Float64[ndarray, " parties"]
    epsilon_guaranteed: Float64[ndarray, " parties"]
    epsilon_spent: Float64[ndarray, " parties"]
    accuracy: float | None
    seed: int
    study: Study = field(repr=False)

    @property
    def labels(self) -> Int64[ndarray, " pool"]:
        """The likeliest class of each record of the pool."""
        return self.probabilities.argmax(axis=1)

    def to_pandas(self) -> pd.DataFrame:
        """One row per party: its budget, its weight, what may be published and what was spent."""
        names = "epsilon delta weight epsilon_guaranteed epsilon_spent".split()
        return frame({"party": self.parties, **{name: getattr(self, name) for name in names}})


def label_by_records(
    records: Sequence[ArrayLike],
    labels: Sequence[ArrayLike],
    pool: ArrayLike,
    *,
    epsilon: ArrayLike,
    delta: ArrayLike,
    unit: str,
    patients: Sequence[ArrayLike] | None = None,
    classes: int | None = None,
    truth: ArrayLike | None = None,
    names: Sequence[str] | None = None,
    seed: int = 0,
    **settings: object,
) -> PoolLabels:
    """The labels of a public pool, where each private record votes with public features of it: once, or twice.

    The same code as `conclave-simulate run --votes-by record`: noise comes from `seed`, so the labels protect nobody
    who can guess it. The noise is the least that every budget affords. With the default weights, "exhaustive", every
    budget is spent whole; with "uniform" ones every party spends what the smallest budget allows.

    records: of each party, features [records, features] or images [records, height, width], at least 2; labels: their
    classes, from 0; pool: public records of the same shape. Scale features by public constants, so that 1 is a usual
    difference. epsilon > 0 and delta in (0, 1): a number, or one per party. unit: whose data an epsilon protects:
    "record", "patient" (all records of a party with the same number in `patients`) or "party". classes: by default one
    more than the largest label, at least 2; truth: the pool's true labels, for `accuracy` alone; names: of the parties.
    settings: weights, confidentiality, units, colluders, dropout, quorum; and of the features or queries record_queries
    ("graded", "columns", "clusters:N" or "columns+clusters:N"), bins, nearest, partitions, features, residuals (whether
    units are asked a second time), as on the command line.

    Warns of a delta above 1 over the number of units. Raises InvalidInput, with the value and the allowed range; also
    where no sum is released.

    >>> import conclave, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> records = [rng.normal(size=(150, 4)) for _ in range(4)]
    >>> labels = [(each[:, 0] + each[:, 1] > 0).astype(int) for each in records]
    >>> pool = rng.normal(size=(200, 4))
    >>> truth = (pool[:, 0] + pool[:, 1] > 0).astype(int)
    >>> found = conclave.label_by_records(records, labels, pool, epsilon=1.0, delta=1e-5, unit="record", truth=truth)
    >>> round(found.noise, 2), round(found.accuracy, 2)
    (10.55, 0.95)
    """
    check_whole("seed", seed, least=0)
    idle = sorted(set(settings) - _SETTINGS)
    if idle:
        raise InvalidInput(f"{idle[0]} has no effect where records vote; allowed: {', '.join(sorted(_SETTINGS))}")
    if patients is not None and unit != "patient":
        raise InvalidInput(f"patients are given with unit {unit!r}; allowed with unit 'patient' only: leave them out")
    records = list(records)
    dataset = _dataset(records, labels, pool, patients=patients, classes=classes, truth=truth)
    sizes = [np.asarray(each).size for each in labels]
    budgets = budgets_of(epsilon, delta, parties=len(sizes), names=names)
    chosen = experiment(**settings, votes_by="record", unit=unit, parties=len(sizes), student="none")
    shards = [[each] for each in np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])]
    inputs = DatasetInputs(chosen, dataset, shards)
    features = query_map(chosen, dataset, population=inputs.population, budgets=budgets)
    vars(inputs).update(query_map=features)  # by these budgets, and not by the settings'
    study = record_study_of(inputs, budgets)
    warn_of_delta(budgets, unit, inputs.population)
    cells = tuple(
        said(features, dataset.private_inputs[each], dataset.private_labels[each], classes=dataset.classes)
        for (each,) in shards
    )
    units = tuple(units_of(unit, dataset, each) for (each,) in shards)
    stored = RecordCells(dataset.labelled, inputs.population, features, cells, units)
    known = None if truth is None else dataset.public_labels
    found = label_record_seed(study, stored, pool=dataset.public_inputs, seed=seed, dropout=chosen.dropout, truth=known)
    if found.soft is None or found.labelling.cells is None:
        raise InvalidInput(
            f"no sums were released: {found.labelling.stop.reason}; allowed: less drop-out, a smaller quorum"
        )
    return PoolLabels(
        probabilities=found.soft.probabilities,
        sums=found.labelling.cells / study.units,
        again=None if (second := found.labelling.again) is None else np.asarray(second.cells) / study.units,
        noise=noise_in(study, voted=int((found.labelling.spent > 0).sum())),
        reliability=found.soft.reliability,
        parties=budgets.names,
        epsilon=budgets.epsilon,
        delta=budgets.delta,
        weight=study.weights,
        epsilon_guaranteed=study.budgets.epsilon_guaranteed,
        epsilon_spent=study.budgets.epsilon_of(found.labelling.spent),
        accuracy=found.label_accuracy,
        seed=seed,
        study=study,
    )


def _dataset(
    records: Sequence[ArrayLike],
    labels: Sequence[ArrayLike],
    pool: ArrayLike,
    *,
    patients: Sequence[ArrayLike] | None,
    classes: int | None,
    truth: ArrayLike | None,
) -> Dataset:
    """The records of all parties, one party after the other. Raises InvalidInput for arrays that do not fit."""
    public = numbers("pool", pool).astype(np.float32)
    if public.ndim < 2 or len(public) == 0:
        raise InvalidInput(f"pool has shape {public.shape}; allowed: [records, features], at least one record")
    if not len(records) == len(labels) == len(records if patients is None else patients) or not len(records):
        raise InvalidInput(
            f"records are of {len(records)} parties and labels of {len(labels)}; allowed: as many, 1 or more"
        )
    inputs = [_features(f"records[{at}]", each, public) for at, each in enumerate(records)]
    found = [_whole(f"labels[{at}]", each, len(inputs[at])) for at, each in enumerate(labels)]
    of = (
        None
        if patients is None
        else [_whole(f"patients[{at}]", each, len(inputs[at])) for at, each in enumerate(patients)]
    )
    most = max(int(each.max(initial=0)) for each in found) + 1
    check_whole("classes", 2 if classes is None else classes, least=2)
    number = max(most, 2) if classes is None else int(classes)
    if number > MOST_CLASSES:
        raise InvalidInput(f"labels are of {number} classes; allowed: up to {MOST_CLASSES}")
    if most > number or min(int(each.min(initial=0)) for each in found) < 0:
        raise InvalidInput(f"labels go up to {most - 1}; allowed: 0 to {number - 1}")
    known = np.zeros(len(public), np.int64)
    if truth is not None:
        if np.ndim(truth) == 1 and len(np.asarray(truth)) > len(public):
            raise InvalidInput(f"truth has {np.size(truth)} labels; allowed: one for each of {len(public)} records")
        known = check_labels(np.asarray(truth), queries=len(public), classes=number, called="truth")
    return Dataset(
        name="records",
        kind="table" if public.ndim == 2 else "image",
        class_names=tuple(map(str, range(number))),
        private_inputs=np.concatenate(inputs),
        private_labels=np.concatenate(found),
        public_inputs=public,
        public_labels=known,
        test_inputs=public[:0],
        test_labels=np.zeros(0, np.int64),
        private_patients=None if of is None else _distinct(of),
    )


def _features(called: str, value: ArrayLike, pool: Float32[ndarray, "pool ..."]) -> Float32[ndarray, "records ..."]:
    array = numbers(called, value).astype(np.float32)
    if array.shape[1:] != pool.shape[1:] or len(array) < 2:
        raise InvalidInput(
            f"{called} has shape {array.shape}; allowed: at least 2 records of the pool's shape, {pool.shape[1:]}"
        )
    if not np.isfinite(array).all():
        raise InvalidInput(f"{called} holds NaN or infinite values; allowed: finite")
    return array


def _whole(called: str, value: ArrayLike, records: int) -> Int64[ndarray, " records"]:
    array = np.asarray(value)
    if array.dtype.kind not in "iu":  # integers stay as they are: float64 holds no more than 53 bits of them
        array = numbers(called, value)
    if array.shape != (records,) or (array != np.rint(array)).any():
        raise InvalidInput(f"{called} has shape {array.shape}; allowed: a whole number for each of {records} records")
    most = 2**63 if array.dtype.kind in "iu" else 2**53
    low, high = (array.min().item(), array.max().item()) if records else (0, 0)
    if not -most <= low <= high < most:
        raise InvalidInput(f"{called} goes from {low:g} to {high:g}; allowed: from {-most} to {most - 1}")
    return array.astype(np.int64)


def _distinct(patients: list[Int64[ndarray, " records"]]) -> Int64[ndarray, " records"]:
    """Numbers of patients that are those of one party alone."""
    own = [np.unique(each, return_inverse=True)[1] for each in patients]
    ends = np.cumsum([each.max() + 1 for each in own])
    return np.concatenate([each + end - each.max() - 1 for each, end in zip(own, ends, strict=True)])
