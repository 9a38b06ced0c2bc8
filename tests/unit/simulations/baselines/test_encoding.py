"""What linear models see: features that no private record decides, of images only."""

from dataclasses import replace

import numpy as np
import pytest

from protocols.errors import InvalidInput
from simulations.baselines.method import encoded_inputs
from simulations.datasets import load
from simulations.datasets.dataset import DatasetRequest
from simulations.setup.experiment import experiment
from simulations.stages.inputs import DatasetInputs
from tests.harness.refusals import refuses


def test_images_are_features_of_the_pool_and_tables_stay():
    images = load("glyphs", DatasetRequest(seed=0, private_size=30, public_size=40, test_size=10))
    inputs = DatasetInputs(experiment(), images, [[np.arange(30)]])
    made = encoded_inputs(inputs, "pca:5").dataset
    assert (made.kind, made.private_inputs.shape, made.test_inputs.shape) == ("table", (30, 5), (10, 5))
    assert made.public_inputs.mean(axis=0) == pytest.approx(np.zeros(5), abs=1e-4)
    assert (made.public_inputs.astype(float) ** 2).mean() == pytest.approx(1, rel=1e-4)
    dark = replace(inputs, dataset=replace(images, private_inputs=images.private_inputs * 0))
    assert (encoded_inputs(dark, "pca:5").dataset.test_inputs == made.test_inputs).all()
    table = DatasetInputs(experiment(), made, [[np.arange(30)]])
    assert encoded_inputs(table, "auto") is table
    with refuses(InvalidInput, "features", "hog"):
        encoded_inputs(table, "hog")
