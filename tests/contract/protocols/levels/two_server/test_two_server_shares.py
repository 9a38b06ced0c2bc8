"""Shares of votes: they add up to one-hot vectors, say nothing alone, and are checked before they are used."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.crypto.field import P, cubic_times, plus, times
from protocols.errors import InvalidInput, MalformedMessage
from protocols.levels.two_server.one_time_masks import INPUT_REPETITIONS
from protocols.levels.two_server.shares import (
    REPETITIONS,
    CoordinatorShare,
    GuardianShare,
    check_coordinator_share,
    check_guardian_share,
    coordinator_blinds,
    guardian_blinds,
    guardian_determined,
    guardian_votes,
    share_votes,
    vote_keys,
)
from tests.harness.refusals import refuses
from tests.harness.seeded import seeded_source

VOTES = np.array([[0, 2, -1, 1], [2, 2, 0, -1]])


def shared(votes=VOTES, classes=3, context=b"batch", seed=1):
    return share_votes(votes, classes=classes, context=context, source=seeded_source(seed))


@given(seed=st.integers(0, 2**32), voters=st.integers(0, 4), queries=st.integers(0, 5), classes=st.integers(2, 7))
def test_shares_add_up_to_one_hot_vectors_their_keyed_copies_and_a_polynomial_of_the_key(
    seed, voters, queries, classes
) -> None:
    votes = np.random.default_rng(seed).integers(-1, classes, (voters, queries))
    coordinator, guardian = shared(votes, classes, seed=seed)
    sizes = {"queries": queries, "context": b"batch"}
    masks = guardian_votes(guardian.seeds, classes=classes, **sizes)
    other = guardian_determined(guardian.seeds, classes=classes, **sizes)
    mine, theirs = coordinator_blinds(coordinator.seeds, **sizes), guardian_blinds(guardian.seeds, **sizes)
    one_hot = votes[:, :, None] == np.arange(classes)
    np.testing.assert_array_equal(plus(coordinator.votes, masks), one_hot)
    keys = vote_keys(coordinator, guardian, **sizes)
    np.testing.assert_array_equal(plus(coordinator.keyed, other.keyed), one_hot[:, None] * keys[..., None])
    # Z^2 + A Z + B at Z = s + a is s^2 + k s, here for s = 7.
    a, slopes = plus(mine.points, theirs.points), plus(mine.slopes, theirs.slopes)
    z, constants = plus(a, np.uint32([7])), plus(coordinator.constants, other.constants)
    value = plus(plus(times(z, z), times(slopes, z)), constants)
    np.testing.assert_array_equal(value, plus(times(keys, np.uint32([7])), np.uint32([49])))
    first, second = plus(mine.factors, theirs.factors)
    np.testing.assert_array_equal(plus(coordinator.products, other.products), cubic_times(first, second))


def test_shares_have_the_size_that_the_design_says() -> None:
    coordinator, guardian = shared(np.zeros((1, 1000), dtype=np.int64), 10)
    assert (
        sum(array.nbytes for array in coordinator.arrays())
        == 4 * (1000 * (10 + 11 * REPETITIONS + 2 * INPUT_REPETITIONS) + REPETITIONS) + 16
    )
    assert sum(array.nbytes for array in guardian.arrays()) == 16


def everything(seeds, context=b"batch"):
    """All that the guardian expands, and what a coordinator would from the same seed: the first axis is the voters."""
    sizes = {"queries": 4, "context": context}
    determined = guardian_determined(seeds, classes=3, **sizes)
    blinds = guardian_blinds(seeds, **sizes), coordinator_blinds(seeds, **sizes)
    arrays = [guardian_votes(seeds, classes=3, **sizes), determined.keyed, determined.constants, determined.products]
    return arrays + [
        each for b in blinds for each in (b.points, b.slopes, np.ascontiguousarray(b.factors.transpose(1, 0, 2)))
    ]


@pytest.mark.parametrize("bit", range(0, 128, 9))
def test_flipping_any_bit_of_a_seed_changes_the_whole_share(bit) -> None:
    _, guardian = shared()
    flipped = guardian.seeds.copy()
    flipped[0, bit // 8] ^= 1 << (bit % 8)
    for before, after in zip(everything(guardian.seeds), everything(flipped), strict=True):
        # Two uniform elements agree with probability 2^-31.
        assert (before[0] != after[0]).all()
        assert (before[1] == after[1]).all()


def test_a_seed_opens_nothing_in_another_batch_and_no_number_serves_two_purposes() -> None:
    _, guardian = shared()
    here, there = (everything(guardian.seeds, context) for context in (b"batch", b"batcg"))
    assert all((one != other).all() for one, other in zip(here, there, strict=True))
    numbers = np.concatenate([each.reshape(-1) for each in here])
    assert len(np.unique(numbers)) == len(numbers)


def test_values_of_secrets_are_in_no_text() -> None:
    for share in shared():
        assert repr(share) in ("CoordinatorShare()", "GuardianShare()")


def test_what_arrives_is_what_was_sent() -> None:
    coordinator, guardian = shared()
    arrived = check_coordinator_share(coordinator.arrays(), voters=2, queries=4, classes=3)
    for mine, theirs in zip(arrived.arrays(), coordinator.arrays(), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_array_equal(check_guardian_share(guardian.arrays(), voters=2).seeds, guardian.seeds)


def test_shares_of_several_parties_follow_each_other() -> None:
    (one, one_seed), (two, two_seed) = shared(seed=1), shared(seed=2)
    both = CoordinatorShare.of_all([one, two])
    np.testing.assert_array_equal(both.votes[2:], two.votes)
    np.testing.assert_array_equal(both.keyed[:2], one.keyed)
    np.testing.assert_array_equal(GuardianShare.of_all([one_seed, two_seed]).seeds[2:], two_seed.seeds)
    for kind in (CoordinatorShare, GuardianShare):
        with refuses(InvalidInput, "0 shares"):
            kind.of_all([])


def altered(position, change):
    arrays = list(shared()[0].arrays())
    arrays[position] = change(arrays[position])
    return tuple(arrays)


def too_large(array):
    array = array.copy()
    array.flat[1] = P
    return array


@pytest.mark.parametrize(
    ("arrays", "named"),
    [
        (altered(0, lambda a: a[:, :-1]), "votes: shape"),
        (altered(0, lambda a: a.astype("<u8")), "votes: dtype"),
        (altered(0, lambda a: a.astype("<i4")), "votes: dtype"),
        (altered(0, lambda a: a[..., None]), "votes: shape"),
        (altered(0, too_large), "field element is out of range"),
        (altered(1, lambda a: a[:, :, :-1]), "keyed votes: shape"),
        (altered(1, too_large), "field element is out of range"),
        (altered(2, lambda a: a[:, :-1]), "constants: shape"),
        (altered(2, too_large), "field element is out of range"),
        (altered(3, lambda a: a[:, :-1]), "products: shape"),
        (altered(3, too_large), "field element is out of range"),
        (altered(4, lambda a: a[:, :1]), "keyed masks: shape"),
        (altered(4, too_large), "field element is out of range"),
        (altered(5, lambda a: a[:, :-1]), "seeds: shape"),
        (altered(5, lambda a: a[:0]), "seeds: shape"),
        (altered(5, lambda a: a.astype("<u2")), "seeds: dtype"),
        (shared()[0].arrays()[:2], "2 arrays"),
        ((), "0 arrays"),
    ],
)
def test_a_malformed_share_is_refused(arrays, named) -> None:
    with pytest.raises(MalformedMessage, match=named):
        check_coordinator_share(arrays, voters=2, queries=4, classes=3)


@pytest.mark.parametrize("arrays", [(), (np.zeros((2, 15), "u1"),), (np.zeros((2, 16), "<f4"),), (np.zeros(32, "u1"),)])
def test_a_malformed_seed_is_refused(arrays) -> None:
    with pytest.raises(MalformedMessage, match=r"arrays|shape|dtype"):
        check_guardian_share(arrays, voters=2)


@pytest.mark.parametrize(("votes", "classes"), [([[3]], 3), ([[-2]], 3), ([[0]], 1), ([[0]], 10_001)])
def test_votes_outside_their_range_are_refused_without_being_told(votes, classes) -> None:
    with refuses(InvalidInput, "allowed"):
        shared(np.array(votes), classes)
