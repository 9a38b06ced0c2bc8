"""What papers do with votes, on a small data set without files."""

import numpy as np
import pytest

from benchmarks.papers.paper import Task
from benchmarks.papers.students import counts_of, ensemble_votes, released, student_accuracy, without_privacy
from protocols.mechanisms.confident_gnmax import ConfidentGNMax
from protocols.votes import ABSTAIN
from simulations import datasets
from simulations.datasets.dataset import DatasetRequest
from simulations.progress import Reporter
from simulations.stages.inputs import Host


def test_teachers_vote_labels_are_released_and_a_student_learns_them(tmp_path):
    task = Task((0,), Host(data_dir=None, cache_dir=tmp_path, engine="in_process", workers=1), Reporter(quiet=True))
    dataset = datasets.load("digits", DatasetRequest(seed=0))
    votes = ensemble_votes(task, dataset, teachers=20, kind="nearest_centroid", seed=0)
    counts = counts_of(votes, classes=10)
    assert counts.shape == (len(dataset.public_labels), 10)
    assert (counts.sum(axis=1) == 20).all()
    labels = released(ConfidentGNMax(sigma=1.0, sigma_threshold=2.0, threshold=14.0), counts, seed=3)
    answered = labels != ABSTAIN
    assert 0 < answered.sum() < len(labels)
    assert (labels == dataset.public_labels)[answered].mean() > 0.9
    np.testing.assert_array_equal(
        labels, released(ConfidentGNMax(sigma=1.0, sigma_threshold=2.0, threshold=14.0), counts, seed=3)
    )
    learnt = student_accuracy(task, dataset, labels, kind="logistic_regression", seed=0)
    assert 80 < learnt < without_privacy(task, dataset, kind="logistic_regression", seed=0)
    # Of labels of the first queries alone, and from the cache.
    assert student_accuracy(task, dataset, labels[:300], kind="logistic_regression", seed=0) == pytest.approx(
        learnt, abs=10
    )
