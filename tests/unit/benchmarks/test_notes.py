"""The grammar of notes: what a note says, how hard it is to tell its class, and that no word gives it away."""

import numpy as np
import pytest

from benchmarks.notes import CLASSES, HOSPITALS, LIKELY, MENTIONED, draw_mentions, draw_notes, load
from protocols.errors import InvalidInput
from simulations.datasets import DATASETS
from simulations.datasets.dataset import DatasetRequest
from simulations.setup.experiment import experiment, query_map


def test_the_best_rule_is_right_for_19_of_20_notes_and_without_negations_for_7_of_8():
    """Bayes' rule on what notes say; the probability of each mention is the grammar's."""
    labels = np.random.default_rng(1).integers(len(CLASSES), size=20_000)
    mentions = draw_mentions(labels, np.random.default_rng(2))
    there, gone = LIKELY * MENTIONED[1], (1 - LIKELY) * MENTIONED[0]
    chances = np.log(np.stack([1 - there - gone, there, gone]))

    def accuracy(said, logs):
        scores = sum(np.where((said == value)[:, :, None], logs[value], 0.0).sum(axis=1) for value in range(len(logs)))
        return (scores.argmax(axis=1) == labels).mean()

    # [nothing, there, not there], as -1 counts from the end; then [nothing, something].
    assert accuracy(mentions % 3, chances) == pytest.approx(0.953, abs=0.005)
    assert accuracy(np.abs(mentions), np.log(np.stack([1 - there - gone, there + gone]))) == pytest.approx(
        0.885, abs=0.01
    )


def test_records_of_text_vote_in_clusters_of_meanings(monkeypatch):
    monkeypatch.setitem(DATASETS._built_in, "notes", load)
    dataset = load(DatasetRequest(seed=0, private_size=24, public_size=30, test_size=12))
    assert dataset.test_names["site"].tolist() == [
        HOSPITALS[at].name for at in draw_notes(12, seed=0, part="test").sites
    ]
    settings = experiment(dataset="notes", votes_by="record")
    graded = query_map(settings, dataset, population=24)
    assert graded.signed
    assert graded.features.width == 30
    named = settings.changed(record_queries="clusters:5")
    queries = query_map(named, dataset, population=24)
    assert (queries.rows, queries.filled, queries.features.width) == (5, 1, 30)
    with pytest.raises(InvalidInput, match="allowed for notes, which has text: clusters:N"):
        query_map(settings.changed(record_queries="columns"), dataset, population=24)
