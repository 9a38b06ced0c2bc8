"""What each unit contributes, held against a slow, exact reading; how far a unit moves the sum, by brute force."""

from fractions import Fraction
from itertools import combinations_with_replacement, product
from math import isqrt, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.errors import InvalidInput
from protocols.features.feature_map import FeatureMap
from protocols.sums import contributions
from protocols.sums.blocks import NORM_STEPS, TARGET_STEPS, Blocks, Constant, Linear, Nearest, simplex
from protocols.sums.contributions import LARGEST_WEIGHT, contribution_sum, least_weight, said, squared_norms
from tests.harness.record_votes import cell_sum

UNIT = 2**20


def of_units(cells, units, weight, cell_count):
    """Each unit's vector, in exact arithmetic: the sum of its records' votes, scaled down to the weight."""
    for unit in sorted(set(units.tolist())):
        counts = np.bincount(cells[units == unit].ravel(), minlength=cell_count).tolist()
        longest = max(sum(c * c for c in counts), cells.shape[1])
        yield [isqrt(int(Fraction(c * c * weight**2, longest))) for c in counts]


def drawn(seed, records, votes, cell_count, units):
    rng = np.random.default_rng(seed)
    cells = np.stack([rng.permutation(cell_count)[:votes] for _ in range(records)])
    return cells, rng.permutation(np.arange(records) % units)


@given(
    seed=st.integers(0, 2**32), records=st.integers(4, 30), votes=st.integers(1, 4), units=st.integers(2, 4),
    weight=st.sampled_from([2, 3, 1855077841 % 2**20, UNIT, LARGEST_WEIGHT]),
)  # fmt: skip
def test_the_sum_is_that_of_units_whose_norm_is_at_most_the_weight(seed, records, votes, units, weight) -> None:
    cells, named = drawn(seed, records, votes, 6, units)
    each = np.array(list(of_units(cells, named, weight, 6)), dtype=np.int64)
    assert each.min(initial=0) >= 0
    assert max(squared_norms(each), default=0) <= weight**2
    np.testing.assert_array_equal(cell_sum(cells, named, weight_units=weight, cell_count=6), each.sum(axis=0))


@pytest.mark.parametrize(("weight", "votes"), [(1855077841, 2), (UNIT, 3), (5, 7)])
def test_a_record_that_spreads_its_weight_keeps_the_norm_in_integers(weight, votes) -> None:
    """floor(weight/sqrt(votes)) in floats breaks the bound at the first of these."""
    cells = np.stack([np.arange(votes), np.arange(votes)])
    total = cell_sum(cells, None, weight_units=weight, cell_count=votes)
    entry = int(total[0]) // 2
    assert votes * entry**2 <= weight**2 < votes * (entry + 1) ** 2


def test_records_that_are_units_of_their_own_may_be_named_or_not() -> None:
    cells, _ = drawn(3, 50, 2, 10, 50)
    plain = cell_sum(cells, None, weight_units=UNIT, cell_count=10)
    np.testing.assert_array_equal(plain, cell_sum(cells, np.arange(50) + 7, weight_units=UNIT, cell_count=10))


def test_a_patient_with_many_records_in_one_cell_weighs_as_much_as_one_with_one() -> None:
    cells, units = np.array([[0]] * 9 + [[1]]), np.array([5] * 9 + [6])
    assert cell_sum(cells, units, weight_units=UNIT, cell_count=3).tolist() == [UNIT, UNIT, 0]


