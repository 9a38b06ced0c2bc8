"""Lazy inversion, draw by draw, against the distribution function to 400 bits by mpmath."""

from bisect import bisect_right
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from protocols.crypto.discrete_gaussian import LARGEST_TABLE_SIGMA, _steps, discrete_gaussian, integer_gaussian
from protocols.errors import InvalidInput
from tests.harness.refusals import refuses
from tests.harness.seeded import seeded_source

BITS = 400
SIGMAS = [Fraction(1, 3), Fraction(5), Fraction(201, 8)]


def steps_of(sigma):
    """F(z) in units of 2^-BITS for each z from -reach, of the whole law, and the reach."""
    with mpmath.workprec(BITS + 60):
        reach = int(mpmath.ceil(26 * sigma)) + 1
        rate = mpmath.mpf(sigma.denominator) ** 2 / (2 * mpmath.mpf(sigma.numerator) ** 2)
        weights = [mpmath.exp(-z * z * rate) for z in range(-reach, reach + 1)]
        total, running, steps = mpmath.fsum(weights), mpmath.mpf(0), []
        for weight in weights:
            running += weight
            steps.append(int(mpmath.floor(running / total * 2**BITS)))
    return steps, reach


def inverse(words, steps, reach):
    """The least z with U < F(z), for the U that begins with these words of 64 bits."""
    number = sum(word << (BITS - 64 * (place + 1)) for place, word in enumerate(words))
    return bisect_right(steps, number) - reach


def source_of(words):
    left = list(words)

    def source(count):
        taken = [left.pop(0) for _ in range(count // 8)]
        return b"".join(word.to_bytes(8, "little") for word in taken)

    return source, left


@pytest.mark.parametrize("sigma", [*SIGMAS, Fraction(60)], ids=str)
def test_every_draw_is_the_value_at_which_the_distribution_function_passes_its_word(sigma) -> None:
    words = np.random.default_rng(1).integers(0, 2**64, 2000, dtype=np.uint64).tolist()
    # Far out too, where a bucket holds many steps.
    words += [word >> shift for word, shift in zip(words[:50], range(50), strict=True)]
    words += [2**64 - 1 - word for word in words[-50:]]
    source, left = source_of(words)
    exact = steps_of(sigma)
    assert integer_gaussian(source, sigma=sigma, size=len(words)).tolist() == [
        inverse([word], *exact) for word in words
    ]
    assert not left


@pytest.mark.parametrize("sigma", SIGMAS, ids=str)
def test_a_word_beside_a_step_is_decided_by_the_bits_that_follow_it(sigma) -> None:
    steps, reach = steps_of(sigma)
    for z in (-reach // 4, -2, 0, 1, reach // 4):
        first, second, third = (steps[z + reach] >> (BITS - 64 * (place + 1)) & (2**64 - 1) for place in range(3))
        for words in (
            *((max(first + off, 0), 2**63) for off in range(-3, 4) if first + off < 2**64),
            (first, max(second - 9, 0)), (first, min(second + 9, 2**64 - 1)),
            (first, second, max(third - 9, 0)), (first, second, min(third + 9, 2**64 - 1)),
        ):  # fmt: skip
            source, _ = source_of([*words, 2**63, 2**63])
            assert integer_gaussian(source, sigma=sigma, size=1)[0] == inverse([*words, 2**63, 2**63], steps, reach)


@pytest.mark.parametrize("word", [0, 2**64 - 1])
def test_the_outermost_words_reach_as_far_into_the_tails_as_the_bits_that_follow_say(word) -> None:
    exact = steps_of(SIGMAS[1])
    for following in ([word, word, 2**63], [2**63], [word, 2**62]):
        source, left = source_of([word, *following])
        drawn = integer_gaussian(source, sigma=SIGMAS[1], size=1)[0]
        assert drawn == inverse([word, *following], *exact)
        assert abs(drawn) > 45
        assert not left


def test_the_steps_of_the_largest_table_are_the_probabilities_to_two_units() -> None:
    sigma = Fraction(LARGEST_TABLE_SIGMA)
    steps, reach = _steps(sigma, 64)
    with mpmath.workprec(200):
        total = mpmath.sqrt(2 * mpmath.pi) * LARGEST_TABLE_SIGMA  # but for exp(-2 pi^2 sigma^2)
        for z in (-30000, -4096, -1, 0, 17, 9999):
            law = mpmath.exp(-(mpmath.mpf(z) ** 2) / (2 * mpmath.mpf(LARGEST_TABLE_SIGMA) ** 2)) / total * 2**64
            assert abs(steps[z + reach] - steps[z + reach - 1] - law) < 2
    assert steps[reach - 1] + steps[reach] == 2**64


def test_a_larger_sigma_is_drawn_by_the_other_sampler() -> None:
    sigma = Fraction(LARGEST_TABLE_SIGMA + 1)
    ours, other = (draw(seeded_source(1), sigma=sigma, size=50) for draw in (integer_gaussian, discrete_gaussian))
    np.testing.assert_array_equal(ours, other)


@pytest.mark.parametrize(("sigma", "size"), [(Fraction(0), 1), (Fraction(-1), 1), (Fraction(1), -1)])
def test_what_no_law_or_size_is_is_refused(sigma, size) -> None:
    with refuses(InvalidInput, "above 0"):
        integer_gaussian(seeded_source(1), sigma=sigma, size=size)
