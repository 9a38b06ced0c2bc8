"""Votes of private models in fixed point: what plain integer arithmetic gives, and the protocol itself."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from party.teachers import teacher_kind
from party.teachers.teacher import PRIVATE
from protocols.levels.hidden_queries.dealing import precision
from protocols.levels.hidden_queries.inference.architecture import Precision
from protocols.levels.hidden_queries.inference.model import plain_inference, quantise
from simulations.stages.cast import fixed_point_votes
from tests.harness.inference_parties import cnn, linear_model, mlp, private_votes

SIDE, CLASSES = 9, 5


def images(seed, *, rows, seen):
    """Images whose class is a bright row, of some classes only."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(seen, size=rows)
    inputs = 0.3 * rng.random((rows, SIDE, SIDE))
    inputs[np.arange(rows), labels] += 0.6
    return inputs.astype(np.float32), labels.astype(np.int64)


@pytest.mark.parametrize("kind", PRIVATE)
def test_private_inference_itself_gives_these_votes_bit_for_bit(kind):
    shard = images(0, rows=60, seen=[0, 1, 2, 4])
    teacher = teacher_kind(kind, device="cpu").fit([shard], classes=CLASSES, seeds=[0])[0]
    model = quantise(teacher.private_model(classes=CLASSES), precision(1.0))
    queries, _ = images(3, rows=6, seen=[0, 1, 2, 3, 4])
    votes = np.eye(CLASSES, dtype=np.int64)[fixed_point_votes(model, queries)]
    assert np.array_equal(private_votes(model, queries, 5), votes)


@given(st.integers(0, 2**32 - 1), st.sampled_from([linear_model, mlp, cnn]))
@settings(max_examples=30, deadline=None)
def test_votes_in_fixed_point_are_those_of_plain_integer_arithmetic(seed, build):
    """With few bits, so that ties and rounding are common."""
    rng = np.random.default_rng(seed)
    plain = build(rng)
    model = quantise(plain, Precision(input_bits=3, weight_bits=4))
    inputs = rng.uniform(-1, 1, (20, *plain.input_shape))
    assert np.array_equal(fixed_point_votes(model, inputs), plain_inference(model, inputs))
