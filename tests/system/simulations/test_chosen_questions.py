"""Runs whose questions are chosen between batches by what a student of the labels so far doubts."""

from pathlib import Path

import numpy as np
import pytest

from coordinator.queries.questions import in_order
from protocols.errors import InvalidInput
from protocols.research import DATA_DEPENDENT
from simulations.pipeline import RunResult, run, study_of
from simulations.progress import Reporter
from simulations.setup.accountants import check_analyses
from simulations.setup.experiment import experiment, experiment_budgets, make_study
from simulations.stages.inputs import Host, read_inputs
from tests.harness.refusals import refuses

QUIET = Reporter(quiet=True)


def done(cache: Path, **values: object) -> RunResult:
    chosen = experiment(
        dataset="digits", parties=12, queries=150, data_seed=1, budgets="13", questions="uncertainty:8",
        features="raw", student="none", baselines=False, **values,
    )  # fmt: skip
    host = Host(data_dir=None, cache_dir=cache, engine="in_process", workers=1)
    inputs = read_inputs(chosen, host=host, reporter=QUIET)
    budgets, study = study_of(inputs)
    return run(inputs, budgets=budgets, study=study, host=host, reporter=QUIET)


def test_a_run_chooses_between_batches_as_its_live_study_does_and_chooses_the_same_again(tmp_path: Path) -> None:
    first, again = done(tmp_path, seeds=(0, 1)), done(tmp_path, seeds=(0,))
    assert first.live_checked
    made, other = (each.labelling for each in first.seeds)
    assert [size for size, _ in made.batches[:-1]] == [8] * (len(made.batches) - 1)
    assert len(made.batches) >= 3
    np.testing.assert_array_equal(made.batch_of, again.seeds[0].labelling.batch_of)
    np.testing.assert_array_equal(made.labels, again.seeds[0].labelling.labels)
    covering = in_order(first.source.dataset.public_inputs, "coverage", features="raw", seed=1)[:8]
    np.testing.assert_array_equal(np.flatnonzero(made.batch_of == 0), np.sort(covering))
    # The first batch is the same for every noise, those after it follow the labels.
    np.testing.assert_array_equal(made.batch_of == 0, other.batch_of == 0)
    assert (made.batch_of != other.batch_of).any()


@pytest.mark.parametrize("name", DATA_DEPENDENT)
def test_what_analyses_given_queries_is_refused_where_votes_decide_what_is_asked(name: str) -> None:
    chosen = experiment(parties=2, budgets="8", questions="uncertainty")
    study = make_study(chosen, experiment_budgets(chosen), classes=10, queries=60)
    with refuses(InvalidInput, name):
        check_analyses((name,), study, drops=False, trains=True, votes_known=True)
