"""The suprema against brute force with another quadrature, and the half-plane bounds against far points."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_ndtr, logsumexp

from protocols.bounds.label_cones import log_label_probabilities
from protocols.bounds.label_supremum import bit_supremum, label_supremum

NODES, WEIGHTS = np.polynomial.legendre.leggauss(160)
PAIRS = [(1e-3, 2.0), (0.05, 1.05), (0.1, 64.0), (0.3, 16.0), (2.5, 1.5)]


def log_first_wins(x, y):
    """log P[A > 0, A > B], conditioning on A: 160 Gauss-Legendre nodes over the integrand's peak."""
    x, y = np.broadcast_arrays(x, y)
    peak = np.maximum(np.maximum(x, (x + y) / 2), 0.0)
    # The log of the integrand falls at least like a standard normal's on both sides of its peak.
    for _ in range(60):
        ratio = np.exp(-((peak - y) ** 2) / 2 - log_ndtr(peak - y)) / np.sqrt(2 * np.pi)
        peak = np.maximum(peak - 0.5 * ((peak - x) - ratio), 0.0)
    low, high = np.maximum(peak - 9.0, 0.0), peak + 9.0
    fall = np.maximum((peak - x) - np.exp(-((peak - y) ** 2) / 2 - log_ndtr(peak - y)) / np.sqrt(2 * np.pi), 0.0)
    high = np.minimum(high, np.where(fall > 4.0, peak + 40.0 / np.maximum(fall, 1.0), high))
    s = (low + high)[..., None] / 2 + (high - low)[..., None] / 2 * NODES
    logs = -((s - x[..., None]) ** 2) / 2 + log_ndtr(s - y[..., None])
    return logsumexp(logs, b=WEIGHTS, axis=-1) + np.log((high - low) / 2) - 0.5 * np.log(2 * np.pi)


def divergence(x, y, d, order):
    """D_a of the three outcomes at (x, y) against (x - d, y + d), without the module's own formulas."""

    def log_law(x, y):
        return np.stack([log_first_wins(x, y), log_first_wins(y, x), log_ndtr(-x) + log_ndtr(-y)])

    before, after = log_law(x, y), log_law(x - d, y + d)
    return logsumexp(order * before - (order - 1) * after, axis=0) / (order - 1)


def bit_divergence(g, d, order):
    before = np.stack([log_ndtr(g), log_ndtr(-g)])
    after = np.stack([log_ndtr(g + d), log_ndtr(-g - d)])
    return logsumexp(order * before - (order - 1) * after, axis=0) / (order - 1)


@pytest.mark.parametrize(("d", "order"), PAIRS)
def test_label_supremum_is_just_above_what_brute_force_finds(d: float, order: float) -> None:
    reach = 6.0 + (order - 1) * d
    x, y = (axis.ravel() for axis in np.meshgrid(*[np.linspace(-reach, reach, 60)] * 2, indexing="ij"))
    values = divergence(x, y, d, order)
    start = values.argmax()
    found = minimize(
        lambda v: -float(divergence(v[0], v[1], d, order)) / (order * d * d),
        [x[start], y[start]],
        method="Nelder-Mead",
        options={"xatol": 1e-6, "fatol": 1e-12},
    )
    best = max(values[start], -found.fun * order * d * d)
    bound = label_supremum(np.array([d]), np.array([order]), tolerance=2e-5)[0]
    assert best <= bound * (1 + 1e-8)
    assert bound <= best * (1 + 5e-4)


@pytest.mark.parametrize(("d", "order"), PAIRS)
def test_bit_supremum_is_just_above_a_dense_grid(d: float, order: float) -> None:
    reach = 6.0 + d + (order - 1) * d
    best = bit_divergence(np.linspace(-reach, reach, 200_001), d, order).max()
    bound = bit_supremum(np.array([d]), np.array([order]), tolerance=2e-5)[0]
    # Adding up probabilities near one costs the grid's value some 1e-16 absolutely.
    assert best <= bound * (1 + 1e-9) + 1e-14
    assert bound <= best * (1 + 5e-5) + 1e-14


@pytest.mark.parametrize(("d", "order"), PAIRS)
def test_points_far_outside_the_searched_box_stay_below_the_bound(d: float, order: float) -> None:
    rng = np.random.default_rng(7)
    x, y = rng.uniform(-60, 60, size=(2, 20_000))
    before = log_label_probabilities(x, y)
    after = log_label_probabilities(x - d, y + d)
    values = logsumexp(order * before - (order - 1) * after, axis=0) / (order - 1)
    assert values.max() <= label_supremum(np.array([d]), np.array([order]), tolerance=2e-5)[0] + 1e-13
