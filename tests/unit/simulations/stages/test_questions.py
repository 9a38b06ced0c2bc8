"""The pool of a run in the order in which teachers are asked about it."""

from pathlib import Path

import numpy as np
import pytest

from coordinator.queries.questions import in_order
from protocols.errors import InvalidInput
from simulations.setup.experiment import Experiment, experiment
from simulations.stages.inputs import Host, load_dataset
from tests.harness.refusals import refuses

HOST = Host(data_dir=None, cache_dir=Path("unused"), engine="in_process", workers=1)


def settings(**values: object) -> Experiment:
    return experiment(dataset="digits", parties=2, queries=60, data_seed=1, **values)


@pytest.mark.parametrize("features", [None, "pca:3"])
def test_inputs_and_labels_of_the_pool_are_put_in_order_together(features: str | None) -> None:
    given = load_dataset(settings(), HOST)
    ordered = load_dataset(settings(questions="coverage", features=features), HOST)
    order = in_order(given.public_inputs, "coverage", features=features or "auto", seed=1)
    np.testing.assert_array_equal(ordered.public_inputs, given.public_inputs[order])
    np.testing.assert_array_equal(ordered.public_labels, given.public_labels[order])
    np.testing.assert_array_equal(ordered.test_inputs, given.test_inputs)
    assert ordered.public_digest != given.public_digest


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"questions": "hardest"}, ("questions", "hardest")),
        ({"questions": "uncertainty:0"}, ("questions", "uncertainty:0", 1)),
        ({"questions": "coverage", "votes_by": "record"}, ("questions", "coverage", "votes_by", "teacher")),
        ({"features": "hog"}, ("features", "hog", "votes_by", "record")),
    ],
)
def test_what_has_no_effect_is_refused(values: dict[str, object], said: str) -> None:
    with refuses(InvalidInput, *said):
        settings(**values)
