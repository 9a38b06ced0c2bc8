"""The sampler against the exact law, against the paper's algorithms in plain Python, against OpenDP, and its refusals.

Seeds are fixed, so a test's outcome is; each goodness-of-fit test would reject a right sampler for one seed in 10^6.
"""

import hashlib
import random
from fractions import Fraction
from math import floor

import mpmath
import numpy as np
import opendp.prelude as opendp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, chi2, chi2_contingency

from protocols.crypto import discrete_gaussian as module
from protocols.crypto.discrete_gaussian import discrete_gaussian, lattice_sigma
from protocols.crypto.prg import expanded_source
from protocols.errors import InvalidInput
from tests.harness.refusals import refuses
from tests.harness.seeded import seeded_source

FALSE_ALARM = 1e-6
SIGMAS = [Fraction(3, 10), Fraction(1), Fraction(47, 10), Fraction(64), Fraction(1000)]
DRAWS = 150_000


def exact_pmf(sigma, reach: int):
    """Pr[z] for |z| <= reach, to 30 digits before it becomes float."""
    with mpmath.workdps(30):
        rate = mpmath.mpf(sigma.denominator) ** 2 / (2 * mpmath.mpf(sigma.numerator) ** 2)
        half = [mpmath.exp(-z * z * rate) for z in range(reach + 1)]
        total = half[0] + 2 * mpmath.fsum(half[1:])
        side = np.array([float(value / total) for value in half])
    return np.concatenate([side[:0:-1], side])


def p_value(draws, sigma) -> float:
    """Chi-squared goodness of fit in runs of values that expect 12 draws or more each, tails pooled."""
    reach = max(3, int(9 * sigma) + 1)
    pmf = exact_pmf(sigma, reach)
    counts = np.bincount(np.clip(draws, -reach, reach) + reach, minlength=2 * reach + 1)
    # Group g ends where the expected number of draws passes g * width: about 300 groups at most.
    width = max(12.0, len(draws) / 300)
    group = np.floor(np.cumsum(pmf) * len(draws) / width).astype(int)
    group = np.unique(group, return_inverse=True)[1]
    expected, seen = np.bincount(group, pmf) * len(draws), np.bincount(group, counts)
    while expected[-1] < 12 and len(expected) > 2:
        expected, seen = (np.append(part[:-2], part[-2:].sum()) for part in (expected, seen))
    while expected[0] < 12 and len(expected) > 2:
        expected, seen = (np.append(part[:2].sum(), part[2:]) for part in (expected, seen))
    return float(chi2.sf(((seen - expected) ** 2 / expected).sum(), len(expected) - 1))


def assert_tails_fit(draws, sigma) -> None:
    """Draws beyond 2, 3 and 4 sigma on either side: binomial counts, each within its central 1 - 10^-6."""
    reach = max(4, int(10 * sigma) + 1)
    pmf, values = exact_pmf(sigma, reach), np.arange(-reach, reach + 1)
    for sigmas in (2, 3, 4):
        for sign in (-1, 1):
            mass = pmf[sign * values > sigmas * float(sigma)].sum()
            seen = int((sign * draws > sigmas * float(sigma)).sum())
            low, high = binom.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], len(draws), mass)
            assert low <= seen <= high


@pytest.mark.parametrize("sigma", SIGMAS, ids=str)
def test_draws_follow_the_exact_law_and_its_tails(sigma) -> None:
    draws = discrete_gaussian(seeded_source(1, sigma.numerator), sigma=sigma, size=DRAWS)
    assert p_value(draws, sigma) > FALSE_ALARM
    assert_tails_fit(draws, sigma)


@pytest.mark.parametrize("sigma", [Fraction(2**28 - 1), Fraction(10**7), Fraction(2**29 - 64, 2**20)], ids=str)
def test_draws_follow_the_law_where_the_integers_are_largest(sigma) -> None:
    """In units of sigma the law is a normal one, but for less than 10^-5: Kolmogorov's distance at 10^-6."""
    draws = np.sort(discrete_gaussian(seeded_source(2), sigma=sigma, size=DRAWS))
    expected = 0.5 * (1 + np.vectorize(mpmath_erf)((draws[::50] + 0.5) / float(sigma) / np.sqrt(2)))
    assert np.abs(expected - (np.arange(1, DRAWS + 1) / DRAWS)[::50]).max() < np.sqrt(-np.log(5e-7) / 2 / DRAWS)


def mpmath_erf(x: float) -> float:
    return float(mpmath.erf(x))


def rounded_normal(source, sigma, size):
    rng = np.random.default_rng(int.from_bytes(source(8), "big"))
    return np.rint(float(sigma) * rng.standard_normal(size)).astype(np.int64)


