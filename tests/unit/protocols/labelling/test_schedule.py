import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.errors import InvalidInput
from protocols.labelling.schedule import Batch, Stop, next_batch
from tests.harness.refusals import refuses
from tests.harness.studies import make_study

STUDY = make_study([1.0, 2.0, 3.0], threshold=1.0)


@settings(deadline=None)
@given(
    shares=st.lists(st.floats(0, 1), min_size=3, max_size=3),
    left=st.integers(1, 2000),
    limit=st.integers(1, 2000),
    stop=st.sampled_from(["first-exhausted", "drop-exhausted"]),
)
def test_a_batch_is_the_largest_whose_worst_case_fits_every_active_cap(shares, left, limit, stop):
    budgets = STUDY.budgets
    spent = np.floor(np.array(shares) * budgets.cap).astype(np.int64)
    step = next_batch(
        budgets, spent, participation=STUDY.participation, asked=0, left=left, batch_limit=limit, stop=stop, quorum=1
    )
    one_fits = spent + budgets.amount(1, 1) <= budgets.cap
    if isinstance(step, Stop):
        assert not one_fits.all()
        assert stop == "first-exhausted" or not one_fits.any()
        np.testing.assert_array_equal(step.exhausted, ~one_fits)
        return
    np.testing.assert_array_equal(step.active, one_fits)
    after = spent + budgets.amount(step.size, step.size)
    assert (after <= budgets.cap)[step.active].all()
    one_more = spent + budgets.amount(step.size + 1, step.size + 1)
    assert step.size == min(left, limit) or (one_more > budgets.cap)[step.active].any()


def test_the_study_ends_with_the_pool_or_the_quorum():
    budgets, none = STUDY.budgets, np.zeros(3, dtype=np.int64)
    common = {"participation": STUDY.participation, "asked": 0, "batch_limit": 10, "stop": "drop-exhausted"}
    assert next_batch(budgets, none, left=0, quorum=1, **common).reason == "pool_exhausted"
    one_out = np.array([budgets.cap[0], 0, 0])
    assert isinstance(next_batch(budgets, one_out, left=5, quorum=2, **common), Batch)
    assert next_batch(budgets, one_out, left=5, quorum=3, **common).reason == "quorum_lost"
    assert next_batch(budgets, budgets.cap, left=5, quorum=1, **common).reason == "all_budgets_exhausted"
    last = np.array([False, False, True])  # it is asked no more: a quorum of the others is needed
    assert next_batch(budgets, one_out, left=5, quorum=2, without=last, **common).reason == "quorum_lost"
    poor = np.array([0, 0, budgets.cap[2] - budgets.amount(1, 1)[2]])
    found = next_batch(budgets, poor, left=5, quorum=2, without=last, **common)
    assert (found.size, found.active.tolist()) == (5, [True, True, False])


def test_an_unknown_rule_lists_the_known():
    with refuses(InvalidInput, "first-exhausted, drop-exhausted"):
        make_study([1.0], stop="never")
