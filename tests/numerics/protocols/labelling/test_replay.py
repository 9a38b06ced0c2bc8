from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.budgets.accountant import default_accountant
from protocols.crypto.randomness import simulation_rng
from protocols.errors import InvalidInput
from protocols.labelling.replay import dropout_presence, replay
from protocols.labelling.stored_votes import CastVotes, VoteCounts
from protocols.mechanisms import MECHANISMS
from protocols.noise import simulated
from protocols.study.file import read_study, write_study
from protocols.study.several_findings import Binary, Powerset, Tau
from protocols.votes import ABSTAIN
from simulations.setup.experiment import experiment, experiment_budgets
from simulations.setup.experiment import make_study as simulated_study
from simulations.stages.label import check_live, label_seed, live_study
from tests.harness.refusals import refuses
from tests.harness.studies import make_study, make_votes, one_stream


@settings(max_examples=25, deadline=None)
@given(
    parties=st.integers(3, 25),
    teachers=st.integers(1, 3),
    rule=st.sampled_from(["uniform", "proportional", "exhaustive"]),
    stop=st.sampled_from(["first-exhausted", "drop-exhausted"]),
    view=st.sampled_from(["label", "histogram"]),
    unit=st.sampled_from(["record", "party"]),
    dropout=st.sampled_from([0.0, 0.2, 0.6]),
    quorum_share=st.sampled_from([0.0, 0.5]),
    seed=st.integers(0, 2**32),
)
def test_a_replay_gives_the_labels_and_ledgers_of_the_live_study(
    parties, teachers, rule, stop, view, unit, dropout, quorum_share, seed
):
    rng = np.random.default_rng(seed)
    votes, _ = make_votes(parties, 120, teachers=teachers, seed=seed)
    total = parties * teachers
    study = make_study(
        rng.choice([1.0, 2.0, 4.5], parties).tolist(),
        rule=rule,
        stop=stop,
        view=view,
        unit=unit,
        account="label_only" if view == "label" else "gaussian_dp",
        teachers=teachers,
        sigma=0.5 * total,
        sigma_threshold=0.5 * total if view == "label" else None,
        threshold=0.6 * total,
        queries=120,
        quorum=1 + int(quorum_share * (parties - 1)),
    )
    stored = CastVotes(10, votes)
    live = live_study(study, stored, seed=seed, dropout=dropout)
    replayed = label_seed(study, stored, seed=seed, dropout=dropout, truth=None)
    check_live(live, replayed.labelling)
    assert live.batches == replayed.labelling.batches
    assert live.stop.reason == replayed.labelling.stop.reason
    assert (replayed.spent_after <= study.budgets.cap).all()
    if len(replayed.spent_after) and live.stop.reason != "quorum_lost":
        assert (replayed.spent_after[-1] == replayed.labelling.spent).all()


def by_labels(labels, left, size):
    """A choice of questions that depends on every label so far, and skips some of the pool."""
    return np.roll(left, -int(labels[labels >= 0].sum()))[::-1][:size]


def quarter_probabilities(labels):
    """A stand-in for a student: sure of class q % 10 at every fourth query of the pool, and undecided elsewhere."""
    queries = np.arange(len(labels))
    sure = (queries % 4 == 0)[:, None]
    return np.where(sure, np.where(np.arange(10) == (queries % 10)[:, None], 0.97, 0.03 / 9), 0.1)


