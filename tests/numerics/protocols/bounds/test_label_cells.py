"""A cell's bound must hold everywhere in the cell, and be near the truth for small cells."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.bounds.label_cones import bit_model, label_model
from protocols.bounds.label_supremum import Problems, cell_bounds, raised, supremum


@pytest.mark.parametrize(("model", "axes"), [(bit_model, 1), (label_model, 2)])
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_no_point_of_a_cell_exceeds_the_cells_bound(model, axes, data) -> None:
    shift = 10 ** data.draw(st.floats(-6, 0.7))
    beta = min(10 ** data.draw(st.floats(-2, 3)), 20 / shift)
    radius = 2.0 ** -data.draw(st.integers(1, 9))
    # Where the supremum is sought: between the point and its tilted mean.
    centre = np.array([data.draw(st.floats(-8 - beta * shift, 8 + beta * shift)) for _ in range(axes)])
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    inside = centre + radius * rng.uniform(-1, 1, size=(40, axes))
    inside[:8] = centre + radius * rng.choice([-1.0, 1.0], size=(8, axes))
    points = np.concatenate([centre[None], inside])
    shifts, orders = np.full(len(points), shift), np.full(len(points), 1 + beta)
    value, bound = cell_bounds(model(points, shifts), shifts, orders, radius)
    assert (value <= bound[0] * (1 + 1e-9)).all()


def test_the_bounds_surplus_falls_with_the_cube_of_the_radius() -> None:
    shifts, orders = np.full(1, 0.02), np.full(1, 9.0)
    centre = np.array([[0.4, 1.1]])
    surplus = []
    for radius in (0.02, 0.01):
        _, bound = cell_bounds(label_model(centre, shifts), shifts, orders, radius)
        grid = centre + radius * np.stack(np.meshgrid(*[np.linspace(-1, 1, 41)] * 2), axis=-1).reshape(-1, 2)
        many = np.full(len(grid), 1.0)
        value, _ = cell_bounds(label_model(grid, 0.02 * many), 0.02 * many, 9.0 * many, radius)
        surplus.append(bound[0] / value.max() - 1)
    assert surplus[0] < 1e-3
    # Between the squares (4) that the Hessian's off-diagonal element leaves and the cubes (8).
    assert 3.0 < surplus[0] / surplus[1] < 9.0


def test_a_supremum_is_found_wherever_it_lies_in_the_box() -> None:
    """With a bit of shift d and order 2 the maximum is near g = -d/2 ... 0; boxes around it must agree."""
    shifts, orders = np.full(3, 0.3), np.full(3, 2.0)
    low, high = np.array([[-3.0], [-7.9], [-1.13]]), np.array([[3.0], [2.2], [9.7]])
    problems = Problems(shifts, orders, low, high, np.zeros(3), 1e-6)
    found = supremum(problems, bit_model, lambda _owner, centres, _radius: np.full(len(centres), np.inf))
    assert np.ptp(found) <= 1e-6 * found.max()


@given(growth=st.floats(1e-14, 1e6), tolerance=st.floats(1e-7, 1e-3))
def test_raised_adds_the_tolerance_to_the_divergence(growth: float, tolerance: float) -> None:
    up = raised(np.array([growth]), tolerance)[0]
    assert np.log1p(up) == pytest.approx(np.log1p(growth) * (1 + tolerance), rel=20 * tolerance**2 + 1e-9)
