"""Studies as they run, at each level: each break of the levels' code is found.

That honest code agrees with its law, at every level and for every mechanism, is in ../test_audit.py. Seeds are fixed,
so nothing here fails by chance; a line's false alarms are 1e-6.
"""

import numpy as np
import pytest

from protocols.errors import InvalidInput
from protocols.levels import clear
from protocols.mechanisms import MECHANISMS
from simulations.audit.as_run.as_run import audit_run
from simulations.audit.as_run.breaks import RUN_BREAKS, broken_code
from simulations.audit.as_run.studies import RUNS, asked_votes, stated_counts
from simulations.audit.as_run.weights import WEIGHTS

# Queries as a share of trials differ by level: what is weak needs more of them.
TRIALS = {"smaller-integers": 60_000, "share-missing": 60_000, "smaller-shares": 30_000, "one-server": 60_000}


@pytest.mark.parametrize("name", RUN_BREAKS)
def test_every_break_of_a_level_is_found_at_that_level(name):
    run = next(run for run in RUNS[::-1] if run.level == RUN_BREAKS[name].level)
    found = audit_run(run, MECHANISMS["gnmax"], trials=TRIALS.get(name, 8000), alpha=1e-6, seed=0, broken=name)
    assert found.failed, found.law.worst


def test_code_is_broken_within_the_block_only_and_an_unknown_break_is_refused():
    right = clear.count_votes
    with broken_code("weight-twice"):
        assert clear.count_votes is not right
    assert clear.count_votes is right
    with pytest.raises(KeyError), broken_code("weight-twice"):
        raise KeyError
    assert clear.count_votes is right
    with pytest.raises(InvalidInput, match="break is 'none'"), broken_code("none"):
        pass


def test_votes_of_every_kind_come_twice_and_some_parties_abstain():
    asked = asked_votes(seed=0)
    assert (np.bincount(asked.kinds) == 2).all()
    assert (asked.votes == -1).any()
    counts = stated_counts(asked)
    assert counts.max() == WEIGHTS.sum()
    np.testing.assert_allclose(counts.sum(axis=1), WEIGHTS @ (asked.votes >= 0))
