"""Features of graded votes follow from public figures: more of them where there is less noise."""

import inspect

import numpy as np
import pytest

from protocols.features.feature_map import FeatureMap
from protocols.sums.blocks import NORM_STEPS, Blocks, Nearest
from protocols.sums.choice import choose, explained, how_many_cells, prior_kernel


def a_pool(records: int = 300, width: int = 40, seed: int = 0):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((records, width)) * 0.8 ** np.arange(width)).astype(np.float32)


def chosen(noise: float, *, pool=None, classes: int = 3, table: bool = True, centres=None) -> Blocks:
    pool = a_pool() if pool is None else pool
    return choose(
        pool, FeatureMap((pool.shape[1],)), units=5000, noise=noise, classes=classes, table=table, centres=centres
    )


def test_the_choice_is_a_function_of_public_figures_alone() -> None:
    assert set(inspect.signature(choose).parameters) == {
        "pool", "features", "units", "noise", "classes", "table", "centres"
    }  # fmt: skip
    assert chosen(0.01).digest == chosen(0.01).digest


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e4])
def test_features_of_any_size_are_told_apart(size) -> None:
    pool = (a_pool() * size).astype(np.float32)
    phi = chosen(0.01, pool=pool).phi(pool)
    norms = np.sqrt((phi.astype(float) ** 2).sum(axis=1)) / NORM_STEPS
    assert norms.max() <= 1
    assert norms.min() > 0.99
    assert len(np.unique(phi, axis=0)) == len(pool)


def test_cells_stand_beside_components_where_they_explain_clearly_more() -> None:
    rng = np.random.default_rng(0)
    # Far apart from each other, in more directions than components hold apart.
    middle = rng.standard_normal((50, 8)) * 3
    pool = (middle[rng.integers(0, 50, 2000)] + 0.05 * rng.standard_normal((2000, 8))).astype(np.float32)
    quiet = chosen(1e-4, pool=pool, centres=middle.astype(np.float32))
    loud = chosen(0.1, pool=pool, centres=middle.astype(np.float32))
    assert any(isinstance(each, Nearest) for each in quiet.blocks)
    assert not any(isinstance(each, Nearest) for each in loud.blocks)
    assert how_many_cells(100) == 0
    assert how_many_cells(10**6) <= 400


def test_what_is_explained_is_between_nothing_and_all_and_falls_with_noise() -> None:
    pool = a_pool().astype(float)
    phi = chosen(0.01).phi(a_pool()) / NORM_STEPS
    told = [
        explained(phi, prior_kernel(pool), classes=3, units=5000, noise=noise, pool=300)
        for noise in (1e-5, 1e-2, 1e-1, 10)
    ]
    assert told == sorted(told, reverse=True)
    assert 0 < told[-1] < told[0] < 1