def with_biased_modulo(source, sigma, size, monkeypatch):
    def biased(source, bound, count):
        return np.frombuffer(source(2 * count), dtype="<u2").astype(np.int64) % bound

    monkeypatch.setattr(module, "_below", biased)
    return discrete_gaussian(source, sigma=sigma, size=size)


def with_both_zeros(source, sigma, size, monkeypatch):
    def laplace(source, t, count):
        remainder = module._below(source, t, count)
        remainder = remainder[module._bernoulli_exp(source, remainder, t, power=1, divisor=1)]
        quotient = module._runs(source, len(remainder), divisor=1)
        return remainder, quotient, module._below(source, 2, len(remainder)) == 1

    monkeypatch.setattr(module, "_laplace", laplace)
    return discrete_gaussian(source, sigma=sigma, size=size)


def test_a_rounded_normal_fails_the_same_test() -> None:
    for sigma in SIGMAS[:2]:
        assert p_value(rounded_normal(seeded_source(3), sigma, DRAWS), sigma) < FALSE_ALARM


@pytest.mark.parametrize("mutant", [with_biased_modulo, with_both_zeros])
def test_a_biased_sampler_fails_the_same_test(mutant, monkeypatch) -> None:
    # Two-byte words over a bound of 23,505,000: a uniform integer below it never passes 65,535.
    sigma = Fraction(47, 10) if mutant is with_both_zeros else Fraction(4701, 1000)
    assert p_value(mutant(seeded_source(4), sigma, DRAWS, monkeypatch), sigma) < FALSE_ALARM


def reference_draw(sigma, rng) -> int:
    """Canonne, Kamath, Steinke 2020, Algorithms 1 to 3 word for word, one draw in Fractions; rng: random.Random."""
    t = floor(sigma) + 1
    while True:
        u = rng.randrange(t)
        if not reference_bernoulli_exp(Fraction(u, t), rng):
            continue
        v = 0
        while reference_bernoulli_exp(Fraction(1), rng):
            v += 1
        y = u + t * v
        negative = rng.randrange(2)
        if negative and y == 0:
            continue
        if reference_bernoulli_exp((y - sigma**2 / t) ** 2 / (2 * sigma**2), rng):
            return -y if negative else y


def reference_bernoulli_exp(gamma, rng) -> bool:
    while gamma > 1:
        if not reference_bernoulli_exp(Fraction(1), rng):
            return False
        gamma -= 1
    k = 1
    while rng.randrange(gamma.denominator * k) < gamma.numerator:
        k += 1
    return k % 2 == 1


def two_sample_p_value(first, second) -> float:
    pooled = np.concatenate([first, second])
    edges = np.unique(np.quantile(pooled, np.linspace(0, 1, 25)[1:-1]))
    table = [np.bincount(np.searchsorted(edges, sample), minlength=len(edges) + 1) for sample in (first, second)]
    table = np.array(table)[:, np.sum(table, axis=0) > 0]
    return float(chi2_contingency(table).pvalue)


@pytest.mark.parametrize("sigma", [Fraction(3, 10), Fraction(47, 10), Fraction(64)], ids=str)
def test_draws_agree_with_the_papers_algorithms_in_plain_python(sigma) -> None:
    rng = random.Random(5)
    reference = np.array([reference_draw(sigma, rng) for _ in range(4000)])
    draws = discrete_gaussian(seeded_source(5), sigma=sigma, size=40_000)
    assert two_sample_p_value(draws, reference) > FALSE_ALARM
    assert p_value(reference, sigma) > FALSE_ALARM


@pytest.mark.parametrize("sigma", [Fraction(1), Fraction(47, 10), Fraction(64)], ids=str)
def test_draws_agree_with_opendp(sigma) -> None:
    """OpenDP draws from the operating system: this test alone may fail for a right sampler, once in 10^6 runs."""
    opendp.enable_features("contrib")
    domain = opendp.vector_domain(opendp.atom_domain(T="i64"))
    measurement = opendp.m.make_gaussian(domain, opendp.l2_distance(T=float), scale=float(sigma))
    theirs = np.array(measurement([0] * 20_000))
    ours = discrete_gaussian(seeded_source(6), sigma=sigma, size=20_000)
    assert two_sample_p_value(ours, theirs) > FALSE_ALARM


@pytest.mark.parametrize(
    ("numerator", "power", "divisor"), [(0, 1, 1), (300, 1, 1), (999, 1, 1), (700, 2, 2), (1, 0, 2)]
)
def test_acceptance_tests_pass_with_the_exponentials_probability(numerator, power, divisor) -> None:
    trials = np.full(200_000, numerator)
    passed = int(module._bernoulli_exp(seeded_source(7), trials, 1000, power=power, divisor=divisor).sum())
    probability = np.exp(-((numerator / 1000) ** power) / divisor)
    low, high = binom.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], len(trials), probability)
    assert low <= passed <= high


