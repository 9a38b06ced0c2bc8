"""The outcomes' log-probabilities and derivatives, against 25-digit quadrature and finite differences."""

import mpmath
import numpy as np
import pytest

from protocols.bounds.label_cones import bit_model, label_model, log_label_probabilities

POINTS = [(0.0, 0.0), (1.5, 1.4), (-3.0, 2.0), (2.0, 8.0), (-9.0, 9.5), (-25.0, -20.0), (14.0, 33.0), (-0.1, -30.0)]


def exact_log_probability(x: mpmath.mpf, y: mpmath.mpf) -> mpmath.mpf:
    """log P[A > 0, A > B]: quadrature of phi(s - x) Phi(s - y) over the s > 0 within e^-50 of its peak."""

    def log_integrand(s: mpmath.mpf) -> mpmath.mpf:
        return -((s - x) ** 2) / 2 + mpmath.log(mpmath.erfc((y - s) / mpmath.sqrt(2)) / 2)

    # The logarithm is concave: ternary search for the peak, bisection for both ends.
    low, high = mpmath.mpf(0), mpmath.mpf(80)
    for _ in range(60):
        third = (high - low) / 3
        rising = log_integrand(low + third) < log_integrand(high - third)
        low, high = (low + third, high) if rising else (low, high - third)
    peak, top = low, log_integrand(low)

    def end(inner: mpmath.mpf, outer: mpmath.mpf) -> mpmath.mpf:
        for _ in range(12):
            middle = (inner + outer) / 2
            inner, outer = (inner, middle) if log_integrand(middle) < top - 50 else (middle, outer)
        return outer

    start = end(peak, mpmath.mpf(0)) if log_integrand(mpmath.mpf(0)) < top - 50 else mpmath.mpf(0)
    integral = mpmath.quad(
        lambda s: mpmath.exp(log_integrand(s) - top), mpmath.linspace(start, end(peak, peak + 40), 5)
    )
    return top - mpmath.log(2 * mpmath.pi) / 2 + mpmath.log(integral)


@pytest.mark.parametrize(("x", "y"), POINTS)
def test_log_probabilities_agree_with_quadrature_far_into_the_tails(x: float, y: float) -> None:
    with mpmath.workdps(25):
        expected = [exact_log_probability(x, y), exact_log_probability(y, x)]
        expected.append(mpmath.log(mpmath.ncdf(-x)) + mpmath.log(mpmath.ncdf(-y)))
        found = log_label_probabilities(np.array([x]), np.array([y]))[:, 0]
        assert np.exp(found).sum() == pytest.approx(1.0, abs=1e-14)
        for log_p, exact in zip(found, expected, strict=True):
            assert abs(log_p - exact) < 1e-13 * (1 + abs(exact))


@pytest.mark.parametrize("shift", [1e-7, 1e-5, 0.003, 0.02, 0.7])
def test_log_ratios_keep_their_relative_accuracy_for_small_shifts(shift: float) -> None:
    x, y = 0.3, 0.6
    with mpmath.workdps(25):
        step = mpmath.mpf(shift)
        expected = [
            exact_log_probability(x - step, y + step) - exact_log_probability(x, y),
            exact_log_probability(y + step, x - step) - exact_log_probability(y, x),
        ]
        point = np.array([[(x - y) / np.sqrt(2), (x + y) / np.sqrt(2)]])
        found = label_model(point, np.array([shift])).log_ratio[:2, 0]
        for log_ratio, exact in zip(found, expected, strict=True):
            assert abs(log_ratio / exact - 1) < 1e-12


@pytest.mark.parametrize(("model", "axes"), [(bit_model, 1), (label_model, 2)])
def test_gradients_and_hessians_are_the_derivatives(model, axes) -> None:
    rng = np.random.default_rng(5)
    points, shifts = 3.0 * rng.normal(size=(60, axes)), np.exp(rng.uniform(-6, 1, size=60))
    centre, step = model(points, shifts), 1e-5
    for axis in range(axes):
        offset = step * np.eye(axes)[axis]
        after, before = model(points + offset, shifts), model(points - offset, shifts)
        for value, slope in (("log_p", "slope"), ("log_ratio", "ratio_slope")):
            quotient = (getattr(after, value) - getattr(before, value)) / (2 * step)
            np.testing.assert_allclose(getattr(centre, slope)[axis], quotient, atol=2e-7)
        for slope, bend in (("slope", "bend"), ("ratio_slope", "ratio_bend")):
            quotient = (getattr(after, slope) - getattr(before, slope)) / (2 * step)
            np.testing.assert_allclose(getattr(centre, bend)[axis], quotient, atol=2e-7)


def test_hessians_of_log_probabilities_lie_between_minus_one_and_zero() -> None:
    points = 6.0 * np.random.default_rng(6).normal(size=(3000, 2))
    bend = label_model(points, np.full(3000, 0.1)).bend.transpose(2, 3, 0, 1)
    eigenvalues = np.linalg.eigvalsh(bend)
    assert eigenvalues.max() < 1e-9
    assert eigenvalues.min() > -1 - 1e-9
