"""The moments accountant of 2017 against the vectors, the papers' votes and high-precision formulas."""

import json
import os
import re
from pathlib import Path

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.moments2017 import MOMENTS as ACCOUNTANTS_MOMENTS
from benchmarks.moments2017 import _log_q_of_lnmax, data_independent, total_log_moments
from protocols.bounds.laplace import laplace_histogram_rdp
from protocols.errors import InvalidInput
from tests.harness.published import moments_to_epsilon
from tests.harness.refusals import refuses

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "accountants.md").read_text(encoding="utf-8")
LNMAX = json.loads((Path(__file__).parents[2] / "vectors" / "lnmax.json").read_text())
MOMENTS = np.array(LNMAX["moments"])
ONE = np.ones(1)


@pytest.mark.parametrize("row", LNMAX["rows"], ids=lambda row: f"{row['h']}-{row['gamma']:g}")
def test_moments_and_q_are_those_of_the_vectors(row):
    counts = np.array([LNMAX["hist"][row["h"]]], float)
    assert np.exp(_log_q_of_lnmax(counts, row["gamma"])[0]) == pytest.approx(row["q"], rel=1e-12)
    total = total_log_moments(counts, MOMENTS, gamma=row["gamma"], sensitivity=ONE).for_research()[0]
    # The reference forms 1 + x before the logarithm and rounds every power, so it is exact to some 1e-15 absolutely.
    np.testing.assert_allclose(total, row["logmgf"], rtol=1e-9, atol=5e-15)
    loose = data_independent(MOMENTS, gamma=row["gamma"], sensitivity=ONE)[0]
    np.testing.assert_allclose(loose, row["logmgf_data_independent"], rtol=1e-12)


@pytest.mark.parametrize(("gamma", "key"), [(0.1, "gamma_0_1"), (0.05, "gamma_0_05")])
def test_the_published_queries_cost_what_was_published(gamma, key):
    folder = Path(os.environ.get("CONCLAVE_DATA", "")) / "pate_votes"
    if not folder.exists():
        pytest.skip("CONCLAVE_DATA has no pate_votes")
    used = np.load(folder / "pate2017" / "mnist_250_teachers_100_indices_used_by_student.npy")
    counts = np.load(folder / "pate2018" / "mnist_250_teachers.npy")[used]
    moments = np.arange(1, 9)
    total = total_log_moments(counts, moments, gamma=gamma, sensitivity=ONE).for_research()
    value, _ = moments_to_epsilon(total[0], moments, delta=1e-5)
    assert value == pytest.approx(LNMAX["real_votes"][key], rel=1e-12)
    # The accountant may choose among more moments than the published program (docs/reference/accountants.md).
    total = total_log_moments(counts, ACCOUNTANTS_MOMENTS, gamma=gamma, sensitivity=ONE).for_research()
    value, _ = moments_to_epsilon(total[0], ACCOUNTANTS_MOMENTS, delta=1e-5)
    said = re.search(r"moments 1 to 128 as `run` and `analyse` take \| epsilon ([\d.]+) and ([\d.]+) \|", PAGE)
    assert said is not None
    assert f"{value:.3f}" == said[1 if gamma == 0.1 else 2]
    assert f"| epsilon {LNMAX['real_votes'][key]!r} |" in PAGE


def theorem_3(counts, gamma, weight, moment):
    """Papernot et al. 2017, Theorems 2 and 3 and Lemma 4, straight, in 400 digits."""
    with mpmath.workdps(400):
        n, g, w = [mpmath.mpf(x) for x in counts], mpmath.mpf(gamma), mpmath.mpf(weight)
        top = max(range(len(n)), key=lambda i: n[i])
        q = sum((2 + g * (n[top] - x)) / (4 * mpmath.exp(g * (n[top] - x))) for i, x in enumerate(n) if i != top)
        q = min(q, 1 - mpmath.mpf(1) / len(n))
        level = 2 * g * w
        best = min(level**2 / 2 * moment * (moment + 1), level * moment)
        if q < 1 / (mpmath.exp(level) + 1):
            inner = (1 - q) * ((1 - q) / (1 - mpmath.exp(level) * q)) ** moment + q * mpmath.exp(level * moment)
            best = min(best, mpmath.log(inner))
        return float(best)


@settings(deadline=None, max_examples=80)
@given(
    counts=st.lists(st.integers(0, 400), min_size=2, max_size=8),
    gamma=st.floats(1e-3, 2),
    weight=st.floats(0.1, 4),
    moment=st.integers(1, 300),
)
def test_every_moment_is_what_the_theorems_say_in_400_digits(counts, gamma, weight, moment):
    mine = total_log_moments(
        np.array([counts], float), np.array([moment]), gamma=gamma, sensitivity=weight * ONE
    ).for_research()
    assert mine[0, 0] == pytest.approx(theorem_3(counts, gamma, weight, moment), rel=1e-9, abs=1e-250)


@given(gamma=st.floats(1e-4, 2), weight=st.floats(0.1, 4), moment=st.integers(1, 1000))
def test_worst_case_rdp_is_never_above_the_data_independent_moments(gamma, weight, moment):
    rdp = laplace_histogram_rdp(weight * ONE, np.array([moment + 1.0]), gamma=gamma)[0, 0]
    assert moment * rdp <= data_independent(np.array([moment]), gamma=gamma, sensitivity=weight * ONE)[0, 0] * (
        1 + 1e-9
    )


def test_a_moment_of_0_is_refused():
    with refuses(InvalidInput, "moments", "[0]"):
        data_independent(np.array([0]), gamma=0.1, sensitivity=ONE)
