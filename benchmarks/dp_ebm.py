"""DP-EBM: boosted trees of one column each, with noise on their sums (Nori et al. 2021), by the package interpret.

    pip install interpret-core

Its settings are its own. Its epsilon is of neighbours that add or remove a record: every histogram and every sum of
residuals moves by 1 then, and by at most 2 where a record is replaced. So it is given the epsilon at which twice the
moves of all its Gaussian sums are those of one sum at the epsilon of the comparison; its own sums add epsilons of two
phases up, which is looser. Bounds of columns are the pool's.
"""

from __future__ import annotations

import warnings
from typing import Final

import numpy as np

from benchmarks.linear import Labels, Predict, Rows, multiplier_of, scored
from simulations.baselines.method import Score, Task

# The library's own: which share of epsilon is for histograms; delta is halved.
_FOR_BINS: Final = 0.1
_HALVINGS: Final = 60


def dp_ebm(task: Task) -> Score:
    """DP-EBM of tables of two classes; no score for others, and without the package."""
    if task.inputs.dataset.kind == "image" or task.dataset.classes != 2:
        return Score(None, note="is for tables of two classes")
    try:
        import interpret.privacy  # noqa: F401  # whether it is installed
    except ModuleNotFoundError:
        return Score(None, note="needs interpret, which is not installed: pip install interpret-core")
    return scored(fit, as_they_are=True)(task)


def fit(
    private_x: Rows, private_y: Labels, pool_x: Rows, classes: int, epsilon: float, delta: float,
    rng: np.random.Generator,
) -> Predict:  # fmt: skip
    """Raises AssertionError where the package added less noise than this epsilon needs."""
    from interpret.privacy import DPExplainableBoostingClassifier

    low, high = pool_x.min(axis=0), pool_x.max(axis=0)
    model = DPExplainableBoostingClassifier(
        feature_types=["continuous"] * private_x.shape[1],
        privacy_bounds=np.stack([low, np.maximum(high, low + 1e-6)], axis=1),
        epsilon=own_epsilon(2 / multiplier_of(epsilon, delta) / 2, delta),
        delta=delta,
        bin_budget_frac=_FOR_BINS,
        random_state=int(rng.integers(2**31)),
        n_jobs=1,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of a seed, as it would of a release
        model.fit(np.clip(private_x, low, high), private_y)
    assert 2 * moved(model) <= 2 / multiplier_of(epsilon, delta) * (1 + 1e-6)
    return lambda rows: np.asarray(model.predict(np.clip(rows, low, high)), dtype=np.int64)


def own_epsilon(move: float, delta: float) -> float:
    """The package's epsilon at which all its sums together are one that moves by so many standard deviations."""
    from interpret.utils._privacy import calc_gdp_noise_multi

    low, high = 0.0, 1e3
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        shares = (middle * _FOR_BINS, middle * (1 - _FOR_BINS))
        moves = sum(calc_gdp_noise_multi(1, share, delta / 2) ** -2 for share in shares) ** 0.5
        low, high = (middle, high) if moves <= move else (low, middle)
    return low


def moved(model: object) -> float:
    """How many standard deviations adding one record moves all sums together, of the noise that a fitted model had."""
    bins, boosts = model.noise_scale_binning_, model.noise_scale_boosting_  # type: ignore[attr-defined]  # no types
    columns = len(model.feature_names_in_)  # type: ignore[attr-defined]
    rounds = model.max_rounds * columns * model.outer_bags  # type: ignore[attr-defined]
    return float(np.sqrt(columns / bins**2 + rounds * (model.learning_rate / boosts) ** 2))  # type: ignore[attr-defined]
