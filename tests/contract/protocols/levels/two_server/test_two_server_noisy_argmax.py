"""Labels of the two servers are those of plain integers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.crypto.channel import pair
from protocols.crypto.garbling import conjunctions_a_query
from protocols.errors import InvalidInput, MalformedMessage
from protocols.votes import ABSTAIN
from tests.harness.refusals import refuses
from tests.harness.seeded import seeded_source
from tests.harness.two_server_sides import (
    Transcribed,
    converse,
    coordinator_side,
    guardian_side,
    labels_of,
    unbuffered_pair,
)


def expected(counts, noise, threshold):
    noisy = counts + noise.sum(axis=0)
    if threshold is None:
        return noisy.argmax(axis=1)
    return np.where((noisy >= threshold).any(axis=1), noisy.argmax(axis=1), ABSTAIN)


@given(
    seed=st.integers(0, 2**32), queries=st.integers(0, 9), classes=st.integers(2, 13),
    total=st.sampled_from([1, 3, 64, 16_000, 10**6, 2**28]), sigma=st.sampled_from([1, 70, 9_000, 10**6]),
    threshold=st.sampled_from([None, 0.3, 0.95, 1.2]),
)  # fmt: skip
@settings(max_examples=6)
def test_labels_and_passes_are_those_of_the_integers(seed, queries, classes, total, sigma, threshold) -> None:
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, total + 1, (queries, classes))
    noise = np.rint(rng.normal(0, sigma, (2, queries, classes))).astype(np.int64)
    case = (counts, noise, None if threshold is None else int(total * threshold))
    labels, known = labels_of(*case, total_units=total, seed=seed)
    plain = expected(*case)
    np.testing.assert_array_equal(labels, plain)
    np.testing.assert_array_equal(known, plain)


def test_a_tie_goes_to_the_lowest_class() -> None:
    counts = np.array([[5, 5, 5, 5, 5], [1, 7, 7, 0, 7], [0, 0, 0, 9, 9], [-3, -4, -3, -9, -3]])
    zero = np.zeros((2, 4, 5), dtype=np.int64)
    labels, known = labels_of(counts, zero, None, total_units=9)
    np.testing.assert_array_equal(labels, [0, 1, 3, 0])
    np.testing.assert_array_equal(known, labels)


def test_a_noisy_winner_that_meets_the_threshold_exactly_passes() -> None:
    counts = np.array([[10, 2, 9], [9, 9, 9], [3, 10, 0], [0, 0, 11]])
    noise = np.array([[[-1, 0, 0], [0, 0, 0], [0, 0, 8], [0, 0, -1]], [[0, 0, 1], [0, 0, 0], [0, 0, 4], [0, 0, -1]]])
    labels, known = labels_of(counts, noise, 10, total_units=30)
    np.testing.assert_array_equal(known >= 0, [True, False, True, False])
    np.testing.assert_array_equal(labels, [2, ABSTAIN, 2, ABSTAIN])


def test_comparisons_hold_up_to_the_ends_of_the_ring() -> None:
    """With a total of M the argmax holds for counts from M/2 - 2^29 to M/2 + 2^29 - 1."""
    total, zero = 2**20, np.zeros((2, 4, 3), dtype=np.int64)
    low, high = total // 2 - 2**29, total // 2 + 2**29 - 1
    counts = np.array([[low, high, low], [low, low + 1, low], [high - 1, high - 1, high], [low, low, low]])
    np.testing.assert_array_equal(labels_of(counts, zero, None, total_units=total)[0], [1, 1, 2, 0])
    # A winner that is tested may be 2^29 below its threshold, and 2^29 - 1 above.
    far = np.array([[0, -(2**29), -(2**29)], [-1, -(2**29), -1], [2**29 - 1, 0, -(2**29)], [-(2**29)] * 3])
    for level in (0, 100):
        labels, known = labels_of(far + level, zero, level, total_units=total)
        np.testing.assert_array_equal(known >= 0, [True, False, True, False])
        np.testing.assert_array_equal(labels, [0, ABSTAIN, 0, ABSTAIN])


def test_more_queries_than_a_chunk_holds_give_the_same_labels(monkeypatch) -> None:
    monkeypatch.setattr("protocols.levels.two_server.circuit_inputs._CHUNK_CELLS", 12)
    rng = np.random.default_rng(3)
    counts, noise = rng.integers(0, 50, (7, 4)), rng.integers(-9, 9, (2, 7, 4))
    labels, known = labels_of(counts, noise, 40, total_units=100)
    plain = expected(counts, noise, 40)
    np.testing.assert_array_equal(labels, plain)
    np.testing.assert_array_equal(known, plain)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("threshold", [None, 10])
def test_each_server_sends_two_ciphertexts_a_gate_and_one_row_an_input_bit(threshold, masked) -> None:
    """And eight bytes an input bit for its macs."""
    queries, classes = 8, 3
    zero = np.zeros((2, queries, classes), dtype=np.int64)
    ends = pair()
    converse(
        lambda channel: coordinator_side(
            channel, zero[0].astype(np.uint32), noise=zero[0], threshold=threshold,
            total_units=1, masked=masked, source=seeded_source(1),
        ),
        lambda channel: guardian_side(
            channel, zero[1].astype(np.uint32), noise=zero[1],
            threshold=threshold, total_units=1, masked=masked, source=seeded_source(2),
        ),
        channels=ends,
    )  # fmt: skip
    bits = 31 * classes * queries
    tables = 32 * conjunctions_a_query(classes=classes, threshold=threshold is not None) * queries
    outputs = 2 if threshold is None else 3
    macs = 2 * 4 * bits
    both = 32 + 32 + 2 * 128 * 32 + 16 + 16 + 129 * 16 + 16 + macs + tables + outputs * queries // 8 + 32 + 32
    assert ends[0].sent == both + rows(bits + (2 * queries if masked else 0)) + len(b"evaluated")
    assert ends[1].sent == both + rows(bits) + 32


def rows(bits):
    """A column of a matrix for 128 transfers at a time, and for 128 random bits more."""
    return 128 * 16 * (-(-bits // 128) + 1)


def test_a_retry_with_other_randomness_gives_the_same_labels() -> None:
    rng = np.random.default_rng(4)
    case = (rng.integers(0, 50, (20, 3)), rng.integers(-9, 9, (2, 20, 3)), 30)
    first, second = (labels_of(*case, total_units=100, seed=seed) for seed in (1, 2))
    np.testing.assert_array_equal(first[0], second[0])
    np.testing.assert_array_equal(first[1], second[1])


def test_the_same_sources_give_the_same_messages() -> None:
    rng = np.random.default_rng(4)
    case = (rng.integers(0, 50, (4, 3)), rng.integers(-9, 9, (2, 4, 3)), 30)
    transcripts = []
    for seed in (1, 1, 2):
        ends = [Transcribed(end) for end in pair()]
        labels_of(*case, total_units=100, seed=seed, channels=ends)
        transcripts.append([end.sent for end in ends])
    assert transcripts[0] == transcripts[1] != transcripts[2]


def test_a_channel_without_buffers_cannot_lock() -> None:
    rng = np.random.default_rng(4)
    case = (rng.integers(0, 50, (5, 3)), rng.integers(-9, 9, (2, 5, 3)), 30)
    labels, known = labels_of(*case, total_units=100, channels=unbuffered_pair())
    plain = expected(*case)
    np.testing.assert_array_equal(labels, plain)
    np.testing.assert_array_equal(known, plain)


def test_servers_that_differ_in_their_study_stop_before_any_input_is_sent() -> None:
    counts, noise = np.zeros((3, 4), dtype=np.uint32), np.zeros((3, 4), dtype=np.int64)
    with refuses(MalformedMessage, "servers"):
        converse(
            lambda channel: coordinator_side(
                channel, counts, noise=noise, threshold=None, total_units=1, source=seeded_source(1),
            ),
            lambda channel: guardian_side(
                channel, counts, noise=noise, threshold=1, total_units=1, source=seeded_source(2),
            ),
        )  # fmt: skip


@pytest.mark.parametrize("total", [-1, 2**30])
def test_a_total_outside_its_range_is_refused_before_anything_is_sent(total) -> None:
    end, _ = pair(wait_s=0.1)
    with refuses(InvalidInput, "total_units", total):
        coordinator_side(
            end, np.zeros((2, 3), dtype=np.uint32), noise=np.zeros((2, 3), dtype=np.int64), threshold=1,
            total_units=total, source=seeded_source(1),
        )  # fmt: skip
    assert end.sent == 0
