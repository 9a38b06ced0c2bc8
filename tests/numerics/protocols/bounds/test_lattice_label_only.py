"""The lattice bounds against enumeration over integer counts, their laws, their distance from the truth, refusals."""

import warnings

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

from protocols.bounds import label_only
from protocols.bounds.label_only import ORDERS
from protocols.bounds.lattice_label_only import _bit, _several_classes, _two_classes, lattice_bit_rdp, lattice_label_rdp
from protocols.errors import InvalidInput
from tests.harness.refusals import refuses


class Lattice:
    """log-probabilities under N_Z(0, sigma^2), by summation over |z| <= 60 sigma."""

    def __init__(self, sigma: float) -> None:
        self.half = int(60 * sigma)
        z = np.arange(-self.half, self.half + 1)
        log_p = -(z**2) / (2 * sigma * sigma)
        self.log_p = log_p - logsumexp(log_p)
        self.log_cdf = np.logaddexp.accumulate(self.log_p)

    def pmf(self, z):
        return self.log_p[z + self.half]

    def cdf(self, z):
        """log Pr[Z <= z]."""
        return self.log_cdf[z + self.half]


def three_outcomes(lattice, sigma, x, y, c):
    """log-probabilities of (a wins, b wins, other) at counts x[:, None], y[None, :] above the others' maximum."""
    reach = int(14 * sigma)
    a = np.empty((len(x), len(y)))
    b = np.empty_like(a)
    for i, mean in enumerate(x):
        n = np.arange(0, max(0, mean) + reach)
        a[i] = logsumexp(lattice.pmf(n - mean)[:, None] + lattice.cdf(n[:, None] - c - y[None, :]), axis=0)
    for j, mean in enumerate(y):
        n = np.arange(0, max(0, mean) + reach)
        b[:, j] = logsumexp(lattice.pmf(n - mean)[:, None] + lattice.cdf(n[:, None] + c - 1 - x[None, :]), axis=0)
    return np.stack([a, b, lattice.cdf(-1 - x)[:, None] + lattice.cdf(-1 - y)[None, :]])


@pytest.mark.parametrize(("x", "y", "c"), [(0, 0, 0), (0, 0, 1), (-4, 7, 0), (5, 3, 1), (-9, -8, 1)])
def test_the_enumeration_agrees_with_a_plain_double_sum(x, y, c) -> None:
    with mpmath.workdps(40):
        weight = {z: mpmath.exp(-mpmath.mpf(z * z) / 18) for z in range(-40, 41)}
        total = mpmath.fsum(weight.values()) ** 2
        mass = [mpmath.mpf(0)] * 3
        for u, first in weight.items():
            for v, second in weight.items():
                a, b = x + u, y + v
                wins = 2 if max(a, b) < 0 else 0 if a >= b + c else 1
                mass[wins] += first * second
        expected = [float(mpmath.log(part / total)) for part in mass]
    found = three_outcomes(Lattice(3.0), 3.0, np.array([x]), np.array([y]), c)[:, 0, 0]
    assert found == pytest.approx(expected, rel=1e-9)


def renyi(log_p, log_q, order):
    return logsumexp(order * log_p - (order - 1) * log_q, axis=0) / (order - 1)


def largest_label(sigma, k, order, low, high):
    """The largest three-outcome divergence over integers x, y in [low, high] and both tie cases.

    Steps of about sigma/8, and then every integer within a step of the best, at most 25 by 25.
    """
    lattice = Lattice(sigma)
    step = max(1, int(sigma / 8))
    best = 0.0
    for c in (0, 1):
        x = np.arange(low, high + 1, step)
        cost = renyi(three_outcomes(lattice, sigma, x, x, c), three_outcomes(lattice, sigma, x - k, x + k, c), order)
        i, j = np.unravel_index(cost.argmax(), cost.shape)
        near = np.unique(np.linspace(-step, step, 9).astype(int))
        x_near, y_near = x[i] + near, x[j] + near
        before = three_outcomes(lattice, sigma, x_near, y_near, c)
        after = three_outcomes(lattice, sigma, x_near - k, y_near + k, c)
        best = max(best, cost.max(), renyi(before, after, order).max())
    return best


def one(bound, k, order, sigma) -> float:
    return float(bound(np.array([k]), np.array([order]), sigma)[0, 0])


@pytest.mark.parametrize(
    ("sigma", "k", "order"),
    [(8.0, 1, 2.0), (8.0, 8, 8.0), (8.0, 3, 1.05), (13.7, 5, 3.0)],
)  # fmt: skip
def test_no_integer_counts_cost_more_than_the_label_bound_at_little_noise(sigma, k, order) -> None:
    reach = int(4 * sigma + order * k)
    exact = largest_label(sigma, k, order, -reach, reach)
    bound = one(_several_classes, k, order, sigma)
    assert exact < bound < 1.25 * exact