@settings(max_examples=20, deadline=None)
@given(
    parties=st.integers(3, 25),
    teachers=st.sampled_from([1, 2]),
    participation=st.sampled_from(["all", "periodic", "secret"]),
    mechanism=st.sampled_from([name for name in MECHANISMS.own if name != "tau"]),
    stop=st.sampled_from(["first-exhausted", "drop-exhausted"]),
    batch_limit=st.sampled_from([1, 7, 120]),
    chosen=st.booleans(),
    dropout=st.sampled_from([0.0, 0.3]),
    seed=st.integers(0, 2**32),
)
def test_every_mechanism_and_every_participation_is_the_same_live_and_replayed(
    parties, teachers, participation, mechanism, stop, batch_limit, chosen, dropout, seed
):
    rng = np.random.default_rng(seed)
    votes, _ = make_votes(parties, 120, seed=seed)
    votes = np.concatenate([(votes + step) % 10 for step in range(teachers)], axis=1)
    wanted = MECHANISMS[mechanism].parameters(view="label")
    scale = 0.5 * parties
    terms = {"sigma": scale, "sigma_threshold": scale, "threshold": scale, "gamma": 2 / scale}
    terms |= {"interactive_threshold": 0.3 * parties, "reinforce_confidence": 0.9}
    interactive = mechanism == "interactive_gnmax"
    if mechanism == "lnmax" and participation == "secret":
        participation = "periodic"
    chosen = chosen and not interactive and participation != "periodic"
    study = make_study(
        rng.choice([1.0, 2.0, 4.5], parties).tolist(),
        mechanism=mechanism,
        teachers=teachers,
        account=default_accountant(MECHANISMS[mechanism], "label").name,
        participation=participation,
        rates=None if participation == "all" else rng.choice([0.25, 0.5, 1.0], parties).tolist(),
        stop=stop,
        queries=120,
        batch_limit=batch_limit,
        questions="uncertainty" if chosen else "given",
        round_one=40 if interactive else None,
        **{name: terms[name] if name in wanted else None for name in terms},
    )
    stored = CastVotes(10, votes)
    how = {"train": quarter_probabilities if interactive else None, "choose": by_labels if chosen else None}
    live = live_study(study, stored, seed=seed, dropout=dropout, **how)
    replayed = label_seed(study, stored, seed=seed, dropout=dropout, truth=None, **how)
    check_live(live, replayed.labelling)
    assert live.batches == replayed.labelling.batches
    assert live.stop.reason == replayed.labelling.stop.reason
    assert (replayed.spent_after <= study.budgets.cap).all()
    sizes = [size for size, _ in live.batches]
    assert np.bincount(live.batch_of[live.batch_of >= 0], minlength=len(sizes)).tolist() == sizes
    if not chosen:
        assert live.batch_of[: sum(sizes)].tolist() == np.repeat(np.arange(len(sizes)), sizes).tolist()
    reinforced = live.reinforced >= 0
    assert not (reinforced & (live.labels != ABSTAIN)).any()
    if interactive and (live.labels[40:] == ABSTAIN).sum() > 20:
        assert reinforced[40:].any()
        assert not reinforced[:40].any()


def noise(seed: int = 0):
    return simulated(simulation_rng(seed, "noise"))


def test_counts_and_class_ids_replay_alike():
    votes, _ = make_votes(40, 300)
    counts = np.stack([(votes[:, 0] == c).sum(axis=0) for c in range(10)], axis=1).astype(float)
    study = make_study([2.0] * 40, sigma=10.0, sigma_threshold=12.0, threshold=25.0, queries=300)
    by_id = replay(study, CastVotes(10, votes), noise=one_stream(noise()), presence=None).labelling
    by_count = replay(study, VoteCounts(10, counts), noise=one_stream(noise()), presence=None).labelling
    np.testing.assert_array_equal(by_id.labels, by_count.labels)
    assert (by_id.labels >= 0).any()


def test_many_distinct_weights_take_the_path_by_party_and_agree(monkeypatch):
    votes, _ = make_votes(90, 200)
    study = make_study(
        np.linspace(1, 4, 90).tolist(), rule="exhaustive", sigma=15.0, sigma_threshold=40.0, threshold=60.0, queries=200
    )
    by_party = replay(study, CastVotes(10, votes), noise=one_stream(noise()), presence=None).labelling
    monkeypatch.setattr("protocols.labelling.stored_votes._GROUPS", 90)
    by_group = replay(study, CastVotes(10, votes), noise=one_stream(noise()), presence=None).labelling
    np.testing.assert_array_equal(by_party.labels, by_group.labels)
    np.testing.assert_array_equal(by_party.spent, by_group.spent)


def test_a_party_that_is_absent_is_not_charged():
    votes, _ = make_votes(20, 200)
    study = make_study([2.0] * 20, sigma=8.0, sigma_threshold=8.0, threshold=10.0, queries=200)

    def present(number):
        return np.arange(20) != 7

    result = replay(study, CastVotes(10, votes), noise=one_stream(noise()), presence=present).labelling
    assert result.spent[7] == 0
    assert (np.delete(result.spent, 7) > 0).all()


