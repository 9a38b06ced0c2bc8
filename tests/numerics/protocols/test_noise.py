import numpy as np
import pytest
from mpmath import mp, mpf
from scipy import stats
from scipy.special import ndtri

from protocols.crypto.randomness import simulation_rng, system_source
from protocols.errors import InvalidInput
from protocols.noise import check_sigma, cryptographic, float_noise_distance, simulated
from tests.harness.refusals import refuses
from tests.harness.seeded import seeded_source


@pytest.mark.parametrize("source", [system_source, seeded_source(7)])
def test_cryptographic_noise_is_standard_normal(source):
    """Kolmogorov-Smirnov on 200,000 draws; with the system's source the false-alarm rate is 1e-9 a run."""
    draws = cryptographic(source)((400, 500))
    assert draws.shape == (400, 500)
    assert stats.kstest(draws.ravel(), "norm").pvalue > 1e-9
    # Independence of neighbours: a correlation of 200,000 pairs is N(0, 1/n); 6.2 sigmas, rate 6e-10.
    flat = draws.ravel()
    assert abs(np.corrcoef(flat[:-1], flat[1:])[0, 1]) < 6.2 / np.sqrt(len(flat))


def test_cryptographic_noise_is_the_inversion_of_its_bytes():
    """Draw by draw against mpmath: sign bit, 63 + 64 bits of u, z = sign * Phi^-1(u)."""
    words = np.array([[2**63 + 12345678901234, 7], [0, 0], [2**62, 2**40], [5, 2**63], [2**63 - 1, 1]], dtype="<u8")
    draws = cryptographic(lambda count: words.tobytes()[:count])((5,))
    mp.prec = 200
    for (high, low), draw in zip(words.tolist(), draws, strict=True):
        u = mpf(high % 2**63) / mpf(2) ** 64 + (mpf(low) + mpf(1) / 2) / mpf(2) ** 128
        exact = mp.findroot(lambda z, u=u: mp.log(mp.ncdf(z)) - mp.log(u), float(ndtri(float(u))))
        expected = exact if high >= 2**63 else -exact
        assert abs(draw - float(expected)) <= 4e-15 * max(1, abs(float(expected)))


def test_noise_in_the_tail_keeps_its_precision():
    """u as small as 2**-129 is possible and finite; 64 bits alone would have ended at 9.1."""
    draw = cryptographic(lambda count: bytes(count))((1,))
    assert np.isfinite(draw[0])
    assert abs(draw[0]) > 12.5


def test_the_noise_distance_covers_the_chance_of_a_near_tie():
    """The bound is on P(the two largest noisy counts are within 2 eta), checked by simulation at a large eta."""
    sigma, classes = 10.0, 5
    rng = np.random.default_rng(0)
    counts = np.array([50.0, 49.0, 48.0, 20.0, 10.0])
    noisy = np.sort(counts + sigma * rng.standard_normal((200_000, classes)), axis=1)
    gap = noisy[:, -1] - noisy[:, -2]
    for eta in (0.05, 0.2):
        bound = classes * 2 * eta / (sigma * np.sqrt(2 * np.pi))
        assert (gap <= 2 * eta).mean() <= bound


@pytest.mark.parametrize("classes", [1, 2, 10, 150, 10_000])
@pytest.mark.parametrize("sigma", [0.5, 40.0, 1e4])
def test_the_noise_distance_is_below_its_bound_at_any_split_and_above_the_smallest_possible(sigma, classes):
    got = float_noise_distance(sigma=sigma, classes=classes, total_weight=250.0)
    unit, density = 2.0**-53, 1 / (sigma * np.sqrt(2 * np.pi))
    at_reach = classes * 2 * (500 + sigma * 102) * unit * density
    assert got <= at_reach * (1 + 1e-3 * classes) + 2 * classes * 2.0**-70
    assert got >= classes * 2 * (500 + sigma * 34) * unit * density


def test_float_noise_is_as_near_the_ideal_as_the_distance_assumes():
    """n + sigma z in float64 against 200-bit arithmetic from the same bits: within eta(|z|), 300 draws."""
    mp.prec = 200
    source, sigma, count = seeded_source(3), 40.0, 249.0
    words = source(16 * 300)
    draws = count + sigma * cryptographic(lambda size: words[:size])((300,))
    for index, draw in enumerate(draws):
        high, low = np.frombuffer(words, dtype="<u8")[2 * index : 2 * index + 2].tolist()
        u = mpf(high % 2**63) / mpf(2) ** 64 + (mpf(low) + mpf(1) / 2) / mpf(2) ** 128
        z = mp.findroot(lambda z, u=u: mp.ncdf(z) - u, float(ndtri(float(u))))
        exact = mpf(count) + mpf(sigma) * (z if high >= 2**63 else -z)
        assert abs(mpf(float(draw)) - exact) <= (2 * 250 + sigma * (10 * abs(z) + 4)) * mpf(2) ** -53


def test_simulation_streams_depend_on_seed_stage_and_path_alone():
    first = simulation_rng(1, "noise", 3).random(4)
    np.testing.assert_array_equal(first, simulation_rng(1, "noise", 3).random(4))
    for other in (simulation_rng(2, "noise", 3), simulation_rng(1, "data", 3), simulation_rng(1, "noise", 4)):
        assert (other.random(4) != first).all()
    assert simulated(np.random.default_rng(0))((2, 3)).shape == (2, 3)


@pytest.mark.parametrize("sigma", [0.0, -1.0, float("nan"), float("inf")])
def test_a_sigma_that_is_not_positive_and_finite_is_refused(sigma):
    with refuses(InvalidInput, "> 0"):
        check_sigma("sigma", sigma)
