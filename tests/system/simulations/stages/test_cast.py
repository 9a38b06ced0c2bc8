"""The casting stages on real digits (scikit-learn's, no file), in this process.

With workers they are in tests/system/test_levels_over_engines.py.
"""

import numpy as np
import pytest

from protocols.errors import EngineFailed
from protocols.labelling.stored_votes import CastVotes
from simulations import datasets
from simulations.datasets.dataset import DatasetRequest
from simulations.setup.experiment import experiment, experiment_budgets, make_study
from simulations.setup.partition import parse_partition, partition, teacher_shards
from simulations.stages.cast import cast_votes
from simulations.stages.label import label_seed
from tests.harness.engine_here import EngineHere
from tests.harness.refusals import refuses

DATASET = datasets.load("digits", DatasetRequest(seed=0))


def shards_of(parties, teachers=1, scheme="iid", seed=0):
    holdings = partition(DATASET, parties=parties, scheme=parse_partition(scheme), seed=seed)
    return [teacher_shards(records, None, teachers=teachers, seed=0) for records in holdings]


def cast(
    folder, shards, *, engine=EngineHere, seed=0, dataset=DATASET, stages=None, teacher="logistic_regression", **more
):
    return cast_votes(
        dataset,
        shards,
        teacher=teacher,
        seed=seed,
        engine=engine,
        cache_dir=folder,
        on_stage=lambda name, done, total: None if stages is None else stages.append((name, done, total)),
        **more,
    )


def no_engine():
    raise AssertionError("nothing should be trained or cast")


def test_votes_are_right_more_often_than_chance_and_come_with_progress(tmp_path):
    stages = []
    result = cast(tmp_path, shards_of(8, teachers=2), stages=stages)
    assert result.votes.shape == (8, 2, len(DATASET.public_labels))
    assert result.trained == 16
    assert (result.votes == DATASET.public_labels).mean() > 0.6
    assert ("teachers", 8, 8) in stages
    assert ("votes", 8, 8) in stages


def test_a_second_cast_opens_no_engine_and_other_queries_train_nothing(tmp_path):
    shards = shards_of(4)
    first = cast(tmp_path, shards)
    again = cast(tmp_path, shards, engine=no_engine)
    np.testing.assert_array_equal(first.votes, again.votes)
    assert again.trained == 0
    smaller = datasets.load("digits", DatasetRequest(seed=0, public_size=50))
    if np.array_equal(smaller.private_inputs, DATASET.private_inputs):
        assert cast(tmp_path, shards, dataset=smaller).trained == 0
    with pytest.raises(AssertionError, match="nothing should"):
        cast(tmp_path, shards, engine=no_engine, seed=1)
    with pytest.raises(AssertionError, match="nothing should"):
        cast(tmp_path, shards_of(4, seed=1), engine=no_engine)


def test_only_what_is_asked_is_voted_on_and_more_is_cast_where_more_is_asked(tmp_path):
    shards = shards_of(4)
    whole = cast(tmp_path / "whole", shards).votes
    stages = []
    first = cast(tmp_path / "few", shards, queries=70, block=50, stages=stages)
    np.testing.assert_array_equal(first.votes, whole[:, :, :100])
    assert ("votes", 8, 8) in stages  # two blocks of four parties
    asked = []

    class Counting(EngineHere):
        def run(self, spec, names, body):
            def heard(exchange):
                def ask(requests, on_reply=None):
                    asked.append(requests["0"])
                    return exchange(requests, on_reply)

                return body(ask)

            return super().run(spec, names, heard)

    more = cast(tmp_path / "few", shards, queries=130, block=50, engine=Counting)
    np.testing.assert_array_equal(more.votes, whole[:, :, :150])
    assert more.trained == 0
    assert asked == [b'{"stage": "train"}', b'{"stage": "vote", "start": 100, "stop": 150}']
    again = cast(tmp_path / "few", shards, queries=150, block=50, engine=no_engine)
    np.testing.assert_array_equal(again.votes, more.votes)


def test_a_study_that_asks_past_what_was_voted_on_has_the_labels_of_votes_on_everything():
    votes = np.random.default_rng(3).integers(0, 3, (20, 1, 600))
    settings = experiment(parties=20, budgets="8", mechanism="gnmax", queries=600, sigma=6.0)
    study = make_study(settings, experiment_budgets(settings), classes=3, queries=600)
    reached = []

    def cast_more(queries):
        reached.append(queries)
        return votes[:, :, :queries]

    whole = label_seed(study, CastVotes(3, votes), seed=1, dropout=0.0, truth=None)
    assert whole.asked > 60
    lazy = CastVotes(3, votes[:, :, :10], pool=600, cast_more=cast_more)
    found = label_seed(study, lazy, seed=1, dropout=0.0, truth=None)
    np.testing.assert_array_equal(found.labelling.labels, whole.labelling.labels)
    np.testing.assert_array_equal(found.spent_after, whole.spent_after)
    assert reached == [68]


def test_an_interrupted_cast_finds_the_teachers_that_were_finished(tmp_path):
    shards = shards_of(6)
    whole = cast(tmp_path / "whole", shards)
    broken = cast(tmp_path / "broken", shards)
    # As if the run had been stopped while training: some teachers are there, no votes.
    for votes in (tmp_path / "broken" / "votes").glob("*/*"):
        votes.unlink()
    for name in ("teacher-1-0", "teacher-4-0"):
        (broken.folder / name).unlink()
    resumed = cast(tmp_path / "broken", shards)
    assert resumed.trained == 2
    np.testing.assert_array_equal(resumed.votes, whole.votes)


@pytest.mark.parametrize("teacher", ["logistic_regression", "random_forest"])
def test_skewed_and_tiny_parties_vote_too(tmp_path, teacher):
    """Strong label skew: parties of one class only, and of fewer rows than classes."""
    shards = shards_of(150, scheme="dirichlet:0.05")[:8]
    classes_seen = [len(np.unique(DATASET.private_labels[of_party[0]])) for of_party in shards]
    assert min(classes_seen) == 1
    assert min(len(of_party[0]) for of_party in shards) < 10
    votes = cast(tmp_path, shards, teacher=teacher).votes
    assert votes.min() >= 0
    assert votes.max() < 10


def test_a_party_that_does_not_answer_is_named(tmp_path):
    class Silent:
        def run(self, spec, names, body):
            return body(lambda requests, on_reply=None: dict.fromkeys(requests))

    with refuses(EngineFailed, "4 of 4 parties"):
        cast(tmp_path, shards_of(4), engine=Silent)
