"""A data set that another distribution registers."""

import numpy as np

from protocols.errors import InvalidInput
from simulations.datasets import DATASETS, load
from simulations.datasets.dataset import DatasetRequest
from tests.harness.distributions import example, install
from tests.harness.refusals import refuses


def test_a_data_set_of_another_distribution_is_loaded_by_its_name(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    entries = {"corners": "tested_corners:load", "torn": "tested_corners:absent"}
    install(tmp_path, name="tested_corners", group="conclave.datasets", entries=entries, source=example("Four corners"))
    # Entry points are looked up once a process; here another test may have looked before.
    monkeypatch.delitem(DATASETS.__dict__, "_plugins", raising=False)
    assert next(iter(DATASETS)) == "glyphs"
    assert {"corners", "torn"} <= set(DATASETS)
    loaded = load("corners", DatasetRequest(seed=0, public_size=100))
    assert (loaded.name, len(loaded.private_labels), len(loaded.public_labels)) == ("corners", 2500, 100)
    assert set(np.unique(loaded.test_labels)) == {0, 1}
    with refuses(InvalidInput, "torn", "tested_corners"):
        load("torn", DatasetRequest(seed=0))
    DATASETS.__dict__.pop("_plugins", None)
