import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.errors import InvalidInput
from protocols.votes import ABSTAIN, LATTICE, check_votes, count_votes
from tests.harness.refusals import refuses


@given(
    parties=st.integers(1, 12),
    teachers=st.integers(1, 3),
    queries=st.integers(1, 9),
    classes=st.integers(2, 6),
    seed=st.integers(0, 2**32 - 1),
)
def test_counts_agree_with_adding_one_vote_at_a_time(parties, teachers, queries, classes, seed):
    rng = np.random.default_rng(seed)
    votes = rng.integers(ABSTAIN, classes, (parties, teachers, queries))
    weights = rng.integers(0, 5 * LATTICE, parties) / LATTICE
    expected = np.zeros((queries, classes))
    for p in range(parties):
        for t in range(teachers):
            for q in range(queries):
                if votes[p, t, q] != ABSTAIN:
                    expected[q, votes[p, t, q]] += weights[p]
    # Weights on the lattice add exactly, so equality is exact whatever the order.
    np.testing.assert_array_equal(count_votes(votes, weights, classes=classes), expected)
    order = rng.permutation(parties)
    np.testing.assert_array_equal(count_votes(votes[order], weights[order], classes=classes), expected)


@pytest.mark.parametrize("bad", [-2, 10])
def test_a_vote_outside_the_classes_is_refused_with_the_allowed_range(bad):
    with refuses(InvalidInput, "[0, 9]"):
        check_votes(np.array([[[0, bad]]]), classes=10)
