"""Attackers within the study's drop-outs stop no sum, and get nobody else named: each deviation, and combinations."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.levels.secure_sum.collecting import QuorumLost
from tests.harness.sum_attackers import DEVIATIONS, attacked, leaves
from tests.harness.sum_parties import STEPS, make_context

CONTEXT = make_context(9, 2, 1, cells=3)
VALUES = np.arange(27, dtype=np.int64).reshape(9, 3) - 9
# What changes nothing: signatures and shares that nobody needed, or lies that are taken back in the dispute about them.
HARMLESS = {
    ("advertise", "scrambled tags"), ("share", "scrambled tags"), ("share", "scrambled signature"),
    ("check", "accuses all"), ("check", "accuses one"), ("check", "claims valid"), ("check", "scrambled values"),
    ("accuse", "scrambled points"), ("accuse", "scrambled proofs"),
    ("mask", "scrambled tags"), ("agree", "scrambled tags"), ("unmask", "scrambled shares"),
}  # fmt: skip
ALL = [(step, name) for step, found in DEVIATIONS.items() for name in found]


def outcome(plans, context=CONTEXT, values=VALUES):
    """Who was named; the sum is that of its survivors, all honest members among them, and none of these refused."""
    running = attacked(context, values, plans)
    opened = running.run()
    np.testing.assert_array_equal(opened.sums, values[opened.survivors].sum(axis=0))
    honest = np.isin(np.arange(context.parties), list(plans), invert=True)
    assert opened.survivors[honest].all()
    assert {index for _, index in running.errors} <= set(plans)
    named = {context.members.index(name): code for name, code in (opened.left_out | opened.faults).items()}
    assert set(named) <= set(plans)
    return named


@pytest.mark.parametrize(("step", "name"), ALL, ids=[f"{step}: {name}" for step, name in ALL])
def test_one_attacker_stops_nothing_and_nobody_else_is_named(step, name):
    plan = {step: DEVIATIONS[step][name]}
    if step == "accuse":
        plan["check"] = DEVIATIONS["check"]["accuses all"]
    named = outcome({4: plan})
    assert (4 in named) == ((step, name) not in HARMLESS)


@pytest.mark.parametrize(
    "name", [name for name in DEVIATIONS["share"] if name not in ("scrambled tags", "scrambled signature")]
)
def test_whoever_deals_wrongly_and_stays_away_is_left_out_before_anybody_masks(name):
    plan = leaves("mask") | {"share": DEVIATIONS["share"][name]}
    running = attacked(CONTEXT, VALUES, {4: plan})
    running.run()
    assert not running.shared.present[4]
    assert running.shared.left_out


@given(data=st.data())
@settings(max_examples=20)
def test_attackers_within_the_drop_outs_stop_nothing_whatever_they_do(data):
    plans = {}
    for index in data.draw(st.permutations(range(CONTEXT.parties)))[: CONTEXT.dropouts]:
        plan = {
            step: DEVIATIONS[step][name]
            for step in STEPS
            if (name := data.draw(st.sampled_from([None, None, *DEVIATIONS[step]]))) is not None
        }
        plans[index] = plan
    outcome(plans)


def test_one_attacker_more_than_the_drop_outs_can_stop_a_sum():
    """What the bound is for: the same attack by one more."""
    plans = {index: leaves("mask") for index in range(CONTEXT.dropouts + 1)}
    with pytest.raises(QuorumLost):
        attacked(CONTEXT, VALUES, plans).run()
