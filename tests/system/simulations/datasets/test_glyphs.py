"""Glyphs: the listed faces draw the listed characters, and the samples are what was asked for."""

import hashlib

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from simulations import datasets
from simulations.datasets import glyphs
from simulations.datasets.dataset import DatasetRequest


def _load(**options):
    sizes = {"private_size": 400, "public_size": 120, "test_size": 60}
    return datasets.load("glyphs", DatasetRequest(**({"seed": 1} | sizes | options)))


@pytest.fixture(scope="module")
def templates():
    return glyphs.render_templates(glyphs.CHARACTERS)


def test_there_are_150_characters_without_repetition_in_every_face(templates):
    assert len(glyphs.CHARACTERS) == len(set(glyphs.CHARACTERS)) == 150
    assert templates.shape[:3] == (3, 16, 150)
    inked = np.stack([templates[0].max(axis=axis) > 32 for axis in (-1, -2)])  # by row, by column
    spans = glyphs.CANVAS - inked.argmax(axis=-1) - inked[..., ::-1].argmax(axis=-1)
    extent = spans.max(axis=0)
    assert extent.min() >= glyphs.EXTENT - 3  # every character is drawn, and to one size
    assert extent.max() <= glyphs.EXTENT + 3  # the blur adds a little
    assert not templates[0, ..., [0, -1], :].any()


def test_no_two_characters_have_the_same_template_in_any_face(templates):
    sharp = templates[0].astype(np.float32)
    for face in sharp.reshape(16, 150, -1):
        squares = (face**2).sum(axis=1)
        distance = squares[:, None] + squares[None, :] - 2 * face @ face.T
        np.fill_diagonal(distance, np.inf)
        # In units of the smaller template's own energy. The nearest pair here is E and F; Latin H and
        # Cyrillic I are at 0.06, true homoglyphs at 0.
        assert (distance / np.minimum(squares[:, None], squares[None, :])).min() > 0.09


def test_images_are_bright_ink_in_the_unit_interval_and_the_parts_differ():
    dataset = _load()
    assert dataset.private_inputs.shape == (400, 28, 28)
    assert dataset.private_inputs.dtype == np.float32
    assert dataset.private_inputs.min() >= 0
    assert dataset.private_inputs.max() <= 1
    inside, border = dataset.private_inputs[:, 8:20, 8:20].mean(), dataset.private_inputs[:, :2].mean()
    assert inside > border + 0.05
    images = np.concatenate([dataset.private_inputs, dataset.public_inputs, dataset.test_inputs])
    assert len({hashlib.sha256(image.tobytes()).digest() for image in images}) == len(images)
    assert "split by rendered sample" in dataset.about


def test_the_seed_alone_decides_and_parts_have_streams_of_their_own():
    dataset, again = _load(), _load()
    np.testing.assert_array_equal(dataset.private_inputs, again.private_inputs)
    np.testing.assert_array_equal(dataset.test_labels, again.test_labels)
    assert not np.array_equal(dataset.private_inputs, _load(seed=2).private_inputs)
    np.testing.assert_array_equal(dataset.test_inputs, _load(private_size=50).test_inputs)


def test_imbalance_is_the_ratio_of_the_largest_to_the_smallest_private_class():
    dataset = _load(imbalance=10.0, private_size=2000)
    counts = np.bincount(dataset.private_labels, minlength=10)
    assert counts[0] / counts[-1] == pytest.approx(10, rel=0.05)
    assert (np.diff(counts) < 0).all()
    assert np.ptp(np.bincount(dataset.test_labels)) <= 1


def test_a_teacher_of_240_rows_is_often_wrong_and_forty_together_are_much_better():
    dataset = _load(private_size=40 * 240, public_size=1000)
    rows = dataset.private_inputs.reshape(40, 240, -1)
    labels = dataset.private_labels.reshape(40, 240)
    queries = dataset.public_inputs.reshape(1000, -1)
    votes = np.stack(
        [
            LogisticRegression(max_iter=50, tol=1e-2).fit(x, y).predict(queries)
            for x, y in zip(rows, labels, strict=True)
        ]
    )
    mean = (votes == dataset.public_labels).mean()
    counts = (votes[:, :, None] == np.arange(10)).sum(axis=0)
    plurality = (counts.argmax(axis=1) == dataset.public_labels).mean()
    assert 0.65 <= mean <= 0.84
    assert plurality >= 0.9
