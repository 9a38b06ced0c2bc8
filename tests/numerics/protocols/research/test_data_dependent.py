"""The data-dependent accountants on small evidence: against their own formulas, and where they have nothing to say."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr

from benchmarks import exact_per_instance as exact
from benchmarks.exact_accountants import Exact, ExactOwnVote
from benchmarks.moments2017 import MOMENTS, Moments2017, total_log_moments
from benchmarks.sanitised import SmoothSensitivity
from protocols.bounds.rdp import rdp_to_epsilon
from protocols.budgets.accountant import ACCOUNTANTS, Accountant
from protocols.errors import InvalidInput
from protocols.mechanisms import make_mechanism
from protocols.research import DATA_DEPENDENT as OWN
from protocols.research.data_dependent import FIGURE_ORDERS, Circumstances, QueryVotes, Units, total_threshold_rdp
from protocols.research.private import Private
from protocols.votes import ABSTAIN
from tests.harness.published import label_rdp, moments_to_epsilon
from tests.harness.refusals import refuses

ADDED = (Exact(), ExactOwnVote(), Moments2017(), SmoothSensitivity())
DATA_DEPENDENT = {**OWN, **{each.name: each for each in ADDED}}

RNG = np.random.default_rng(7)
VOTES = RNG.choice(3, p=[0.8, 0.15, 0.05], size=(60, 40))
COUNTS = np.stack([(VOTES == c).sum(axis=0) for c in range(3)], axis=1).astype(float)
ANSWERED = RNG.random(40) < 0.7
ONE_DRAW = make_mechanism("thresholded_gnmax", view="label", sigma=6.0, threshold=36.0)
CONFIDENT = make_mechanism("confident_gnmax", view="label", sigma=6.0, sigma_threshold=15.0, threshold=36.0)
INTERACTIVE = make_mechanism(
    "interactive_gnmax", view="label", sigma=6.0, sigma_threshold=15.0, threshold=36.0, interactive_threshold=20.0,
    reinforce_confidence=0.9, round_one=1,
)  # fmt: skip
TINY = make_mechanism("gnmax", view="label", sigma=0.3)
LNMAX = make_mechanism("lnmax", view="label", gamma=0.2)
DELTA = np.array([1e-5, 1e-5, 1e-6, 1e-5])


def evidence(mechanism, student_votes=None, *, abstentions=False):
    return QueryVotes(
        mechanism=mechanism, counts=COUNTS, abstentions=abstentions, answered=ANSWERED,
        student_votes=student_votes,
    )  # fmt: skip


def units(*, present=None, own=False):
    there = np.ones((4, 40), dtype=bool) if present is None else present
    votes = np.where(there, VOTES[:4], ABSTAIN) if own else None
    sensitivity = np.array([1.0, 1.0, 1.0, 2.0])
    return Units(sensitivity=sensitivity, cast=np.ones(60), delta=DELTA, present=there, own_votes=votes)


def circumstances(mechanism, **changes):
    usual = {
        "view": "label", "classes": 3, "sensitivity": np.ones(4), "cast": np.ones(60), "votes_known": True,
        "one_vote": True, "everyone": True, "secret": False,
    }  # fmt: skip
    return Circumstances(mechanism=mechanism, **(usual | changes))


def least(rdp, delta):
    return rdp_to_epsilon(rdp, FIGURE_ORDERS, delta=delta).min()


def rdp_of_tests(top, s):
    """The threshold tests of CONFIDENT for a unit of weight s, query by query."""
    each = [
        total_threshold_rdp(
            row, FIGURE_ORDERS, sigma_threshold=15.0, threshold=36.0, sensitivity=np.array([float(s)])
        ).for_research()[0]
        for row in top[:, None]
    ]  # fmt: skip
    return np.sum(each, axis=0)


def test_papernot_2018_adds_answered_labels_and_all_tests_and_expects_over_the_thresholds_noise():
    figures = DATA_DEPENDENT["papernot2018"].figures(evidence(CONFIDENT), units()).for_research()
    for unit, s in enumerate((1.0, 1.0, 1.0, 2.0)):
        tests = rdp_of_tests(COUNTS.max(axis=1), s)
        label = label_rdp(COUNTS, FIGURE_ORDERS, sigma=6.0, sensitivity=np.array([s]))[0]
        want = rdp_to_epsilon(label[ANSWERED].sum(axis=0) + tests, FIGURE_ORDERS, delta=DELTA[unit])
        assert figures.epsilon[unit] == pytest.approx(want.min(), rel=1e-12)
        assert figures.order[unit] == FIGURE_ORDERS[want.argmin()]
        papers = label[ANSWERED].sum(axis=0) + tests - np.log(DELTA[unit]) / (FIGURE_ORDERS - 1)
        assert figures.mironov.epsilon[unit] == pytest.approx(papers.min(), rel=1e-12)
        assert figures.mironov.order[unit] == FIGURE_ORDERS[papers.argmin()]
        answers = ndtr((COUNTS.max(axis=1) - 36) / 15)
        want = rdp_to_epsilon(answers @ label + tests, FIGURE_ORDERS, delta=DELTA[unit])
        assert figures.expected.epsilon[unit] == pytest.approx(want.min(), rel=1e-12)
        assert figures.expected.order[unit] == FIGURE_ORDERS[want.argmin()]
        papers = answers @ label + tests - np.log(DELTA[unit]) / (FIGURE_ORDERS - 1)
        assert figures.expected_mironov.epsilon[unit] == pytest.approx(papers.min(), rel=1e-12)
    assert figures.epsilon[3] > figures.epsilon[0]
    assert figures.epsilon[2] > figures.epsilon[0]


def test_a_unit_pays_only_for_queries_that_it_took_part_in():
    present = np.ones((4, 40), dtype=bool)
    present[1, 10:] = False
    present[2] = False
    for name, mechanism in (("papernot2018", CONFIDENT), ("exact", CONFIDENT), ("moments2017", LNMAX)):
        all_of_it = DATA_DEPENDENT[name].figures(evidence(mechanism), units()).for_research()
        some = DATA_DEPENDENT[name].figures(evidence(mechanism), units(present=present)).for_research()
        assert some.epsilon[0] == pytest.approx(all_of_it.epsilon[0], rel=1e-9)
        assert some.epsilon[1] < all_of_it.epsilon[1]
        assert some.epsilon[2] < some.epsilon[1]


def test_moments_2017_are_those_of_the_module():
    figures = DATA_DEPENDENT["moments2017"].figures(evidence(LNMAX), units()).for_research()
    total = total_log_moments(COUNTS, MOMENTS, gamma=0.2, sensitivity=np.array([2.0])).for_research()
    want, at = moments_to_epsilon(total[0], MOMENTS, delta=1e-5)
    assert figures.epsilon[3] == pytest.approx(want, rel=1e-12)
    assert figures.order[3] == at + 1
    with refuses(InvalidInput, "moments2017"):
        DATA_DEPENDENT["moments2017"].figures(evidence(TINY), units())


def test_exact_figures_are_joint_over_refusal_and_label_and_fall_for_a_unit_that_knows_its_vote():
    setting = exact.QuerySetting(sigma=6.0, threshold=36.0, sigma_threshold=15.0)
    anyone = DATA_DEPENDENT["exact"].figures(evidence(CONFIDENT), units()).for_research()
    own = DATA_DEPENDENT["exact_own_vote"].figures(evidence(CONFIDENT), units(own=True)).for_research()
    total = exact.total_rdp(COUNTS, FIGURE_ORDERS, setting=setting, sensitivity=np.array([1.0])).for_research()[0]
    assert anyone.epsilon[0] == pytest.approx(least(total, 1e-5), rel=1e-12)
    assert (own.epsilon <= anyone.epsilon * (1 + 1e-12)).all()
    assert (own.epsilon < anyone.epsilon * (1 - 1e-6)).any()
    with pytest.raises(InvalidInput, match="needs the votes of each unit"):
        DATA_DEPENDENT["exact_own_vote"].figures(evidence(CONFIDENT), units())


@pytest.mark.parametrize("name", ["exact", "exact_own_vote"])
def test_a_unit_that_abstained_in_private_is_not_taken_for_one_that_took_no_part(name):
    """It would pay nothing, while a neighbour that votes moves its seat."""
    with refuses(InvalidInput, -1):
        DATA_DEPENDENT[name].figures(evidence(CONFIDENT, abstentions=True), units(own=True))
    votes = VOTES[:4].copy()
    votes[2, 5] = ABSTAIN
    given = replace(units(), own_votes=votes)
    with refuses(InvalidInput, -1):
        DATA_DEPENDENT[name].figures(evidence(CONFIDENT), given)
    absent = np.ones((4, 40), dtype=bool)
    absent[2, 5] = False
    figures = DATA_DEPENDENT[name].figures(evidence(CONFIDENT), replace(given, present=absent)).for_research()
    assert np.isfinite(figures.epsilon).all()


def test_interactive_votes_are_held_against_the_student():
    rng = np.random.default_rng(7)
    student = 60 * rng.dirichlet([1.0, 1.0, 1.0], size=40)
    setting = exact.QuerySetting(sigma=6.0, threshold=36.0, sigma_threshold=15.0, student_votes=student)
    figures = DATA_DEPENDENT["exact"].figures(evidence(INTERACTIVE, student), units()).for_research()
    total = exact.total_rdp(COUNTS, FIGURE_ORDERS, setting=setting, sensitivity=np.array([1.0])).for_research()[0]
    assert figures.epsilon[0] == pytest.approx(least(total, 1e-5), rel=1e-12)
    papernot = DATA_DEPENDENT["papernot2018"].figures(evidence(INTERACTIVE, student), units()).for_research()
    top = (COUNTS - student).max(axis=1)
    answers = ndtr((top - 36) / 15)
    label = label_rdp(COUNTS, FIGURE_ORDERS, sigma=6.0, sensitivity=np.ones(1))[0]
    assert papernot.expected.epsilon[0] == pytest.approx(least(answers @ label + rdp_of_tests(top, 1), 1e-5), rel=1e-12)


def test_one_draw_is_analysed_exactly_as_one_mechanism():
    given = evidence(ONE_DRAW)
    figures = DATA_DEPENDENT["exact"].figures(given, units()).for_research()
    setting = exact.QuerySetting(sigma=6.0, threshold=36.0)
    rdp = exact.total_rdp(given.counts, FIGURE_ORDERS, setting=setting, sensitivity=units().sensitivity).for_research()
    assert figures.epsilon[0] == pytest.approx(least(rdp[0], units().delta[0]), rel=1e-9)


def test_every_figure_is_private_and_no_such_accountant_can_charge():
    for name, mechanism in (("papernot2018", CONFIDENT), ("exact", CONFIDENT), ("moments2017", LNMAX)):
        assert isinstance(DATA_DEPENDENT[name].figures(evidence(mechanism), units()), Private)
    for account in DATA_DEPENDENT.values():
        assert not isinstance(account, Accountant)
        for charging in ("query_cost", "affords", "to_epsilon"):
            assert not hasattr(account, charging)
    assert not set(DATA_DEPENDENT) & set(ACCOUNTANTS)
    assert not {a.statement for a in DATA_DEPENDENT.values()} & {a.statement for a in ACCOUNTANTS.values()}


@pytest.mark.parametrize(
    ("name", "given", "named"),
    [
        ("papernot2018", circumstances(LNMAX), "lnmax; allowed: gnmax, confident_gnmax, interactive_gnmax"),
        ("papernot2018", circumstances(ONE_DRAW), "does not hold for thresholded_gnmax; allowed: gnmax, confident"),
        ("moments2017", circumstances(CONFIDENT), "confident_gnmax; allowed: lnmax"),
        ("papernot2018", circumstances(CONFIDENT, view="histogram"), "view 'histogram'; allowed: view 'label'"),
        ("exact", circumstances(CONFIDENT, one_vote=False), "one vote per query"),
        ("exact", circumstances(CONFIDENT, secret=True), "secret sampling"),
        ("exact", circumstances(CONFIDENT, sensitivity=np.arange(1.0, 41.0)), "40 distinct weights"),
        ("exact_own_vote", circumstances(CONFIDENT, votes_known=False), "needs the one vote of each unit"),
        ("exact", circumstances(CONFIDENT, sensitivity=np.array([301.0])), "301 votes at sigma 6; allowed: at most 50"),
        ("smooth_sensitivity", circumstances(TINY), "C5 or C6.*sigma 0.3 for a unit of 1 votes"),
        ("smooth_sensitivity", circumstances(CONFIDENT, everyone=False), "every party in every query"),
    ],
)
def test_an_accountant_refuses_what_it_has_no_theorem_for_before_anything_is_trained(name, given, named):
    with pytest.raises(InvalidInput, match=named):
        DATA_DEPENDENT[name].check(given)
