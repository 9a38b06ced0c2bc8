"""Studies as they run, at each level: each break of the levels' code is found.

That honest code agrees with its law, at every level and for every mechanism, is in ../test_audit.py. Seeds are fixed,
so nothing here fails by chance; a line's false alarms are 1e-6.
"""

import numpy as np
import pytest

from benchmarks.breaks import RUN_BREAKS
from protocols.mechanisms import MECHANISMS, VIEWS
from protocols.study import several_findings
from simulations.audit.as_run import (
    RUNS,
    WEIGHTS,
    asked_votes,
    audit_budgets,
    audit_run,
    audited_mechanism,
    audited_study,
    stated_counts,
)
from simulations.audit.breaks import broken_code

# Queries as a share of trials differ by level: what is weak needs more of them.
TRIALS = {"smaller-integers": 60_000, "share-missing": 60_000, "smaller-shares": 30_000, "one-server": 60_000}


@pytest.mark.parametrize("name", [name for name in RUN_BREAKS if RUN_BREAKS[name].level != "budgets"])
def test_every_break_of_a_level_is_found_at_that_level(name):
    whole = name.startswith("multiples-of-")
    levels = [run for run in RUNS[::-1] if run.level == RUN_BREAKS[name].level]
    run = next(run for run in levels if run.units is not None or not whole)
    trials, broken = TRIALS.get(name, 8000), RUN_BREAKS[name]
    found = audit_run(run, MECHANISMS["gnmax"], trials=trials, alpha=1e-6, seed=0, broken=broken)
    assert found.failed, found.law.worst


def test_a_study_asks_exactly_what_its_least_budget_affords_by_an_independent_count():
    for budget in audit_budgets(VIEWS, seed=0, broken=None):
        assert 170 < budget.asked == budget.most


@pytest.mark.parametrize("name", ["charges-90", "cap-past"])
def test_charges_that_are_too_small_and_caps_that_let_a_query_past_are_found_by_every_accountant(name):
    assert all(budget.failed for budget in audit_budgets(VIEWS, seed=0, broken=RUN_BREAKS[name]))


def test_a_share_of_the_noise_for_all_parties_is_found_where_one_may_drop_out_and_one_collude():
    run = next(run for run in RUNS if run.level == "secure_sum")
    study = audited_study(audited_mechanism(MECHANISMS["gnmax"], run), run, queries=48)
    assert study.quorum == len(study.roster) - 1
    found = audit_run(run, MECHANISMS["gnmax"], trials=8000, alpha=1e-6, seed=0, broken=RUN_BREAKS["shared-by-all"])
    assert found.failed, found.law.worst


def test_code_is_broken_within_the_block_only():
    right = several_findings.count_votes
    with broken_code(RUN_BREAKS["weight-twice"]):
        assert several_findings.count_votes is not right
    assert several_findings.count_votes is right
    with pytest.raises(KeyError), broken_code(RUN_BREAKS["weight-twice"]):
        raise KeyError
    assert several_findings.count_votes is right


def test_votes_of_every_kind_come_twice_and_some_parties_abstain():
    asked = asked_votes(seed=0)
    assert (np.bincount(asked.kinds) == 2).all()
    assert (asked.votes == -1).any()
    counts = stated_counts(asked)
    assert counts.max() == WEIGHTS.sum()
    assert (np.rint(64 * WEIGHTS) % 2 == 1).all(), "a vote of even weight would hide in even noise"
    np.testing.assert_allclose(counts.sum(axis=1), WEIGHTS @ (asked.votes >= 0))
