"""The orders in which teachers are asked about a pool."""

import itertools
import runpy

import numpy as np
import pytest

from coordinator.queries import POOL_ORDERS
from coordinator.queries.questions import in_order, most_covering
from protocols.errors import InvalidInput
from protocols.study.chosen import GIVEN
from tests.harness.distributions import install
from tests.harness.refusals import refuses

RNG = np.random.default_rng(4)
CORNERS = np.array([[0, 0], [0, 9], [9, 0], [9, 9]], np.float32)
POOL = (CORNERS[np.arange(400) % 4] + RNG.normal(size=(400, 2))).astype(np.float32)
NAMED = [GIVEN, "coverage", "centres:4"]


def test_every_order_of_the_table_is_tested() -> None:
    assert {each.partition(":")[0] for each in NAMED} == {GIVEN, *POOL_ORDERS.own}


@pytest.mark.parametrize("named", NAMED)
def test_every_record_is_asked_about_once_and_the_same_seed_gives_the_same_order(named: str) -> None:
    order = in_order(POOL, named, seed=3)
    assert order.dtype == np.int64
    np.testing.assert_array_equal(np.sort(order), np.arange(len(POOL)))
    np.testing.assert_array_equal(order, in_order(POOL, named, seed=3))


@pytest.mark.parametrize("named", ["coverage", "centres:4"])
def test_the_first_questions_are_one_from_the_middle_of_each_cluster(named: str) -> None:
    first = in_order(POOL, named, seed=0)[:4]
    assert set(first % 4) == {0, 1, 2, 3}
    assert np.linalg.norm(POOL[first] - CORNERS[first % 4], axis=1).max() < 1


def covered(questions: np.ndarray, near: np.ndarray) -> float:
    return float(near[questions].max(axis=0).sum())


def test_coverage_takes_the_question_that_adds_most_and_covers_more_than_random_ones() -> None:
    rng = np.random.default_rng(4)
    pool = np.concatenate([POOL[:60], [[40, 40]]]).astype(np.float32)
    distances = np.linalg.norm(pool[:, None] - pool, axis=2)  # of records, and of what stands for them
    near = np.zeros((61, 61))
    for record, row in enumerate(distances):
        closest = np.argsort(row)[:51]  # itself, and 50 others
        near[closest, record] = np.exp(-((row[closest] / row[closest[-1]]) ** 2))
    order = most_covering(pool, number=None, seed=0)
    for count in range(1, 20):
        best = max(covered(np.append(order[: count - 1], each), near) for each in range(61))
        assert covered(order[:count], near) == pytest.approx(best)
    random = [covered(rng.permutation(61)[:8], near) for _ in range(50)]
    assert covered(order[:8], near) > max(random)
    pairs = [covered(np.array(pair), near) for pair in itertools.combinations(range(61), 2)]
    assert covered(order[:2], near) >= (1 - 1 / np.e) * max(pairs)


@pytest.mark.parametrize("rows", [1, 2])
def test_the_smallest_pools_are_covered(rows: int) -> None:
    assert sorted(in_order(POOL[:rows], "coverage", seed=0)) == list(range(rows))


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("nearest", ("questions", "nearest")),
        ("given:3", ("questions", "given:3")),
        ("centres:x", ("questions", "centres:x")),
        ("centres", ("questions", "centres")),
        ("coverage:3", ("questions", "coverage:3")),
        ("centres:1", (1, 2, 400)),
        ("uncertainty:5", ("which is no order of a pool: they are chosen between batches",)),
    ],
)
def test_other_questions_are_refused(named: str, said: str) -> None:
    with refuses(InvalidInput, *said):
        in_order(POOL, named, seed=0)


def test_help_and_refusals_list_an_order_that_another_distribution_registers(tmp_path, monkeypatch) -> None:
    install(tmp_path, name="backwards", group="conclave.questions", entries={"backwards": "backwards:last_first"})
    monkeypatch.syspath_prepend(tmp_path)
    found = runpy.run_module("coordinator.queries.__init__")
    assert "backwards" in found["QUESTIONS_HELP"]
    with refuses(InvalidInput, "backwards"):
        found["parse_questions"]("none")
