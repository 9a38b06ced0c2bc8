"""Rounds of questions: fair turns, one cap a party over all querying parties, and the same labels as a replay."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.noise import LatticeNoise
from protocols.votes import ABSTAIN, NOT_ASKED
from simulations.ask.settings import ask_settings
from simulations.ask.stages import Round, ask_all, ask_study, next_round, noise_of_both
from simulations.setup.levels import one_stream
from simulations.stages.replay import replay
from simulations.stages.stored_votes import CastVotes
from tests.harness.studies import make_votes

CLASSES = 10


@cache
def study_of(**values):
    _, study = ask_study(ask_settings(**{"parties": 40, "unlabelled": 60, "budgets": "20", **values}), classes=CLASSES)
    return study


def votes_on(queriers: int, records: int, *, parties: int = 40, seed: int = 0):
    votes, _ = make_votes(parties, queriers * records, seed=seed)
    return votes[:, 0].reshape(parties, queriers, records)


def silent(units: int = 64) -> LatticeNoise:
    return LatticeNoise(units, lambda count, sigma: np.zeros(count, dtype=np.int64))


def test_every_ledger_is_the_sum_of_what_its_turns_cost_and_none_passes_its_cap() -> None:
    study = study_of(queriers=3, turn=7, budgets="5:0.5,20:0.5", unlabelled=400)
    queriers = np.array([1, 8, 30])
    asked = ask_all(study, votes_on(3, 400), queriers, noise=noise_of_both(study, seed=1))
    assert asked.stop.reason == "budget_exhausted"
    filters = study.budgets
    for party in range(40):
        own = [
            int(filters.amount(turn.asked, turn.answered)[party])
            for turn in asked.turns
            if queriers[turn.querier] != party
        ]
        assert asked.spent[party] == sum(own) <= filters.cap[party]
    assert (np.diff(asked.spent_after, axis=0) >= 0).all()
    assert np.array_equal(asked.spent_after[-1], asked.spent)


def test_no_querying_party_asks_more_than_another_and_labels_are_counted_where_they_stand() -> None:
    study = study_of(queriers=4, turn=3, unlabelled=60)
    asked = ask_all(study, votes_on(4, 60), np.arange(4), noise=noise_of_both(study, seed=2))
    each = [sum(turn.asked for turn in asked.turns if turn.querier == place) for place in range(4)]
    assert len(set(each)) == 1
    for place in range(4):
        row = asked.labels[place]
        assert (row[: each[0]] != NOT_ASKED).all()
        assert (row[each[0] :] == NOT_ASKED).all()
        answered = sum(turn.answered for turn in asked.turns if turn.querier == place)
        assert (row >= 0).sum() == answered


def test_a_querying_party_does_not_answer_itself_and_its_own_turns_cost_it_nothing() -> None:
    study = study_of(parties=3, queriers=1, mechanism="gnmax", sigma=10.0, turn=5, unlabelled=20, quorum=2)
    votes = np.zeros((3, 1, 20), dtype=np.int16)
    votes[1:] = 7
    asked = ask_all(study, votes, np.array([0]), noise=silent())
    assert (asked.labels == 7).all()
    assert asked.spent[0] == 0
    assert (asked.spent[1:] > 0).all()
    # If it counted its own vote thrice, it would win.
    assert (ask_all(study, votes, np.array([1]), noise=silent()).labels == 0).all()


def test_one_party_that_asks_gets_what_a_replay_without_its_vote_releases() -> None:
    study = study_of(queriers=1, turn=9, unlabelled=300, budgets="15")
    votes = votes_on(1, 300, seed=4)
    asked = ask_all(study, votes, np.array([5]), noise=noise_of_both(study, seed=3))
    others = np.arange(40) != 5
    replayed = replay(
        study,
        CastVotes(CLASSES, votes),
        noise=one_stream(noise_of_both(study, seed=3)),
        presence=lambda number: others,
    )
    assert np.array_equal(asked.labels[0], replayed.labelling.labels)
    assert np.array_equal(asked.spent, replayed.labelling.spent)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 6), st.integers(1, 30), st.integers(1, 50),
    st.lists(st.integers(0, 1000), min_size=40, max_size=40), st.sampled_from(["first-exhausted", "drop-exhausted"]),
)  # fmt: skip
def test_the_worst_case_of_a_round_always_fits(count, turn, left, shares, stop) -> None:
    study = study_of(queriers=count, turn=turn, stop=stop, weights="uniform")
    filters, queriers = study.budgets, np.arange(count)
    spent = filters.cap * np.array(shares) // 1000
    step = next_round(study, spent, queriers=queriers, left=left)
    answers = np.full(40, count)
    answers[:count] -= 1
    if isinstance(step, Round):
        assert 1 <= step.size <= min(turn, left)
        worst = answers * filters.amount(step.size, step.size)
        assert (spent + worst <= filters.cap)[step.active].all()
        if stop == "first-exhausted":
            assert step.active.all()
        if step.size < min(turn, left):
            larger = answers * filters.amount(step.size + 1, step.size + 1)
            assert (spent + larger > filters.cap)[step.active].any()
    else:
        poor = spent + answers * filters.amount(1, 1) > filters.cap
        assert poor.any() if stop == "first-exhausted" else poor.all()


def test_a_party_that_is_out_stops_answering_and_the_others_go_on() -> None:
    terms = {"queriers": 2, "turn": 20, "budgets": "3:0.5,20:0.5", "weights": "uniform", "unlabelled": 60}
    both = [
        ask_all(study_of(stop=stop, **terms), votes_on(2, 60), np.arange(2), noise=silent())
        for stop in ("first-exhausted", "drop-exhausted")
    ]
    assert both[0].stop.reason == "budget_exhausted"
    assert sum(turn.asked for turn in both[1].turns) > sum(turn.asked for turn in both[0].turns)
    assert (both[1].spent <= study_of(stop="drop-exhausted", **terms).budgets.cap).all()


def test_too_few_parties_to_answer_end_it() -> None:
    study = study_of(parties=4, queriers=2, quorum=3, budgets="3:0.25,40:0.75", weights="uniform",
                     stop="drop-exhausted", unlabelled=500, turn=20, mechanism="gnmax", sigma=5.0)  # fmt: skip
    asked = ask_all(study, np.zeros((4, 2, 500), dtype=np.int16), np.array([0, 1]), noise=silent())
    assert asked.stop.reason == "quorum_lost"


def test_refused_queries_cost_as_much_as_answered_ones() -> None:
    agreed = study_of(queriers=2, turn=10, unlabelled=500, threshold=-10.0, sigma=8.0)
    strict = study_of(queriers=2, turn=10, unlabelled=500, threshold=40.0, sigma=8.0)
    votes = np.tile(np.arange(40)[:, None, None] % CLASSES, (1, 2, 500)).astype(np.int16)
    some, none = (ask_all(s, votes, np.arange(2), noise=silent()) for s in (agreed, strict))
    assert (none.labels[none.labels != NOT_ASKED] == ABSTAIN).all()
    assert (some.labels[some.labels != NOT_ASKED] != ABSTAIN).all()
    assert [turn.asked for turn in none.turns] == [turn.asked for turn in some.turns]


def test_the_noise_is_that_of_both_servers() -> None:
    study = study_of()
    drawn = noise_of_both(study, seed=0).draw(20_000, 512.0)
    # A variance of 2 sigma^2; 20,000 draws leave the estimate within 4 % with probability 1 - 1e-4 (chi-squared).
    assert drawn.var() == pytest.approx(2 * 512.0**2, rel=0.04)
    assert np.array_equal(drawn[:50], noise_of_both(study, seed=0).draw(20_000, 512.0)[:50])
    assert not np.array_equal(drawn[:50], noise_of_both(study, seed=1).draw(20_000, 512.0)[:50])
