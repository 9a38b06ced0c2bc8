"""Garments and street digits: images drawn at run time, as asked for, the same for the same seed."""

import hashlib

import numpy as np
import pytest

from benchmarks import garments, street_digits
from simulations.datasets.dataset import DatasetRequest

SHAPES = {garments: (28, 28), street_digits: (32, 32, 3)}
both = pytest.mark.parametrize("module", SHAPES)


def drawn(module, **options):
    sizes = {"private_size": 300, "public_size": 60, "test_size": 100}
    return module.load(DatasetRequest(**({"seed": 1} | sizes | options)))


@both
def test_images_are_in_the_unit_interval_classes_are_even_and_no_two_are_the_same(module):
    data = drawn(module)
    assert data.private_inputs.shape == (300, *SHAPES[module])
    assert data.private_inputs.dtype == np.float32
    assert 0 <= data.private_inputs.min() <= data.private_inputs.max() <= 1
    assert (np.bincount(data.private_labels) == 30).all()
    images = np.concatenate([data.private_inputs, data.public_inputs, data.test_inputs])
    assert len({hashlib.sha256(image.tobytes()).digest() for image in images}) == len(images)


@both
def test_the_seed_alone_decides_and_parts_have_streams_of_their_own(module):
    data, again = drawn(module), drawn(module, private_size=20)
    np.testing.assert_array_equal(data.test_inputs, again.test_inputs)
    assert not np.array_equal(data.test_inputs, drawn(module, seed=2).test_inputs)