@pytest.mark.parametrize("bound", [1, 2, 3, 10, 1000, 2**24 - 3, 2**24 + 1, 3 * 2**40, 2**58 - 1])
def test_integers_below_a_bound_are_uniform(bound: int) -> None:
    drawn = module._below(seeded_source(8, bound), bound, 100_000)
    assert drawn.min() >= 0
    assert drawn.max() < bound
    parts = min(bound, 64)
    # Part j holds the integers z with floor(z parts / bound) = j.
    edges = np.array([-(-j * bound // parts) for j in range(parts + 1)], dtype=object)
    sizes = np.diff(edges).astype(float) / bound
    seen = np.bincount(np.searchsorted(edges[1:].astype(np.int64), drawn, side="right"), minlength=parts)
    expected = sizes * len(drawn)
    if parts > 1:
        assert chi2.sf(((seen - expected) ** 2 / expected).sum(), parts - 1) > FALSE_ALARM


def test_a_word_in_the_last_incomplete_multiple_is_drawn_again() -> None:
    words = iter([np.array([2**32 - 1, 5, 2**32 - 2], dtype="<u4"), np.array([2**32 - 1, 13], dtype="<u4"),
                  np.array([29], dtype="<u4")])  # fmt: skip
    # 2^32 - 1 and 2^32 - 2 lie beyond the last whole multiple of 10.
    assert module._below(lambda _count: next(words).tobytes(), 10, 3).tolist() == [9, 5, 3]


def test_far_candidates_are_placed_alike_by_both_integer_kinds(monkeypatch) -> None:
    sigma = lattice_sigma(40.3, units=64)
    near = discrete_gaussian(seeded_source(9), sigma=sigma, size=20_000)
    monkeypatch.setattr(module, "_FAR", 0)
    assert np.array_equal(near, discrete_gaussian(seeded_source(9), sigma=sigma, size=20_000))


def test_the_same_bytes_give_the_same_noise_in_every_release() -> None:
    """A stored seed must redraw what was drawn: the digest is pinned, and a change of it is a change of format."""
    draws = discrete_gaussian(expanded_source(bytes(32), label="test"), sigma=Fraction(64), size=5000)
    again = discrete_gaussian(expanded_source(bytes(32), label="test"), sigma=Fraction(64), size=5000)
    assert np.array_equal(draws, again)
    assert hashlib.sha256(draws.astype("<i8").tobytes()).hexdigest()[:16] == "4d94ed8189ec6bbb"


def test_nothing_but_the_source_is_drawn_from() -> None:
    state = np.random.get_state()[1].tolist()  # noqa: NPY002 - the global generator must be left alone
    one, other = (discrete_gaussian(seeded_source(seed), sigma=Fraction(5), size=100) for seed in (1, 2))
    assert not np.array_equal(one, other)
    assert np.random.get_state()[1].tolist() == state  # noqa: NPY002
    with pytest.raises(ZeroDivisionError):
        discrete_gaussian(lambda count: 1 // 0, sigma=Fraction(5), size=1)


@given(sigma=st.floats(1e-6, 1e5), log_units=st.integers(0, 10))
@settings(max_examples=200)
def test_the_rounded_sigma_is_never_below_the_stated_one_and_hardly_above(sigma: float, log_units: int) -> None:
    units = 2**log_units
    rounded, stated = lattice_sigma(sigma, units=units), Fraction(sigma) * units
    assert stated <= rounded <= stated + max(Fraction(1, 2**20), stated * Fraction(4, 10**9))
    assert rounded.denominator <= 2**20
    assert discrete_gaussian(seeded_source(1), sigma=rounded, size=2).shape == (2,)


def test_a_sigma_that_lies_on_the_grid_is_kept() -> None:
    assert lattice_sigma(40.0, units=64) == 2560
    assert lattice_sigma(0.5, units=64) == 32


@pytest.mark.parametrize(
    "sigma", [Fraction(0), Fraction(-1), Fraction(2**29), Fraction(1, 3 * 2**29), Fraction(64 * 2**23 + 1, 2**23)]
)
def test_a_sigma_out_of_range_is_refused(sigma) -> None:
    with refuses(InvalidInput, "a fraction > 0"):
        discrete_gaussian(seeded_source(1), sigma=sigma, size=1)


@pytest.mark.parametrize("sigma", [0.0, -1.0, float("inf"), float("nan"), 1e9])
def test_a_stated_sigma_out_of_range_is_refused(sigma: float) -> None:
    with refuses(InvalidInput, "allowed"):
        lattice_sigma(sigma, units=64)


def test_other_arguments_out_of_range_are_refused() -> None:
    with refuses(InvalidInput, -1):
        discrete_gaussian(seeded_source(1), sigma=Fraction(1), size=-1)
    with refuses(InvalidInput, "units = 0"):
        lattice_sigma(1.0, units=0)
    assert discrete_gaussian(seeded_source(1), sigma=Fraction(1), size=0).shape == (0,)
