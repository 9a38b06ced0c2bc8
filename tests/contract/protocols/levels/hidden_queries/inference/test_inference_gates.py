"""The gates on their own: signs, ReLU and votes on shares, against plain arithmetic at every edge."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.crypto.prg import Stream
from protocols.levels.hidden_queries.inference import comparison
from protocols.levels.hidden_queries.inference.comparison import Digits, ReLUGate, ReLUSide, corrections, drawn, joined
from protocols.levels.hidden_queries.inference.vote import Vote, VoteGate


def dealt(gate, key):
    """((free, derived) of the leading party, the same of the other)."""
    first, second = (Stream(bytes([role, key % 256, key // 256 % 256]) + bytes(13)) for role in (1, 2))
    free = drawn(first, gate.free), drawn(second, gate.free)
    share = drawn(first, gate.derived)
    return (free[0], share), (free[1], corrections(gate.derived, gate.secrets(joined(gate.free, *free)), share))


def shared(values, seed):
    share = np.random.default_rng(seed).integers(0, 2**32, values.shape, dtype=np.uint32)
    return share, values.astype(np.uint32) - share


def relu_of(values, bits, shift, key):
    gate = ReLUGate(len(values), shift, Digits.of(bits, shift))
    left, right = (
        ReLUSide(gate, *material, leads=leads) for material, leads in zip(dealt(gate, key), (True, False), strict=True)
    )
    a, b = (side.masked(share) for side, share in zip((left, right), shared(values, key), strict=True))
    a, b = left.lookups(a, b), right.lookups(b, a)
    a, b = left.bits(a, b), right.bits(b, a)
    return left.output(a, b) + right.output(b, a)


def edges(bits, shift):
    half = 1 << (bits - 1)
    around = [0, 1 << shift, half - (1 << shift >> 1), -half]
    near = np.array([value + step for value in around for step in range(-3, 4)], dtype=np.int64)
    return near[(near >= -half) & (near + (1 << shift >> 1) < half)]


@pytest.mark.parametrize(("bits", "shift"), [(32, 0), (32, 16), (31, 12), (25, 12), (24, 1), (8, 6), (9, 1), (16, 7)])
def test_relu_rounds_exactly_at_every_edge_and_in_between(bits, shift) -> None:
    rng = np.random.default_rng(bits)
    half = 1 << (bits - 1)
    values = np.concatenate([edges(bits, shift), rng.integers(-half, half - (1 << shift >> 1), 500)])
    for key in range(5):
        expected = np.maximum(values + (1 << shift >> 1), 0) >> shift
        assert (relu_of(values, bits, shift, key) == expected.astype(np.uint32)).all()


def test_relu_is_exact_for_every_mask_of_a_small_ring() -> None:
    """All 256 masks times all 256 values, 8 bits: exhaustive, with digits of 3 and 4 bits."""
    digits = Digits.of(8, 3)
    masks, values = (grid.reshape(-1) for grid in np.meshgrid(np.arange(256), np.arange(256)))
    tables = comparison.tables(digits, masks.astype(np.uint32))
    masked = ((masks + values) % 256).astype(np.uint32)
    ones = np.zeros((digits.lookups, -(-len(masks) // 8)), np.uint8)
    lookups = comparison.looked_up(digits, tables, masked)
    borrow, low = comparison.borrow_bits(digits, comparison.products(digits, ones, 255), lookups)
    negative = np.unpackbits(borrow).astype(np.uint8) ^ digits.top_bits(masked)
    assert (negative == (values >= 128)).all()
    assert (np.unpackbits(low) == (masked % 8 < masks % 8)).all()


def votes_of(scores, bits, key):
    gate = VoteGate(*scores.shape, Digits.of(bits, 0))
    left, right = (
        Vote(gate, *material, leads=leads) for material, leads in zip(dealt(gate, key), (True, False), strict=True)
    )
    a, b = (side.masked(share) for side, share in zip((left, right), shared(scores, key), strict=True))
    a, b = left.lookups(a, b), right.lookups(b, a)
    a, b = left.wins(a, b), right.wins(b, a)
    return np.eye(256, dtype=np.uint8)[gate.modulo(left.index(a, b) + right.index(b, a))][:, : gate.classes]


@given(
    classes=st.integers(2, 17), queries=st.integers(1, 9), bits=st.integers(8, 32), seed=st.integers(0, 2**32),
    spread=st.sampled_from([1, 2, 30]),
)  # fmt: skip
@settings(max_examples=25)
def test_the_vote_is_one_hot_at_the_first_maximum(classes, queries, bits, seed, spread) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(-spread, spread + 1, (queries, classes))
    assert (votes_of(scores, bits, seed) == np.eye(classes)[scores.argmax(axis=1)]).all()


def test_the_vote_is_right_when_differences_fill_the_ring() -> None:
    scores = np.array([[0, 2**30 - 1, 5], [2**30 - 1, 0, 2**30 - 2], [-(2**29), 2**29 - 1, 2**29 - 1]])
    assert (votes_of(scores, 31, 7) == np.eye(3)[[1, 0, 1]]).all()


def test_many_classes_get_one_vote_with_ties_to_the_lowest() -> None:
    scores = np.random.default_rng(3).integers(0, 40, (3, 256))
    scores[2] = 9
    assert (votes_of(scores, 16, 5) == np.eye(256)[scores.argmax(axis=1)]).all()