def test_votes_that_do_not_fit_the_study_are_refused():
    votes, _ = make_votes(20, 200)
    study = make_study([2.0] * 20, sigma=8.0, sigma_threshold=8.0, threshold=10.0, queries=200)
    counts = np.full((200, 10), 2.0)
    for stored, presence, reason in (
        (CastVotes(9, votes), None, "9 classes; the study has 10"),
        (CastVotes(10, votes[:19]), None, r"allowed: \(20, 1\)"),
        (CastVotes(10, np.concatenate([votes, votes], axis=2)), None, "at most 200"),
        (VoteCounts(10, counts), dropout_presence(20, rate=0.5, seed=0), "none can drop out"),
    ):
        with pytest.raises(InvalidInput, match=reason):
            replay(study, stored, noise=one_stream(noise()), presence=presence)
    uneven = make_study([1.0, 2.0], rule="proportional", sigma=2.0, sigma_threshold=2.0, threshold=1.0, queries=200)
    with refuses(InvalidInput, "weights", "uniform"):
        replay(uneven, VoteCounts(10, np.full((200, 10), 0.2)), noise=one_stream(noise()), presence=None)
    dropping = make_study([1.0, 2.0], stop="drop-exhausted", sigma=2.0, sigma_threshold=2.0, threshold=1.0, queries=200)
    with pytest.raises(InvalidInput, match="none can drop out"):
        replay(dropping, VoteCounts(10, np.full((200, 10), 0.2)), noise=one_stream(noise()), presence=None)


def test_a_quorum_that_is_not_reached_ends_the_replay():
    votes, _ = make_votes(20, 200)
    study = make_study([2.0] * 20, sigma=8.0, sigma_threshold=8.0, threshold=10.0, queries=200, quorum=15)
    stored = CastVotes(10, votes)
    result = replay(study, stored, noise=one_stream(noise()), presence=lambda n: np.arange(20) < (20 if n == 0 else 14))
    labelling = result.labelling
    assert labelling.stop.reason == "quorum_lost"
    assert len(labelling.batches) == 1
    # The second batch's reservations stand; nothing of it was released.
    assert (labelling.spent > result.spent_after[-1]).all()
    assert (labelling.spent <= study.budgets.cap).all()


@pytest.mark.parametrize(("level", "view"), [("clear", "label"), ("secure_sum", "histogram"), ("two_server", "label")])
def test_three_ways_to_vote_on_findings_are_the_same_live_and_replayed(subtests, tmp_path, level, view):
    rng = np.random.default_rng(5)
    said = (rng.random((24, 1, 40, 4)) < rng.beta(0.2, 0.3, (40, 4))).astype(np.int64)
    said[0, 0, :, 2] = -1  # a hospital that does not record it
    truth = (said == 1).mean(axis=(0, 1)) > 0.5
    ways = {"thresholded_gnmax": (Binary(4), Powerset.occurring(truth.astype(np.int64))), "tau": (Tau(4),)}
    for mechanism, way in ((name, way) for name, several in ways.items() for way in several):
        with subtests.test(way.by):
            settings = experiment(
                parties=24, budgets="12:0.5,14:0.5", mechanism=mechanism, confidentiality=level, view=view, sigma=4.0,
                threshold=12.0,
            )  # fmt: skip
            study = partial(
                simulated_study, settings, experiment_budgets(settings), classes=way.classes, queries=40 * way.rows,
                asks=way, findings=("a", "b", "c", "d"),
            )  # fmt: skip
            if (level, mechanism) == ("two_server", "tau"):
                with pytest.raises(InvalidInput, match="one noisy histogram"):
                    study()
                continue
            study = study()
            (tmp_path / "study.toml").write_text(write_study(study))
            assert read_study(tmp_path / "study.toml") == study
            stored = CastVotes(way.classes, way.votes(said), asks=way)
            replayed = label_seed(study, stored, seed=3, dropout=0.0, truth=None)
            check_live(live_study(study, stored, seed=3, dropout=0.0), replayed.labelling)
            assert (replayed.spent_after <= study.budgets.cap).all()
            found = way.folded(replayed.labelling.labels)
            assert found.shape == (40, 4)
            assert (found == truth)[found >= 0].mean() > 0.8
