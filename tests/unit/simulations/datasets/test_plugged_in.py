"""A data set that another distribution registers."""

import numpy as np
import pytest

from protocols.errors import InvalidInput
from simulations.datasets import DATASETS, DatasetRequest, load
from tests.harness.distributions import install

SOURCE = """
import numpy as np
from simulations.datasets.dataset import Dataset


def load(request):
    inputs, labels = np.eye(4, dtype=np.float32), np.array([0, 1, 0, 1])
    return Dataset(
        name="tested_corners", kind="table", class_names=("even", "odd"), private_inputs=inputs, private_labels=labels,
        public_inputs=inputs, public_labels=labels, test_inputs=inputs, test_labels=labels,
    )
"""


def test_a_data_set_of_another_distribution_is_loaded_by_its_name(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    entries = {"corners": "tested_corners:load", "torn": "tested_corners:absent"}
    install(tmp_path, name="tested_corners", group="conclave.datasets", entries=entries, source=SOURCE)
    # Entry points are looked up once a process; here another test may have looked before.
    monkeypatch.delitem(DATASETS.__dict__, "_plugins", raising=False)
    assert next(iter(DATASETS)) == "glyphs"
    assert {"corners", "torn"} <= set(DATASETS)
    np.testing.assert_array_equal(load("corners", DatasetRequest(seed=0)).public_labels, [0, 1, 0, 1])
    with pytest.raises(InvalidInput, match="dataset 'torn', which the distribution tested_corners registers"):
        load("torn", DatasetRequest(seed=0))
    DATASETS.__dict__.pop("_plugins", None)