def test_all_data_of_a_party_as_one_unit_have_the_norm_of_one_vote() -> None:
    cells = np.array([[0], [0], [0], [1], [1], [1], [1]])
    total = cell_sum(cells, np.zeros(7, np.int64), weight_units=UNIT, cell_count=3)
    assert total.tolist() == [isqrt(9 * UNIT**2 // 25), isqrt(16 * UNIT**2 // 25), 0]


@pytest.mark.parametrize(
    ("cells", "units", "weight", "words"),
    [
        ([[0], [3]], None, UNIT, "cells 0 to 3; allowed: 0 to 2"),
        ([[0], [-2]], None, UNIT, "cells -2 to 0"),
        ([[0, 0], [0, 1]], None, UNIT, "one cell twice"),
        ([[0]], None, UNIT, "1 record; allowed: at least 2"),
        ([[0], [1]], None, 0, "weight is 0"),
        ([[0], [1]], None, LARGEST_WEIGHT + 1, "weight is 8589934593"),
        ([[0, 1], [0, 1]], None, 1, "2 cells with a weight of 1"),
    ],
)
def test_what_cannot_be_a_contribution_is_refused(cells, units, weight, words) -> None:
    named = None if units is None else np.array(units)
    with pytest.raises(InvalidInput, match=words):
        cell_sum(np.array(cells), named, weight_units=weight, cell_count=3)


def graded(seed, width=3, rows=4, constant=True):
    """Blocks with signs."""
    rng = np.random.default_rng(seed)
    linear = Linear(
        share=9,
        columns=np.arange(width),
        scales=np.ones(width),
        centre=rng.integers(-500, 500, width),
        matrix=rng.integers(-50, 50, (rows, width)),
    )
    return Blocks(FeatureMap((width,)), (linear, Constant(share=1)) if constant else (linear,))


def slow_unit(phi, psi, weight):
    """One unit's matrix: of its records' phi and psi, in exact arithmetic."""
    total = [0] * (len(phi[0]) * len(psi[0]))
    for one, other in zip(phi, psi, strict=True):
        for at, (x, y) in enumerate(product(one, other)):
            size = abs(x * y) * weight // (NORM_STEPS * TARGET_STEPS)
            total[at] += size if x * y > 0 else -size
    square = sum(x * x for x in total)
    if square > weight**2 and len(phi) > 1:
        total = [(1 if x > 0 else -1) * isqrt(x * x * weight**2 // square) for x in total]
    return total


@given(
    seed=st.integers(0, 2**32), records=st.integers(2, 25), units=st.integers(1, 9), classes=st.integers(2, 5),
    weight=st.sampled_from([7, 1000, UNIT, LARGEST_WEIGHT]), named=st.booleans(),
)  # fmt: skip
def test_a_graded_sum_is_that_of_units_whose_norm_is_at_most_the_weight(
    seed, records, units, classes, weight, named
) -> None:
    rng, blocks = np.random.default_rng(seed), graded(seed)
    values = rng.normal(size=(records, 3)).astype(np.float32)
    labels, whose = rng.integers(0, classes, records), rng.permutation(np.arange(records) % units)
    if not named:
        whose = np.arange(records)
    phi, psi = blocks.phi(values).tolist(), blocks.targets(classes)[labels].tolist()
    each = np.array(
        [
            slow_unit([phi[at] for at in rows], [psi[at] for at in rows], weight)
            for rows in ([at for at in range(records) if whose[at] == unit] for unit in sorted(set(whose.tolist())))
        ]
    )
    assert max(squared_norms(each)) <= weight**2
    spoken = said(blocks, values, labels, classes=classes)
    found = contribution_sum(blocks, spoken, whose if named else None, weight_units=weight, classes=classes)
    assert np.array_equal(found.ravel(), each.sum(axis=0))


def distance_squared(one, other):
    return sum((x - y) ** 2 for x, y in zip(one, other, strict=True))


@pytest.mark.parametrize(("classes", "weight"), [(2, 400), (3, 977)])
def test_no_neighbour_moves_a_graded_sum_by_more_than_two_weights(classes, weight) -> None:
    """Every unit of up to two records on a lattice of inputs against every other; Delta = 2 is nearly reached."""
    blocks, grid = graded(4, width=2), np.array([*product([-1.0, 0.0, 0.7], repeat=2)], np.float32)
    phi, targets = blocks.phi(grid).tolist(), blocks.targets(classes).tolist()
    records = [*product(range(len(grid)), range(classes))]
    units = [
        slow_unit([phi[at] for at, _ in each], [targets[label] for _, label in each], weight)
        for size in (1, 2)
        for each in combinations_with_replacement(records, size)
    ]
    largest = max(distance_squared(one, other) for one in units for other in units)
    assert 3.6 * weight**2 < largest <= 4 * weight**2


def test_nine_records_of_other_classes_against_one_move_two_weights() -> None:
    """One record is at most sqrt(2 C/(C - 1)) from another; a patient's sum points where no record does."""
    ten, weight = simplex(10).tolist(), 10**6
    one = slow_unit([[NORM_STEPS]], [ten[0]], weight)
    nine = slow_unit([[NORM_STEPS]] * 9, ten[1:], weight)
    single = slow_unit([[NORM_STEPS]], [ten[1]], weight)
    assert distance_squared(one, nine) > 3.999 * weight**2
    assert distance_squared(one, single) < 2.23 * weight**2


@given(seed=st.integers(0, 2**32), weight=st.sampled_from([1, 50, UNIT]))
def test_units_without_an_entry_below_zero_move_at_most_root_two_weights(seed, weight) -> None:
    rng = np.random.default_rng(seed)
    phi = rng.integers(0, NORM_STEPS // 3, (12, 5)).tolist()
    psi = (TARGET_STEPS * np.eye(3, dtype=np.int64))[rng.integers(0, 3, 12)].tolist()
    units = [slow_unit(phi[at : at + 3], psi[at : at + 3], weight) for at in range(0, 12, 3)]
    assert max(distance_squared(a, b) for a in units for b in units) <= 2 * weight**2


def test_a_unit_says_the_same_in_any_company() -> None:
    rng, blocks = np.random.default_rng(8), graded(8)
    values, labels = rng.normal(size=(400, 3)).astype(np.float32), rng.integers(0, 3, 400)
    units = rng.integers(0, 150, 400)
    spoken = said(blocks, values, labels, classes=3)
    whole = contribution_sum(blocks, spoken, units, weight_units=UNIT, classes=3)
    rest = units != 17
    without = contribution_sum(
        blocks, said(blocks, values[rest], labels[rest], classes=3), units[rest], weight_units=UNIT, classes=3
    )
    alone = contribution_sum(
        blocks, np.concatenate([spoken[~rest], spoken[~rest][:1] * 0 - 1]), units[~rest][:1].repeat((~rest).sum() + 1),
        weight_units=UNIT, classes=3,
    )  # fmt: skip
    assert np.array_equal(whole - without, alone)
    assert alone.any()


def test_a_unit_of_many_records_is_added_up_in_parts_of_a_bounded_size(monkeypatch) -> None:
    rng, blocks = np.random.default_rng(9), graded(9)
    values, labels = rng.normal(size=(300, 3)).astype(np.float32), rng.integers(0, 3, 300)
    units = np.minimum(np.arange(300), 40)  # one unit has 260 records
    spoken = said(blocks, values, labels, classes=3)
    whole = contribution_sum(blocks, spoken, units, weight_units=UNIT, classes=3)
    most, made, held = 7, contributions._matrices, []

    def matrices(phi, psi, *, weight):
        held.append(len(phi))
        return made(phi, psi, weight=weight)

    monkeypatch.setattr(contributions, "_CHUNK", most * whole.size)
    monkeypatch.setattr(contributions, "_matrices", matrices)
    assert np.array_equal(contribution_sum(blocks, spoken, units, weight_units=UNIT, classes=3), whole)
    assert max(held) == most


def test_a_unit_known_at_several_hospitals_says_a_part_of_the_weight_at_each():
    """Alone it is what a unit of a smaller weight says, to the last integer; together all hospitals see one unit."""
    rng = np.random.default_rng(5)
    for blocks in (graded(1), CELLS):
        values, labels = rng.normal(size=(8, 3)).astype(np.float32), rng.integers(0, 3, 8)
        units, known_at = np.array([0, 0, 1, 1, 2, 3, 3, 3]), np.array([1, 3, 2, 2, 1, 1, 1, 1])
        spoken = said(blocks, values, labels, classes=3)
        whole = contribution_sum(blocks, spoken, units, weight_units=UNIT, classes=3, known_at=known_at)
        parts = [
            contribution_sum(blocks, spoken[rows], units[rows], weight_units=UNIT // j, classes=3)
            for j, rows in ((1, units >= 2), (2, units == 1), (3, units == 0))
        ]
        assert np.array_equal(whole, sum(parts))
        assert squared_norms(parts[2].reshape(1, -1))[0] <= (UNIT // 3) ** 2


CELLS = Blocks(FeatureMap((3,)), (Nearest.of(np.eye(3, dtype=np.float32), columns=np.arange(3)),))


@pytest.mark.parametrize("blocks", [graded(1), CELLS])
def test_records_that_are_not_finite_or_of_no_class_say_nothing(blocks) -> None:
    values = np.ones((6, 3), np.float32)
    values[1, 0], values[2, 1] = np.nan, np.inf
    labels = np.array([0, 0, 1, 2, -1, 0])
    spoken = said(blocks, values, labels, classes=2)
    found = contribution_sum(blocks, spoken, np.array([0, 1, 2, 3, 4, 5]), weight_units=UNIT, classes=2)
    left = contribution_sum(blocks, spoken[[0, 5]], None, weight_units=UNIT, classes=2)
    assert np.array_equal(found, left)
    assert found.any()


@given(
    rows=st.lists(st.lists(st.integers(-(2**50), 2**50), min_size=3, max_size=3), min_size=1, max_size=4),
    small=st.booleans(),
)
def test_squared_norms_are_exact(rows, small) -> None:
    vectors = np.array(rows) // (2**8 if small else 1)
    assert squared_norms(vectors) == [sum(x * x for x in row) for row in vectors.tolist()]


@pytest.mark.parametrize(("entries", "least"), [(1, 100), (640, 2600), (64, 800)])
def test_the_least_weight_is_a_hundred_for_each_root_of_entries(entries, least) -> None:
    assert least_weight(entries) == least >= 100 * sqrt(entries)
