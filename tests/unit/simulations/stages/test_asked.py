"""The votes behind what was asked, reconstructed, are those that were added up."""

import numpy as np
import pytest

from protocols.errors import InvalidInput
from protocols.labelling.stored_votes import CastVotes
from protocols.study.study import Study
from protocols.votes import ABSTAIN
from simulations.stages.asked_votes import AskedVotes
from simulations.stages.label import label_seed
from tests.harness.refusals import refuses
from tests.harness.studies import make_study, make_votes
from tests.numerics.protocols.labelling.test_replay import quarter_probabilities

INTERACTIVE = {
    "mechanism": "interactive_gnmax",
    "interactive_threshold": 6.0,
    "reinforce_confidence": 0.9,
    "round_one": 9,
}


@pytest.mark.parametrize(
    ("settings", "dropout"),
    [
        ({}, 0.0),
        ({}, 0.4),
        ({"stop": "drop-exhausted"}, 0.0),
        ({"teachers": 2}, 0.0),
        (INTERACTIVE, 0.0),
        ({"participation": "periodic", "rates": [0.5, 1.0, 0.25] * 4}, 0.2),
    ],
)
def test_histograms_and_who_entered_are_those_that_the_mechanism_saw(monkeypatch, settings, dropout):
    teachers = settings.get("teachers", 1)
    votes, _ = make_votes(12, 60, teachers=teachers, seed=3)
    study = make_study(
        [6.0, 8.0, 10.0] * 4,
        sigma=9.0 * teachers,
        sigma_threshold=15.0 * teachers,
        threshold=7.0,
        queries=60,
        batch_limit=7,
        **settings,
    )
    stored, seen = CastVotes(10, votes), []
    released = Study.released

    def recorded(self, counts, noise, *, predictions):
        labels, cells = released(self, counts, noise, predictions=predictions)
        seen.append((counts, predictions, labels))
        return labels, cells

    monkeypatch.setattr(Study, "released", recorded)
    result = label_seed(study, stored, seed=5, dropout=dropout, truth=None, train=quarter_probabilities)
    predictions = quarter_probabilities(result.labelling.labels)
    asked = AskedVotes(study, stored, result, predictions)
    counts, labels = (np.concatenate([row[i] for row in seen]) for i in (0, 2))
    assert len(counts) > 9
    np.testing.assert_array_equal(asked.counts, counts)
    np.testing.assert_array_equal(asked.answered, labels != ABSTAIN)
    # Whoever entered adds its weight for every teacher.
    np.testing.assert_allclose(counts.sum(axis=1), teachers * study.weights @ asked.entering, rtol=1e-12)
    if dropout:
        assert not asked.entering.all()
    if study.mechanism.interactive:
        first = len(seen[0][0]) + len(seen[1][0])
        assert first == 9
        later = counts[9:] - study.nominal_weight * predictions[9 : len(counts)]
        evidence = asked.evidence
        # One threshold serves both rounds: what is above round two's is as far above round one's.
        np.testing.assert_allclose(evidence.top[9:] - 7.0, later.max(axis=1) - 6.0, atol=1e-9)
        np.testing.assert_allclose(evidence.top[:9], counts[:9].max(axis=1), atol=1e-9)


def test_units_know_their_own_votes_where_each_has_one():
    votes, _ = make_votes(12, 30, teachers=1, seed=4)
    study = make_study([4.0] * 12, sigma=6.0, sigma_threshold=10.0, threshold=7.0, queries=30)
    result = label_seed(study, CastVotes(10, votes), seed=1, dropout=0.5, truth=None)
    units = AskedVotes(study, CastVotes(10, votes), result).units
    shown = votes[:, 0, : units.present.shape[1]]
    np.testing.assert_array_equal(units.own_votes, np.where(units.present, shown, ABSTAIN))
    assert (units.sensitivity == study.weights).all()


@pytest.mark.parametrize("teachers", [1, 2])
def test_a_vote_for_no_class_is_noticed_where_it_entered_and_nowhere_else(teachers):
    votes, _ = make_votes(12, 30, teachers=teachers, seed=4)
    study = make_study(
        [4.0] * 6 + [5.0] * 6, rule="proportional", sigma=6.0 * teachers, sigma_threshold=10.0 * teachers,
        threshold=7.0, queries=30, teachers=teachers, batch_limit=3,
    )  # fmt: skip
    result = label_seed(study, CastVotes(10, votes), seed=1, dropout=0.4, truth=None)
    entering = AskedVotes(study, CastVotes(10, votes), result).entering
    assert 0 < entering.sum() < entering.size
    absent, present = votes.copy(), votes.copy()
    absent[(*np.argwhere(~entering)[0][:1], 0, *np.argwhere(~entering)[0][1:])] = ABSTAIN
    present[(*np.argwhere(entering)[0][:1], teachers - 1, *np.argwhere(entering)[0][1:])] = ABSTAIN
    for cast, noticed in ((votes, False), (absent, False), (present, True)):
        assert AskedVotes(study, CastVotes(10, cast), result).evidence.abstentions is noticed


def test_secret_coins_hide_who_voted():
    votes, _ = make_votes(12, 30, teachers=1, seed=4)
    study = make_study(
        [4.0] * 12, sigma=6.0, sigma_threshold=10.0, threshold=7.0, queries=30, participation="secret", rates=[0.5] * 12
    )
    stored = CastVotes(10, votes)
    result = label_seed(study, stored, seed=1, dropout=0.0, truth=None)
    with refuses(InvalidInput, "secret"):
        AskedVotes(study, stored, result)