def test_the_continuous_bound_does_not_hold_on_a_coarse_lattice() -> None:
    """Why these bounds exist, and that the enumeration would notice one that is too small by a thousandth."""
    assert largest_label(8.0, 8, 2.0, -10, 30) > 1.0007 * float(label_only.label_rdp(1.0, 2.0, classes=3))


@pytest.mark.parametrize(("k", "order"), [(1, 8.0), (16, 8.0), (64, 2.0)])
def test_no_integer_counts_cost_more_than_the_label_bound_at_the_least_noise(k, order) -> None:
    reach = 160 + int(k * order / 2)
    exact = largest_label(64.0, k, order, -reach, reach)
    bound = float(lattice_label_rdp(np.array([k]), np.array([order]), sigma_units=64.0, classes=10)[0, 0])
    assert exact < bound < 1.045 * exact


def test_the_label_bound_is_within_four_thousandths_of_the_truth_at_the_noise_of_a_study() -> None:
    """sigma of 40 votes, 64 units a vote, one vote: near the maximum that the continuous label has."""
    sigma, k, order = 2560.0, 64, 8.0
    lattice = Lattice(sigma)
    x, y = np.array([1500, 1600, 1700]), np.array([1600, 1800, 2000])
    before, after = three_outcomes(lattice, sigma, x, y, 0), three_outcomes(lattice, sigma, x - k, y + k, 0)
    found = renyi(before, after, order).max()
    bound = float(lattice_label_rdp(np.array([k]), np.array([order]), sigma_units=sigma, classes=3)[0, 0])
    assert found < bound < 1.0037 * found


def largest_bit(lattice, k, order, reach) -> float:
    g = np.arange(-reach, reach + 1)
    # Pr[g + Z >= 0] = Pr[Z <= g] by symmetry.
    before = np.stack([lattice.cdf(g), lattice.cdf(-1 - g)])
    after = np.stack([lattice.cdf(g + k), lattice.cdf(-1 - g - k)])
    return max(renyi(before, after, order).max(), renyi(after, before, order).max())


@pytest.mark.parametrize("sigma", [5.3, 64.0, 1000.0])
@pytest.mark.parametrize("order", [1.05, 2.0, 8.0, 64.0])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.2, 1.5])
def test_no_integer_count_costs_more_than_the_bit_bound_in_either_direction(sigma, order, share) -> None:
    k = max(1, int(share * sigma))
    if order * k > 40 * sigma:
        k = 1
    exact = largest_bit(Lattice(sigma), k, order, int(6 * sigma + order * k))
    bound = one(_bit, k, order, sigma)
    assert exact <= bound <= exact * (1 + 6 / sigma**2 + 1e-3) + 1e-9
    if sigma >= 64:
        assert exact <= float(lattice_bit_rdp(np.array([k]), np.array([order]), sigma_units=sigma)[0, 0]) <= bound


@pytest.mark.parametrize(("sigma", "k", "order"), [(6.0, 1, 2.0), (6.0, 4, 8.0), (64.0, 1, 8.0), (64.0, 30, 4.0)])
def test_no_integer_lead_costs_more_than_the_bound_of_two_classes(sigma, k, order) -> None:
    """The difference of two discrete Gaussians, by convolution; either way to break a tie is an integer lead."""
    reach = int(16 * sigma)
    z = np.arange(-reach, reach + 1)
    p = np.exp(-(z**2) / (2 * sigma * sigma))
    p /= p.sum()
    difference = np.convolve(p, p)
    below, above = np.cumsum(difference), np.cumsum(difference[::-1])[::-1]
    half = 2 * reach
    lead = np.arange(-int(6 * sigma), int(6 * sigma + 2 * k * order)) + half
    law = [np.log(np.stack([above[at], below[at - 1]])) for at in (lead, lead - 2 * k)]
    exact = max(renyi(law[0], law[1], order).max(), renyi(law[1], law[0], order).max())
    bound = one(_two_classes, k, order, sigma)
    assert exact <= bound <= exact * (1 + 12 / sigma**2 + 1e-3)


def histogram_law(lattice, sigma, counts):
    """log-probability that each class wins, ties to the lower class, every count with independent noise."""
    law = []
    for i, mean in enumerate(counts):
        n = np.arange(mean - int(14 * sigma), mean + int(14 * sigma))
        others = sum(lattice.cdf(n - (j < i) - other) for j, other in enumerate(counts) if j != i)
        law.append(logsumexp(lattice.pmf(n - mean) + others))
    return np.array(law)


LATTICE_64 = Lattice(64.0)


