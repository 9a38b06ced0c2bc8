import contextlib
import dataclasses
import functools
import re
import sqlite3
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from party.budget.policy import Policy
from party.lifetime import LifetimeCap, epsilon_reached, study_cost
from protocols.errors import Refused, StorageFailed
from tests.harness.refusals import refused_for, refuses
from tests.harness.studies import make_study

STUDIES = [
    dataclasses.replace(
        make_study([epsilon, 1.0], threshold=1.0, account=account, delta=1e-6), name=f"{account} {epsilon}"
    )
    for epsilon in (0.3, 0.8, 2.0)
    for account in ("label_only", "gaussian", "gaussian_dp")
]
CAPS = {"record": LifetimeCap(3.0, 1e-5)}


@dataclasses.dataclass(frozen=True)
class Place:
    """A home without files."""

    identity: str
    path: Path = Path("/nowhere")


HOME = Place("1" * 32)


def approve(policy, study, *, caps=CAPS, home=HOME, data_set="ward"):
    return policy.approve(study, party="p0", data_set=data_set, caps=caps, home=home, told_apart=False)


def withdraw(policy, study, spent):
    policy.withdraw(study, data_set="ward", home=HOME)
    policy.release(study, data_set="ward", home=HOME, spent={"p0": spent})


class _Full(Exception):
    """The study does not fit."""


@functools.cache
def cost(number, spent):
    by_seat = None if spent is None else {"p0": spent}
    return study_cost(STUDIES[number], "p0", unit="record", spent=by_seat, told_apart=False)


class Lifetimes(RuleBasedStateMachine):
    """Any order of approvals and withdrawals, with any spend: the cap holds, and what was spent stays counted."""

    @initialize()
    def open(self):
        self.policy = Policy(":memory:")
        self.spent = {}

    @rule(study=st.sampled_from(STUDIES))
    def approve(self, study):
        if study.digest in self.spent:
            return
        with contextlib.suppress(_Full):
            try:
                approve(self.policy, study)
            except Refused as error:
                raise _Full if error.code == "lifetime_cap" else error from None
            self.spent[study.digest] = (study, None)

    @rule(study=st.sampled_from(STUDIES), share=st.floats(0, 1))
    def withdraw(self, study, share):
        if self.spent.get(study.digest, (None, 0))[1] is None:
            spent = int(share * int(study.budgets.cap[0]))
            withdraw(self.policy, study, spent)
            self.spent[study.digest] = (study, spent)

    @invariant()
    def the_cap_holds(self):
        for standing in self.policy.lifetime_uses():
            assert standing.reserved <= standing.allowed
            assert standing.epsilon_reserved <= 3.0 * (1 + 1e-8)
            costs = [cost(STUDIES.index(study), spent) for study, spent in self.spent.values()]
            assert standing.reserved == sum(each.at(standing.currency) for each in costs)
            everything = epsilon_reached(
                sum(each.at(standing.currency) for each in costs),
                standing.currency,
                delta=1e-5,
                noise_distance=sum(each.noise_distance for each in costs),
            )
            assert everything == pytest.approx(standing.epsilon_reserved)

    def teardown(self):
        list(self.policy.log.entries())
        self.policy.__exit__(None, None, None)


TestLifetimes = Lifetimes.TestCase
TestLifetimes.settings = settings(max_examples=12, stateful_step_count=15, deadline=None)


def test_a_study_that_does_not_fit_reserves_nothing_and_one_that_was_withdrawn_makes_room():
    with Policy(":memory:") as policy:
        first, second = STUDIES[6], dataclasses.replace(STUDIES[6], name="second")
        caps = {"record": LifetimeCap(2.1, 1e-5)}
        assert approve(policy, first, caps=caps)[0].fits
        with refused_for("lifetime_cap", "2.1", "1e-05") as refused:
            approve(policy, second, caps=caps)
        wanted, left = map(float, re.findall(r"([0-9.]+) %", str(refused.value)))
        (forecast,) = policy.forecast(second, party="p0", data_set="ward", caps=caps, told_apart=False)
        assert wanted == pytest.approx(100 * (forecast.after.share - forecast.before.share), abs=0.2)
        assert left == pytest.approx(100 * (1 - forecast.before.share), abs=0.2)
        assert wanted > left > 0
        assert [each.name for each in policy.approvals()] == [first.name]
        withdraw(policy, first, 0)
        approve(policy, second, caps=caps)
        with refused_for("withdrawn"):
            approve(policy, first, caps=caps)


def test_a_withdrawal_never_raises_a_reservation_and_happens_once():
    with Policy(":memory:") as policy:
        approve(policy, STUDIES[0])
        before = policy.lifetime_uses()[0].reserved
        with refused_for("not_withdrawn"):
            policy.release(STUDIES[0], data_set="ward", home=HOME, spent={"p0": 0})
        withdraw(policy, STUDIES[0], int(STUDIES[0].budgets.cap[0]) // 3)
        third = policy.lifetime_uses()[0].reserved
        assert third < before
        withdraw(policy, STUDIES[0], int(STUDIES[0].budgets.cap[0]))
        assert policy.lifetime_uses()[0].reserved == third


def test_approving_again_changes_nothing_and_another_home_may_not_answer_too():
    with Policy(":memory:") as policy:
        approve(policy, STUDIES[0])
        reserved = policy.lifetime_uses()[0].reserved
        assert approve(policy, STUDIES[0]) == []
        assert policy.lifetime_uses()[0].reserved == reserved
        with refused_for("approved_elsewhere"):
            approve(policy, STUDIES[0], home=Place("2" * 32))


def test_a_cap_stands_once_a_study_is_approved():
    with Policy(":memory:") as policy:
        approve(policy, STUDIES[0])
        for caps in (
            {"record": LifetimeCap(9.0, 1e-5)},
            {"record": LifetimeCap(3.0, 1e-4)},
            CAPS | {"party": LifetimeCap(1.0, 1e-5)},
        ):
            with refused_for("lifetime_cap_changed"):
                approve(policy, STUDIES[3], caps=caps)
        approve(policy, STUDIES[3], caps={"record": LifetimeCap(9.0, 1e-5)}, data_set="another")
        assert len(policy.lifetime_uses()) == 2


def test_a_study_of_a_unit_without_a_cap_is_refused():
    study = make_study([1.0], unit="party", threshold=1.0)
    with Policy(":memory:") as policy, refused_for("no_lifetime_cap", "lifetime.party"):
        approve(policy, study)
    with Policy(":memory:") as policy:
        caps = CAPS | {"party": LifetimeCap(1.0, 1e-5)}
        approve(policy, study, caps=caps)
        assert {each.unit: each.share for each in policy.lifetime_uses()}["party"] == 1.0


def test_what_was_approved_outlives_the_process_and_a_crash_inside_an_approval_leaves_nothing(tmp_path):
    path = tmp_path / "policy.sqlite"
    with Policy(path) as policy:
        approve(policy, STUDIES[0])
        policy.log.append = lambda *args, **more: (_ for _ in ()).throw(sqlite3.OperationalError("disk I/O error"))
        with pytest.raises(StorageFailed, match="nothing was changed"):
            approve(policy, STUDIES[1])
    with Policy(path) as policy:
        assert [each.study for each in policy.approvals()] == [STUDIES[0].digest]
        assert policy.lifetime_uses()[0].reserved > 0


def test_a_file_that_is_no_policy_is_refused(tmp_path):
    path = tmp_path / "policy.sqlite"
    path.write_text("this is no database, and long enough to be looked at " * 30)
    with refuses(StorageFailed, "policy.sqlite"):
        Policy(path)
