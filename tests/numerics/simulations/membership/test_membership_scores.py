"""Scores against the formulas of the papers, where floating point would lose them, and on what is no distribution."""

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.errors import InvalidInput
from simulations.membership.attack import loss, modified_entropy, scores_of
from tests.harness.refusals import refuses


class Fixed:
    """A model whose inputs are its probabilities."""

    def __init__(self):
        self.asked = []

    def probabilities(self, inputs):
        self.asked.append(len(inputs))
        return inputs


@st.composite
def distributions(draw):
    """Rows of probabilities with a label each."""
    classes, rows = draw(st.integers(2, 6)), draw(st.integers(1, 8))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    probabilities = rng.dirichlet(np.full(classes, draw(st.sampled_from([0.05, 1.0]))), size=rows)
    return probabilities, rng.integers(classes, size=rows)


@given(distributions())
def test_the_loss_score_is_in_the_order_of_the_loss(case):
    probabilities, labels = case
    right = probabilities[np.arange(len(labels)), labels]
    inner = (right > 1e-9) & (right < 1 - 1e-9)
    scores = loss(probabilities, labels)
    np.testing.assert_allclose(scores[inner], np.log(right[inner] / (1 - right[inner])), rtol=1e-6, atol=1e-9)


@given(distributions())
def test_the_modified_entropy_is_that_of_song_and_mittal(case):
    probabilities, labels = case
    for row, label, found in zip(probabilities, labels, modified_entropy(probabilities, labels), strict=True):
        with mpmath.workdps(40):
            exact = [mpmath.mpf(float(p)) for p in row]
            # As the code does: 1 - p is what the others sum to.
            rest = [sum(exact) - p for p in exact]
            tiny = mpmath.mpf(1e-60)
            value = rest[label] * mpmath.log(exact[label] + tiny)
            value += sum(
                p * mpmath.log(r + tiny) for i, (p, r) in enumerate(zip(exact, rest, strict=True)) if i != label
            )
        # Where one p is 1 to the last digit, its rest is known to 2^-53 only, and the logarithm to a few units.
        assert found == pytest.approx(float(value), rel=1e-6, abs=1e-9) or max(row) > 1 - 1e-9
        assert found <= 1e-12


def test_rows_that_are_certain_in_float32_still_differ():
    rest = np.array([1e-12, 1e-20], dtype=np.float32)
    rows = np.stack([np.ones(2, dtype=np.float32), rest], axis=1)
    assert (rows[:, 0] == 1).all()
    scores = scores_of(Fixed(), rows, np.zeros(2, dtype=np.int64), classes=2)
    assert scores["loss"][1] > scores["loss"][0] + 10


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[0.5, 0.5, 0.0]], ("shape",)),
        ([[np.nan, 1.0]], ("NaN",)),
        ([[np.inf, 0.0]], ("NaN",)),
        ([[-0.2, 1.2]], ("negative",)),
        ([[0.5, 0.4]], ("0.9",)),
    ],
)
def test_what_is_no_distribution_is_refused(rows, message):
    with refuses(InvalidInput, *message):
        scores_of(Fixed(), np.array(rows, dtype=np.float32), np.zeros(1, dtype=np.int64), classes=2)
