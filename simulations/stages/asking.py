"""In which order the questions of a run are asked: fixed before the first, or chosen between batches."""

from __future__ import annotations

from dataclasses import replace

from coordinator.queries import questions_of_a_batch
from coordinator.queries.questions import by_uncertainty, in_order
from protocols.labelling.questions import Choose
from protocols.study.chosen import GIVEN
from simulations.datasets.dataset import Dataset
from simulations.setup.experiment import Experiment


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


def choice_between_batches(settings: Experiment, dataset: Dataset) -> Choose | None:
    """What chooses the questions of the next batch; None where their order is fixed before the first. Raises
    InvalidInput."""
    if questions_of_a_batch(settings.questions) is None:
        return None
    return by_uncertainty(
        dataset.public_inputs,
        columns=dataset.columns,
        features=settings.features or "auto",
        seed=settings.data_seed,
    )
