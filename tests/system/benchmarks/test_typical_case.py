"""Leave-one-out retraining on real digits (scikit-learn's, no file)."""

import numpy as np
import pytest

from benchmarks.typical_case import retraining
from protocols.crypto.randomness import simulation_rng
from protocols.errors import InvalidInput
from protocols.labelling.stored_votes import CastVotes
from protocols.noise import simulated
from protocols.research.private import Private
from simulations.pipeline import study_of
from simulations.progress import Reporter
from simulations.setup.experiment import experiment
from simulations.stages.asked_votes import AskedVotes
from simulations.stages.cast import cast_votes
from simulations.stages.inputs import Host, read_inputs
from simulations.stages.label import label_seed
from tests.harness.engine_here import EngineHere

CONFIDENCE = 1 - 1e-7
SETTINGS = {
    "dataset": "digits",
    "parties": 12,
    "private_size": 360,
    "queries": 40,
    "student": "none",
    "budgets": "6:0.5,9:0.5",
    "mechanism": "confident_gnmax",
    "sigma": 4.0,
    "sigma_threshold": 6.0,
    "threshold": 4.0,
}

# What a student between the rounds might say of every query.
PREDICTED = np.array([0.55] + [0.05] * 9)
INTERACTIVE = {"mechanism": "interactive_gnmax", "student": "random_forest", "interactive_threshold": 1.0}


class Case:
    """Votes that were cast, a study on them, and what it released."""

    def __init__(self, folder, **changes):
        host = Host(data_dir=None, cache_dir=folder, engine="in_process", workers=1)
        self.settings = experiment(**{**SETTINGS, **changes})
        inputs = read_inputs(self.settings, host=host, reporter=Reporter(quiet=True))
        self.dataset, self.shards = inputs.dataset, inputs.shards
        _, self.study = study_of(inputs)
        self.votes = cast_votes(
            self.dataset,
            self.shards,
            teacher=self.settings.teacher,
            seed=0,
            engine=EngineHere,
            cache_dir=folder,
            on_stage=lambda *_: None,
        ).votes
        stored = CastVotes(self.study.classes, self.votes)
        interactive = self.study.mechanism.interactive
        self.predictions = np.tile(PREDICTED, (40, 1)) if interactive else None
        self.result = label_seed(
            self.study,
            stored,
            seed=0,
            dropout=self.settings.dropout,
            truth=None,
            train=(lambda labels: self.predictions) if interactive else None,
        )

    def retraining(self, **changes):
        given = {
            "study": self.study,
            "dataset": self.dataset,
            "shards": self.shards,
            "votes": self.votes,
            "result": self.result,
            "teacher": self.settings.teacher,
            "seed": 0,
            "parties": [0, 3, 7],
            "retrainings": 6,
            "confidence": CONFIDENCE,
            "population": "federation",
            **changes,
        }
        first = [given.pop(name) for name in ("study", "dataset", "shards", "votes", "result")]
        return retraining(*first, **given)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def case(folder):
    return Case(folder)


@pytest.fixture(scope="module")
def report(case):
    return case.retraining()


def test_the_result_is_private_and_has_one_row_for_each_party(case, report):
    assert isinstance(report, Private)
    found = report.for_research()
    assert [row.party for row in found.rows] == [case.study.roster[i].party for i in (0, 3, 7)]
    assert found.asked == (case.result.labelling.labels != -2).sum() > 5
    assert any(row.moved_share > 0 for row in found.rows)
    for row, party in zip(found.rows, (0, 3, 7), strict=True):
        assert row.retrainings == 6
        assert row.epsilon_budget == case.study.roster[party].epsilon
        assert row.epsilon_guaranteed == case.study.budgets.epsilon_guaranteed[party]
        assert 0 <= row.moved_mean <= row.moved_max <= found.asked
        assert (row.moved_share > 0) == (row.moved_max > 0)
        assert 0 < row.epsilon_proved <= row.epsilon_guaranteed
        assert (row.moved_share == 0) == (row.top_share == 0)
        assert 0 <= row.top_share <= 1


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"teachers_per_party": 2, "threshold": 8.0, "dropout": 0.3},
        {"individualization": "vanishing", "threshold": 3.0},
        INTERACTIVE,
    ],
)
def test_the_histograms_are_those_that_were_released_from(folder, changes):
    """Releasing from them again with the same noise gives the same labels."""
    case = Case(folder, **changes)
    run = AskedVotes(case.study, CastVotes(case.study.classes, case.votes), case.result, case.predictions)
    noise, at = simulated(simulation_rng(0, "noise")), 0
    labels = case.result.labelling.labels
    assert len(case.result.labelling.batches) > 0
    for size, _ in case.result.labelling.batches:
        second = case.study.mechanism.round_one is not None and at >= case.study.mechanism.round_one
        of_batch = case.predictions[at : at + size] if second else None
        again, _ = case.study.released(run.counts[at : at + size], noise, predictions=of_batch)
        np.testing.assert_array_equal(again, labels[run.positions[at : at + size]])
        at += size


def test_votes_of_other_teachers_are_refused_after_training_them_again(case):
    other = case.votes.copy()
    other[3] = (other[3] + 1) % 10
    result = label_seed(case.study, CastVotes(10, other), seed=0, dropout=0.0, truth=None)
    with pytest.raises(InvalidInput, match="votes differently; allowed"):
        case.retraining(votes=other, result=result)