@given(
    counts=st.lists(st.integers(-160, 160), min_size=3, max_size=8), pair=st.permutations(range(3)),
    k=st.integers(1, 96), order=st.sampled_from([1.05, 1.5, 2.0, 8.0, 32.0]),
)  # fmt: skip
@settings(max_examples=20, deadline=None)
def test_no_histogram_costs_more_than_the_bound_when_one_vote_moves(counts, pair, k, order) -> None:
    moved = np.array(counts)
    moved[pair[0]] -= k
    moved[pair[1]] += k
    before, after = (histogram_law(LATTICE_64, 64.0, n) for n in (np.array(counts), moved))
    bound = float(lattice_label_rdp(np.array([k]), np.array([order]), sigma_units=64.0, classes=len(counts))[0, 0])
    slack = 1e-12 * order / (order - 1)
    assert renyi(before, after, order) <= bound + slack
    assert renyi(after, before, order) <= bound + slack


@given(
    counts=st.lists(st.integers(-120, 120), min_size=3, max_size=6), seed=st.integers(0, 2**32),
    k=st.integers(2, 96), order=st.sampled_from([1.05, 2.0, 8.0, 32.0]),
)  # fmt: skip
@settings(max_examples=20, deadline=None)
def test_several_votes_of_one_unit_cost_no_more_than_one_of_their_total_weight(counts, seed, k, order) -> None:
    """A unit of k units spreads them over classes and abstention in any two ways."""
    rng = np.random.default_rng(seed)
    spread = rng.multinomial(k, rng.dirichlet(np.full(len(counts) + 1, 0.5)), size=2)[:, :-1]
    before, after = (histogram_law(LATTICE_64, 64.0, np.array(counts) + votes) for votes in spread)
    bound = float(lattice_label_rdp(np.array([k]), np.array([order]), sigma_units=64.0, classes=len(counts))[0, 0])
    assert renyi(before, after, order) <= bound + 1e-12 * order / (order - 1)


@given(counts=st.lists(st.integers(-200, 200), min_size=3, max_size=6), seed=st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_a_class_wins_with_a_log_concave_probability(counts, seed) -> None:
    """Section 4 of the proof, at midpoints of integer moves."""
    move = np.random.default_rng(seed).integers(-60, 61, size=len(counts))
    there, here, back = (histogram_law(LATTICE_64, 64.0, np.array(counts) + sign * move) for sign in (1, 0, -1))
    assert (there + back <= 2 * here + 1e-10).all()


votes = st.integers(1, 10_000)
sigmas = st.floats(64.0, 1e6)


@given(k=votes, sigma=sigmas, classes=st.sampled_from([2, 3, 10, 150]))
@settings(max_examples=20, deadline=None)
def test_bounds_lie_between_the_continuous_and_the_gaussian_bound_and_rise_with_order_and_votes(
    k, sigma, classes
) -> None:
    units = np.array([k, k + 1])
    label = lattice_label_rdp(units, ORDERS, sigma_units=sigma, classes=classes)
    bit = lattice_bit_rdp(units, ORDERS, sigma_units=sigma)
    d = units[:, None] / sigma
    for bound, continuous, gaussian in (
        (label, label_only.label_rdp(d, ORDERS[None, :], classes=classes), ORDERS * d**2),
        (bit, label_only.threshold_rdp(d, ORDERS[None, :]), ORDERS * d**2 / 2),
    ):
        assert (bound <= gaussian).all()
        assert (bound >= continuous * (1 - 1e-9)).all()
        assert (np.diff(bound, axis=1) >= -1e-9 * bound[:, 1:]).all()
        assert (np.diff(bound, axis=0) >= -1e-9 * bound[1:]).all()


def test_extreme_votes_noise_orders_and_classes_give_finite_bounds_without_warnings() -> None:
    units = np.array([0, 1, 64, 10**4, 64 * 10**6])
    orders = np.array([1 + 1e-9, 1.05, 2.0, 1024.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for sigma in (64.0, 2560.0, 6.4e5):
            for classes in (2, 3, 150, 10_000):
                label = lattice_label_rdp(units, orders, sigma_units=sigma, classes=classes)
                bit = lattice_bit_rdp(units, orders, sigma_units=sigma)
                for bound in (label, bit):
                    assert np.isfinite(bound).all()
                    assert (bound[0] == 0).all()
                    assert (bound[1:] > 0).all()


def test_values_out_of_range_are_refused() -> None:
    units, orders = np.array([1]), np.array([2.0])
    with refuses(InvalidInput, 64):
        lattice_label_rdp(units, orders, sigma_units=63.0, classes=3)
    with refuses(InvalidInput, 64):
        lattice_bit_rdp(units, orders, sigma_units=63.0)
    with refuses(InvalidInput, "classes = 1"):
        lattice_label_rdp(units, orders, sigma_units=64.0, classes=1)
    with refuses(InvalidInput, -1):
        lattice_bit_rdp(-units, orders, sigma_units=64.0)
