"""The grammar of notes: what a note says, how hard it is to tell its class, and that no word gives it away."""

from collections import Counter, defaultdict

import numpy as np
import pytest

from benchmarks.notes import (
    CLASSES,
    HOSPITALS,
    LIKELY,
    MENTIONED,
    draw_mentions,
    draw_notes,
    load,
)
from protocols.errors import InvalidInput
from protocols.features.texts import words
from simulations.datasets import DATASETS
from simulations.datasets.dataset import DatasetRequest
from simulations.setup.experiment import experiment, query_map


def test_the_same_seed_gives_the_same_notes_and_each_part_its_own():
    first = draw_notes(5, seed=3, part="test")
    assert draw_notes(5, seed=3, part="test").texts == first.texts
    others = [draw_notes(5, seed=4, part="test"), draw_notes(5, seed=3, part="public")]
    assert not {*others[0].texts, *others[1].texts} & set(first.texts)
    assert {len(first.texts), len(first.labels), len(first.sites), len(first.mentions)} == {5}


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


def test_no_word_gives_the_class_away():
    """The best single word, as a rule for the notes that have it and a guess for the others."""
    notes = draw_notes(1500, seed=0, part="test")
    having = defaultdict(Counter)
    for text, label in zip(notes.texts, notes.labels.tolist(), strict=True):
        for word in set(words(text)):
            having[word][label] += 1
    sizes = Counter(notes.labels.tolist())
    best = 0.0
    for counts in having.values():
        with_word, rest = max(counts.values()), max(sizes[label] - counts[label] for label in sizes)
        best = max(best, (with_word + rest) / len(notes.texts))
    assert best < 0.35
    # A hospital tells nothing: each has all classes about equally often.
    shares = np.zeros((len(HOSPITALS), len(CLASSES)))
    np.add.at(shares, (notes.sites, notes.labels), 1)
    assert (shares / shares.sum(axis=1, keepdims=True)).max() < 0.25


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
