"""The label's law and the cost of one pair of histograms, against mpmath at 30 digits."""

from collections import Counter

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

from benchmarks.label_law import label_log_probabilities, log_answered, pair_rdp
from protocols.bounds.label_only import label_rdp, threshold_rdp
from protocols.mechanisms.decision import Decision
from protocols.research.private import Private

# Of the table of worst cases.
ORDERS = np.array([1.05, 1.8609, 2.0, 9.6467, 63.7682, 1024.0])


def law(counts, sigma):
    return label_log_probabilities(np.array([counts], dtype=np.float64), sigma=sigma).for_research()[0]


def reference(counts, sigma, label):
    """ln p_label by the trapezoid rule with steps of 1/24 around the peak of the integrand, with mpmath."""
    n = [mpmath.mpf(float(count)) / mpmath.mpf(float(sigma)) for count in counts]
    rivals = Counter(value for k, value in enumerate(n) if k != label)

    def log_integrand(t):
        logs = (m * mpmath.log(mpmath.erfc((v - t) / mpmath.sqrt(2)) / 2) for v, m in rivals.items())
        return -((t - n[label]) ** 2) / 2 + mpmath.fsum(logs)

    low, high = n[label] - 1, max(n) + 15
    while high - low > 0.05:
        left, right = low + (high - low) * mpmath.mpf("0.382"), low + (high - low) * mpmath.mpf("0.618")
        low, high = (left, high) if log_integrand(left) < log_integrand(right) else (low, right)
    top, total = log_integrand(low), mpmath.mpf(0)
    for direction in (-1, 1):
        for i in range(int(direction < 0), 300):
            term = log_integrand(low + mpmath.mpf(direction * i) / 24) - top
            total += mpmath.exp(term)
            if term < -60:
                break
    return mpmath.log(total / 24) + top - mpmath.log(2 * mpmath.pi) / 2


@pytest.mark.parametrize(
    ("counts", "sigma", "labels"),
    [
        ([60, 40], 10.0, [0, 1]),
        ([100, 50, 30, 20, 10, 5, 5, 5, 3, 2], 40.0, [9]),
        ([173, 0, 0], 1, [0, 2]),
        ([250, 0, 0, 0, 1], 1.0, [1, 4]),
        ([1000] * 50 + [0] * 50, 10.0, [0, 99]),
        ([0.25] * 9999 + [0], 0.5, [0, 9999]),
        ([170, 169.5] + [30] * 998 + [0] * 9000, 1.0, [0, 1, 9999]),
        ([10_000.125, 9_999.5, 0], 10_000, [1, 2]),
    ],
)
def test_probabilities_agree_with_mpmath_down_to_e_to_the_minus_15000(counts, sigma, labels):
    logs = law(counts, sigma)
    with mpmath.workdps(30):
        for label in labels:
            expected = reference(counts, sigma, label)
            # 1e-12 of the probability, and the rounding of a logarithm of this size.
            assert abs(logs[label] - expected) <= 1e-12 + 4 * np.spacing(abs(float(expected)))


def divergence(before, after, orders=ORDERS, *, sigma=10.0, bits=(None, None)):
    rows = [np.atleast_2d(np.asarray(counts, dtype=np.float64)) for counts in (before, after)]
    answered = [None if bit is None else np.atleast_2d(bit) for bit in bits]
    found = pair_rdp(*rows, orders, sigma=sigma, answered_before=answered[0], answered_after=answered[1])
    assert isinstance(found, Private)
    return found.for_research()


@pytest.mark.parametrize(
    ("before", "after", "sigma", "threshold"),
    [
        ([50, 30, 5], [49, 31, 5], 10.0, 60.0),
        ([50, 30, 5], [50, 29.5, 5.5], 10.0, 20.0),
        ([25, 0, 0], [23, 2, 0], 2.0, None),
        ([20, 19, 1], [17, 22, 1], 0.5, 25.0),
    ],
)
def test_both_directions_agree_with_mpmath(before, after, sigma, threshold):
    def outcomes(counts):
        labels = [mpmath.exp(reference(counts, sigma, c)) for c in range(len(counts))]
        assert abs(mpmath.fsum(labels) - 1) < 1e-20
        if threshold is None:
            return labels
        p = mpmath.ncdf((mpmath.mpf(max(counts)) - mpmath.mpf(threshold)) / mpmath.mpf(2 * sigma))
        return [1 - p] + [p * label for label in labels]

    def bit(counts):
        if threshold is None:
            return None
        tested = np.array([float(max(counts))])
        return log_answered(tested, sigma_threshold=2 * sigma, threshold=threshold)

    found = divergence(before, after, sigma=sigma, bits=(bit(before), bit(after)))[:, 0]
    with mpmath.workdps(30):
        p, q = outcomes(before), outcomes(after)
        for side, (first, second) in enumerate(((p, q), (q, p))):
            for order, ours in zip(ORDERS, found[side], strict=True):
                a = mpmath.mpf(float(order))
                total = mpmath.fsum(x**a * y ** (1 - a) for x, y in zip(first, second, strict=True))
                assert ours == pytest.approx(float(mpmath.log(total) / (a - 1)), rel=1e-10)


@pytest.mark.parametrize("floor", [-50.0, 22.0, 33.0, 70.0])
def test_where_one_draw_decides_the_refusal_is_one_outcome_more(floor):
    """Against the exact law of each histogram, class by class; classes of equal counts are one level in the code."""
    before, after = np.array([[30.0, 20, 10, 10, 0]]), np.array([[29.0, 20, 11, 10, 0]])
    found = pair_rdp(before, after, ORDERS, sigma=6.0, answered_before=None, answered_after=None, floor=floor)
    decision, alone = Decision(sigma=6.0, threshold=floor), np.ones(5, dtype=np.int64)
    first, second = (decision.log_law(counts[0], alone) for counts in (before, after))
    want = [
        [logsumexp(order * p + (1 - order) * q) / (order - 1) for order in ORDERS]
        for p, q in ((first, second), (second, first))
    ]
    np.testing.assert_allclose(found.for_research()[:, 0], want, rtol=1e-8, atol=1e-12)


@given(st.lists(st.integers(1, 60), min_size=3, max_size=6), st.floats(0.01, 1.0), st.floats(2.0, 60.0))
@settings(max_examples=40, deadline=None)
def test_a_moved_vote_never_costs_more_than_the_worst_case_and_swapping_sides_swaps_directions(counts, weight, sigma):
    before = np.array([counts], dtype=np.float64)
    after = before.copy()
    after[0, 0] -= weight
    after[0, 1] += weight
    bits = [log_answered(c.max(axis=1), sigma_threshold=3 * sigma, threshold=40.0) for c in (before, after)]
    found = divergence(before, after, sigma=sigma, bits=bits)
    worst = label_rdp(weight / sigma, ORDERS, classes=len(counts)) + threshold_rdp(weight / (3 * sigma), ORDERS)
    assert (found[:, 0] <= worst * (1 + 1e-6) + 1e-15).all()
    assert (found >= 0).all()
    swapped = divergence(after, before, sigma=sigma, bits=bits[::-1])
    np.testing.assert_allclose(swapped, found[::-1], rtol=1e-9, atol=1e-18)
    assert (np.diff(found, axis=2) >= -1e-9 * found[:, :, 1:] - 1e-18).all()
