"""Teachers that learn from the public pool, too."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from party.teachers import teacher_kind
from protocols.errors import InvalidInput
from runtime.label_spreading import spread
from tests.harness.refusals import refuses

IMAGES, LABELS = load_digits(return_X_y=True)
IMAGES = (IMAGES / 16).astype(np.float32)
POOL, SHARD = IMAGES[:500], (IMAGES[1000:1020], LABELS[1000:1020].astype(np.int64))


def fit(kind, shard=SHARD):
    return kind.fit([shard], classes=10, seeds=[0])[0]


def test_few_records_and_a_pool_are_more_often_right_than_few_records():
    right = {}
    for name in ("logistic_regression", "label_spreading"):
        teacher = fit(teacher_kind(name).with_pool(POOL))
        right[name] = (teacher.predict(IMAGES[500:1000]) == LABELS[500:1000]).mean()
    assert right["label_spreading"] > right["logistic_regression"] + 0.05


def test_labels_spread_as_a_loop_over_the_graph_says():
    rows = POOL[:40]
    kind = teacher_kind("label_spreading").with_pool(rows)
    nearest = np.argsort(((rows[:, None] - rows[None]) ** 2).sum(axis=2), axis=1, kind="stable")
    edges = np.zeros((40, 40))
    for row in range(40):
        edges[row, [each for each in nearest[row] if each != row][:7]] = 1
    edges = np.maximum(edges, edges.T)
    degree = edges.sum(axis=1)
    given = np.eye(10)[LABELS[:40]]
    found = given.copy()
    for _ in range(60):
        found = np.array(
            [
                sum(0.9 * edges[i, j] / np.sqrt(degree[i] * degree[j]) * found[j] for j in np.flatnonzero(edges[i]))
                + 0.1 * given[i]
                for i in range(40)
            ]
        )
    np.testing.assert_allclose(spread(kind.pool.smooth, given, rounds=60), found, atol=1e-12)


def test_without_a_pool_or_with_another_kind_of_records_nothing_is_trained():
    kind = teacher_kind("label_spreading")
    assert kind.uses_pool
    with pytest.raises(InvalidInput, match="allowed where one is known"):
        fit(kind)
    with refuses(InvalidInput, 63, 64):
        fit(kind.with_pool(POOL[:, 1:]))
    with refuses(InvalidInput, "at least 2"):
        kind.with_pool(POOL[:1])
