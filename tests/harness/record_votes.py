"""A small study in which records vote, with its queries and three parties' records."""

import numpy as np

from protocols.features.feature_map import FeatureMap
from protocols.study.query_map import Partition, QueryMap
from protocols.study.record_study import RecordVotesPlan, record_study
from simulations.setup.levels import simulated_level

RNG = np.random.default_rng(11)
POINTS = RNG.normal(size=(12, 3)).astype(np.float32)
QUERIES = QueryMap(
    FeatureMap((3,)),
    (Partition.of(POINTS, columns=np.arange(3), nearest=2), Partition.of(POINTS[:4, :1], columns=np.array([0]))),
)
# Three parties; the patients of the first two have two records each.
HOLDINGS = [
    (RNG.normal(size=(40, 3)).astype(np.float32), RNG.integers(0, 2, 40), np.arange(40) // 2),
    (RNG.normal(size=(30, 3)).astype(np.float32), RNG.integers(0, 2, 30), np.arange(30) // 2),
    (RNG.normal(size=(9, 3)).astype(np.float32), RNG.integers(0, 2, 9), np.arange(9)),
]


def study_of(level="clear", *, unit="record", rule="exhaustive", epsilon=(1.0, 2.0, 1.0)):
    made = simulated_level(
        level,
        units=None if level == "clear" else 1024,
        colluders=1 if level == "secure_sum" else None,
        seats=3,
    )
    plan = RecordVotesPlan(
        name="records", classes=2, unit=unit, population=79, queries=QUERIES, rule=rule, level=made, quorum=3
    )
    return record_study(plan, names=("a", "b", "c"), epsilon=np.array(epsilon), delta=np.full(3, 1e-5))
