"""Questions that are chosen between batches by what a student of the labels so far doubts."""

import numpy as np
import pytest

from coordinator.queries.questions import UncertainFirst, by_uncertainty, in_order
from protocols.errors import InvalidInput
from protocols.votes import ABSTAIN, NOT_ASKED
from tests.harness.refusals import refuses

RNG = np.random.default_rng(5)
# One class in a cloud by itself, and fewer records of two classes that touch.
POOL = np.concatenate([RNG.normal(size=(240, 2)) - [6, 0], RNG.uniform(-2, 2, size=(60, 2))]).astype(np.float32)
POOL = POOL[RNG.permutation(300)]
TRUTH = np.where(POOL[:, 0] < -3, 0, 1 + (2 * POOL[:, 1] > POOL[:, 0]))


def asked(choose, batches: int, size: int, answer=TRUTH) -> list[np.ndarray]:
    """The questions of each batch, all of them answered."""
    labels, chosen = np.full(len(answer), NOT_ASKED), []
    for _ in range(batches):
        chosen.append(np.asarray(choose(labels, np.flatnonzero(labels == NOT_ASKED), size)))
        labels[chosen[-1]] = answer[chosen[-1]]
    return chosen


def test_the_first_batch_is_that_of_coverage_and_so_are_all_without_labels_of_two_classes() -> None:
    everything = np.concatenate(asked(by_uncertainty(POOL, features="raw", seed=0), 5, 6, np.full(300, ABSTAIN)))
    np.testing.assert_array_equal(everything, in_order(POOL, "coverage", features="raw", seed=0)[:30])


def test_the_same_labels_give_the_same_questions_and_each_is_asked_once() -> None:
    first, again = (np.concatenate(asked(UncertainFirst(POOL), 10, 30)) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(np.sort(first), np.arange(300))


def apart(places: np.ndarray) -> float:
    """The distance of the two records that are closest."""
    distances = np.linalg.norm(POOL[places][:, None] - POOL[places], axis=2)
    return float(distances[np.triu_indices(len(places), 1)].min())


def test_a_batch_lies_where_the_student_doubts_and_not_in_one_place() -> None:
    choose = UncertainFirst(POOL)
    *before, last = asked(choose, 4, 8)
    labels = np.full(300, NOT_ASKED)
    labels[np.concatenate(before)] = TRUTH[np.concatenate(before)]
    doubt = choose.uncertainty(labels)
    assert ((doubt >= 0) & (doubt <= 1)).all()
    assert doubt[last].mean() > 1.2 * doubt.mean()
    assert apart(last) > 5 * apart(np.argsort(-doubt)[:8])


def test_as_many_labels_teach_more_than_those_of_a_random_order_and_of_coverage() -> None:
    """Nearest neighbours, which the choice does not use, learn from 32 labels."""

    def right(places: np.ndarray) -> float:
        nearest = np.linalg.norm(POOL[:, None] - POOL[places], axis=2).argmin(axis=1)
        return float((TRUTH[places][nearest] == TRUTH).mean())

    found = right(np.concatenate(asked(UncertainFirst(POOL), 4, 8)))
    assert found > np.mean([right(np.random.default_rng(seed).permutation(300)[:32]) for seed in range(20)]) + 0.01
    assert found > right(in_order(POOL, "coverage", features="raw", seed=0)[:32])


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_the_smallest_pools_and_those_of_equal_records_are_asked_too(rows: int) -> None:
    for pool in (POOL[:rows], np.zeros((rows, 2), np.float32)):
        truth = np.arange(rows) % 2
        assert sorted(np.concatenate(asked(UncertainFirst(pool), rows, 1, truth))) == list(range(rows))


def test_a_record_that_is_infinitely_far_from_others_is_refused() -> None:
    """Its distances are infinite in float32, and no weight or gain would be a number."""
    with refuses(InvalidInput, "1e+30"):
        UncertainFirst(np.concatenate([POOL[:40], np.full((1, 2), 1e30, np.float32)]))
