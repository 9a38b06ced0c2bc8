"""Retraining: each querying party trains its own kind of model again, on its own records and the new labels.

Its own labelled records and the newly labelled ones have equal weight. Nobody else learns anything from this; for the
answering parties it is post-processing of the labels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from simulations.ask.schedule import AskedLabels
from simulations.ask.settings import AskSettings
from simulations.ask.votes import Consortium, cast_kind
from simulations.datasets.dataset import Dataset
from simulations.progress import Reporter
from simulations.stages.inputs import Host


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
