"""Teachers as models of private inference: what they say is what the teacher says, and what the protocol gives."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.float_inference import float_inference
from party.teachers import teacher_kind
from party.teachers.teacher import PRIVATE
from protocols.errors import InvalidInput
from protocols.levels.hidden_queries import dealing
from protocols.levels.hidden_queries.inference.architecture import Precision
from protocols.levels.hidden_queries.inference.model import plain_inference, quantise
from simulations.ask.votes import bounded, check_turn, fixed_point_votes, precision, private_model, quantised_model
from tests.harness.inference_parties import cnn, linear_model, mlp, private_votes

SIDE, CLASSES = 9, 5


def images(seed: int, *, rows: int, seen: list[int]):
    """Images whose class is a bright row, of some classes only."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(seen, size=rows)
    inputs = 0.3 * rng.random((rows, SIDE, SIDE))
    inputs[np.arange(rows), labels] += 0.6
    return inputs.astype(np.float32), labels.astype(np.int64)


def trained(kind: str, *, seen: list[int], seed: int = 0):
    inputs, labels = images(seed, rows=60, seen=seen)
    return teacher_kind(kind, device="cpu").fit([(inputs, labels)], classes=CLASSES, seeds=[seed])[0]


@pytest.mark.parametrize("seen", [[0, 1, 2, 3, 4], [1, 3], [4]])
@pytest.mark.parametrize("kind", PRIVATE)
def test_the_private_model_says_what_the_teacher_says_and_never_a_class_that_it_never_saw(kind, seen):
    teacher = trained(kind, seen=seen)
    queries = np.random.default_rng(1).random((200, SIDE, SIDE)).astype(np.float32)
    said = teacher.predict(queries)
    assert np.array_equal(float_inference(private_model(kind, teacher, classes=CLASSES), queries), said)
    model = quantised_model(kind, teacher, classes=CLASSES, images=True)
    fixed = plain_inference(model, queries)
    assert np.array_equal(fixed_point_votes(model, queries), fixed)
    assert set(fixed.tolist()) <= set(seen)
    assert (fixed == said).mean() > 0.9


@pytest.mark.parametrize("kind", PRIVATE)
def test_the_architecture_does_not_tell_which_classes_a_party_has(kind):
    few, all_of_them = (
        quantised_model(kind, trained(kind, seen=seen), classes=CLASSES, images=True)
        for seen in ([2, 3], [0, 1, 2, 3, 4])
    )
    assert few.architecture == all_of_them.architecture
    assert few.architecture.precision == precision(images=True)


def test_the_fixed_point_is_that_of_a_node():
    bits = (dealing._INPUT_BITS, dealing._WEIGHT_BITS, dealing._ACCUMULATOR_BITS)
    found = precision(images=False)
    assert (found.input_bits, found.weight_bits, found.accumulator_bits) == bits


@pytest.mark.parametrize("kind", PRIVATE)
def test_private_inference_itself_gives_these_votes_bit_for_bit(kind):
    model = quantised_model(kind, trained(kind, seen=[0, 1, 2, 4]), classes=CLASSES, images=True)
    queries, _ = images(3, rows=6, seen=[0, 1, 2, 3, 4])
    expected = np.eye(CLASSES, dtype=np.int64)[plain_inference(model, queries)]
    assert np.array_equal(private_votes(model, queries, 5), expected)


def test_records_are_held_within_the_public_bound():
    assert np.array_equal(bounded(np.array([[-2.0, 0.5, 3.0]], dtype=np.float32), images=True), [[-1.0, 0.5, 1.0]])
    assert np.array_equal(bounded(np.array([[-9.0, 7.0]], dtype=np.float32), images=False), [[-8.0, 7.0]])


def test_a_turn_that_no_batch_of_private_inference_holds_is_refused_before_anything_is_trained():
    dataset = SimpleNamespace(
        private_inputs=np.zeros((1, 28, 28), dtype=np.float32), private_labels=np.zeros(1, dtype=np.int64),
        classes=10, kind="image",
    )  # fmt: skip
    for kind in PRIVATE:
        check_turn(kind, dataset, turn=10)
    check_turn("mlp", dataset, turn=1000)
    with pytest.raises(InvalidInput, match=r"--turn 10000 is too much for one batch of a small_cnn.*ask fewer"):
        check_turn("small_cnn", dataset, turn=10_000)


def test_a_kind_that_private_inference_does_not_compute_is_refused():
    teacher = trained("logistic_regression", seen=[0, 1])
    with pytest.raises(InvalidInput, match=r"random_forest.*allowed.*logistic_regression, mlp, small_cnn"):
        private_model("random_forest", teacher, classes=CLASSES)


@given(st.integers(0, 2**32 - 1), st.sampled_from([linear_model, mlp, cnn]))
@settings(max_examples=30, deadline=None)
def test_votes_in_fixed_point_are_those_of_plain_integer_arithmetic(seed, build):
    """With few bits, so that ties and rounding are common."""
    rng = np.random.default_rng(seed)
    plain = build(rng)
    model = quantise(plain, Precision(input_bits=3, weight_bits=4))
    inputs = rng.uniform(-1, 1, (20, *plain.input_shape))
    assert np.array_equal(fixed_point_votes(model, inputs), plain_inference(model, inputs))
