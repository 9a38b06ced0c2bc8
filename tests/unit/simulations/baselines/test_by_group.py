"""The worst group of every method, what is lost there, and which groups are compared."""

import numpy as np
import pandas as pd
import pytest

from simulations.baselines.cells import of_groups
from simulations.baselines.table import tidy_groups, worst_groups, worst_rows
from simulations.datasets.groups import Grouping

# Accuracies by seed in groups of 60 and of 40 test records, and in one that has fewer than 20 in one of the seeds.
SHARES = {
    "pooled": [(0.9, 0.8, 1.0), (0.9, 0.8, 1.0), (0.9, 0.8, 1.0)],
    "private": [(0.9, 0.5, 0.0), (0.8, 0.7, 0.0), (0.7, 0.6, 0.0)],
}
T_TWO_DEGREES = 6.2053468  # the quantile of Student's t at 1 - 0.05 / 2 / 2, as two groups are compared


def compared() -> pd.DataFrame:
    return tidy_groups(
        [
            {
                "method": method,
                "epsilon": None if method == "pooled" else 1.0,
                "seed": seed,
                "groups": [
                    {"attribute": "sex", "group": name, "records": records, "accuracy": share}
                    for name, records, share in zip("fmx", (60, 40, 19 + seed), shares, strict=True)
                ],
            }
            for method, seeds in SHARES.items()
            for seed, shares in enumerate(seeds)
        ]
    )


def test_the_worst_group_is_that_of_the_lowest_mean_with_intervals_for_all_that_were_compared():
    found = worst_groups(compared()).set_index("method")
    worst = found.loc["private"]
    assert (worst["group"], worst["compared"]) == ("m", 2)
    assert worst["accuracy"] == pytest.approx(0.6)
    assert worst["accuracy_high"] - worst["accuracy"] == pytest.approx(T_TWO_DEGREES * 0.1 / 3**0.5)
    assert worst["lost"] == pytest.approx(0.2)
    assert worst["lost"] - worst["lost_low"] == pytest.approx(T_TWO_DEGREES * 0.1 / 3**0.5)
    of_seeds = [
        sum(n * (p - q) for n, p, q in zip((60, 40, 19 + seed), SHARES["pooled"][seed], shares, strict=True))
        / (119 + seed)
        for seed, shares in enumerate(SHARES["private"])
    ]
    assert worst["lost_in_all"] == pytest.approx(sum(of_seeds) / 3)
    head, (pooled, private) = worst_rows(found.reset_index())
    assert head[3:5] == ["worst group", "accuracy there"]
    assert private[:6] == ["private", "1", "sex", "m (of 2)", "60.0 ± 35.8 %", "+20.0 ± 35.8"]
    assert pooled[5:] == ["", ""]


def test_a_group_has_the_mean_over_its_records_and_a_method_without_a_model_has_none():
    ward = Grouping("ward", ("a", "b", "c"), np.array([0, 0, 1, 1, 1]))
    assert of_groups(None, [ward]) == []
    assert of_groups(np.array([1.0, 0.5, 0.0, 0.0, 0.75]), [ward]) == [
        {"attribute": "ward", "group": "a", "records": 2, "accuracy": 0.75},
        {"attribute": "ward", "group": "b", "records": 3, "accuracy": 0.25},
    ]
