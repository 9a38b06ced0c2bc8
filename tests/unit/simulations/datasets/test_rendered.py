"""The cache of rendered data sets: the same data, nothing rendered twice, broken folders made again."""

import numpy as np
import pytest

from simulations import datasets
from simulations.datasets.dataset import DatasetRequest
from simulations.datasets.rendered import rendered

REQUEST = DatasetRequest(seed=3, private_size=200, public_size=60, test_size=40)


def never(name, request):
    raise AssertionError("rendered again")


def test_the_second_time_nothing_is_rendered_and_the_data_are_the_same(tmp_path):
    first = rendered("glyphs", REQUEST, load=datasets.load, cache_dir=tmp_path)
    again = rendered("glyphs", REQUEST, load=never, cache_dir=tmp_path)
    assert (first.private_digest, first.public_digest, first.test_digest) == (
        again.private_digest,
        again.public_digest,
        again.test_digest,
    )
    assert (first.name, first.kind, first.class_names, first.about) == (
        again.name,
        again.kind,
        again.class_names,
        again.about,
    )
    direct = datasets.load("glyphs", REQUEST)
    np.testing.assert_array_equal(direct.private_inputs, again.private_inputs)


@pytest.mark.parametrize("name", ["about.json", "private_inputs.npy", "test_labels.npy"])
def test_a_broken_folder_is_made_again(tmp_path, name):
    # Before the file is cut short: the data set is mapped from it.
    whole = rendered("glyphs", REQUEST, load=datasets.load, cache_dir=tmp_path).private_digest
    (path,) = tmp_path.glob(f"datasets/*/{name}")
    path.write_bytes(path.read_bytes()[:60])
    again = rendered("glyphs", REQUEST, load=datasets.load, cache_dir=tmp_path)
    assert again.private_digest == whole
    rendered("glyphs", REQUEST, load=never, cache_dir=tmp_path)
