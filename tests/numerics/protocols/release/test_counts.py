"""Counts of patients: what each says, what its replacement moves, and how often intervals hold the truth."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats

from coordinator.labelling.study_creation import plan_count
from protocols.errors import InvalidInput
from protocols.noise import lattice_noise
from protocols.release.counts import ANY, EVERYWHERE, counts_csv, counts_of, reach
from protocols.study.count_cells import count_cells
from protocols.study.features import encode_table
from protocols.study.levels import Clear
from protocols.study.terms import Feature
from protocols.sums.contributions import contribution_sum, said, squared_norms
from tests.harness.deployed_records import HOSPITALS, draft
from tests.harness.levels import secure_sum

COLUMNS = (
    Feature(column="age", kind="numeric", centre=50.0, scale=10.0, edges=(40.0, 60.5)),
    Feature(column="sex", kind="categorical", categories=("f", "m")),
)
CLASSES = ("left", "right", "missing")


def count_study(*, level=None, label="side", epsilon=2.0, unit="patient", **terms):
    made = draft(unit=unit, level=level or Clear(units=2**16), epsilon=epsilon, population=400).voting(
        purpose="counts", **terms
    )
    named = CLASSES[:2] if label else ("all",)
    columns = replace(made.terms, features=COLUMNS, input_shape=(3,), label=label, class_names=named)
    return plan_count(replace(made, terms=columns, classes=len(named)))


def table_of(seed, rows=300):
    rng = np.random.default_rng(seed)
    ages = [["39.999", "40", "60.49", "60.5", "77", "?"][at] for at in rng.integers(0, 6, rows)]
    return {"age": ages, "sex": [["f", "m", ""][at] for at in rng.integers(0, 3, rows)]}, rng.integers(0, 3, rows)


def sum_of(study, columns, labels, units):
    cells = count_cells(study.terms).blocks
    inputs = encode_table(columns, study.terms.features, missing=("?", ""), where=str)
    spoken = said(cells, inputs, labels if study.terms.label else np.zeros_like(labels), classes=study.classes)
    weight = round(study.roster[0].weight * study.units)
    return contribution_sum(cells, spoken, units, weight_units=weight, classes=study.classes, mean=True)


def test_numbers_lie_in_the_range_that_begins_at_their_edge_and_missing_values_are_cells_of_their_own():
    study = count_study()
    columns = {"age": ["39.999", "40", "60.49", "60.5", "?", "41"], "sex": ["f", "m", "", "f", "m", "m"]}
    labels = np.array([0, 1, 2, 0, 0, 1])
    found = sum_of(study, columns, labels, np.arange(6)) / study.votes.counted(study)
    rows = {name: found[at] for at, name in enumerate(count_cells(study.terms).rows)}
    assert {name: row.tolist() for name, row in rows.items()} == {
        ("age", "below 40"): [1, 0, 0],
        ("age", "40 to below 60.5"): [0, 2, 1],
        ("age", "60.5 and above"): [1, 0, 0],
        ("age", "missing"): [1, 0, 0],
        ("sex", "f"): [2, 0, 0],
        ("sex", "m"): [1, 2, 0],
        ("sex", "missing"): [0, 0, 1],
    }


def test_a_patient_counts_once_in_each_column_however_many_records_it_has():
    study = count_study()
    columns, labels = table_of(1)
    units = np.random.default_rng(2).integers(0, 40, 300)
    found = sum_of(study, columns, labels, units) / study.votes.counted(study)
    names = [name for name, _ in count_cells(study.terms).rows]
    for column in ("age", "sex"):
        total = found[[name == column for name in names]].sum()
        assert 40 - 40 * 12 / study.votes.counted(study) <= total <= 40


def test_no_patient_moves_a_count_by_more_than_the_square_root_of_two():
    """Every patient of one or two records over all values, against every other: in whole numbers."""
    study = count_study(level=Clear(units=2**10), label="")
    ages, sexes = ("39", "50", "70", "?"), ("f", "m", "")
    records = list(itertools.product(ages, sexes))
    patients = [[one] for one in records] + [list(two) for two in itertools.combinations(records, 2)]
    weight = round(study.roster[0].weight * study.units)
    said_by = []
    for patient in patients:
        rows = [*patient, ("50", "f")]
        columns = {"age": [age for age, _ in rows], "sex": [sex for _, sex in rows]}
        units = np.array([0] * len(patient) + [1])
        both = sum_of(study, columns, np.zeros(len(rows), np.int64), units)
        other = {"age": ["50", "50"], "sex": ["f", "f"]}
        said_by.append((both - sum_of(study, other, np.zeros(2, np.int64), np.arange(2)) // 2).ravel())
    vectors = np.array(said_by)
    assert vectors.min() >= 0
    assert max(squared_norms(vectors)) <= weight**2
    moves = ((vectors[:, None] - vectors[None]) ** 2).sum(axis=2)
    assert 0.99 * 2 * weight**2 < moves.max() <= study.votes.delta_squared * weight**2


@pytest.mark.parametrize(("level", "label"), [("clear", "side"), ("secure_sum", "")])
def test_intervals_hold_the_true_count_in_95_of_100_draws_of_the_noise(level, label):
    """200 draws; the number that hold is binomial. It is below its 1e-6 quantile with that chance, over 14 kinds."""
    kind = (
        Clear(units=2**16)
        if level == "clear"
        else replace(secure_sum(colluders=0, units=1024), seat_keys=secure_sum().seat_keys[:3])
    )
    study = count_study(level=kind, label=label)
    sums = np.stack([sum_of(study, *table_of(at), np.arange(300)) for at in range(3)])
    counted = study.votes.counted(study)
    noise = lattice_noise(np.random.default_rng(7).bytes, units=study.units)
    voted = HOSPITALS[1:]
    held, shown, draws = {}, 0, 200
    seats = np.array([study.seats[name] for name in voted])
    for _ in range(draws):
        tally = study.votes.tally(study, sums[1:], seats)
        _, cells = study.released(tally / study.units, noise, predictions=None)
        for each in counts_of(study, cells, voted=voted):
            at = [i for i, name in enumerate(voted) if each.site in (name, EVERYWHERE)]
            names = count_cells(study.terms).rows
            rows = (
                [i for i, name in enumerate(names) if name == (each.column, each.value)]
                if each.column
                else [0, 1, 2, 3]
            )
            classes = [study.terms.class_names.index(each.label)] if each.label != ANY else list(range(study.classes))
            true = sums[1:][at][:, rows][:, :, classes].sum() / counted
            held[each.site, each.column, each.value, each.label] = held.get(
                (each.site, each.column, each.value, each.label), 0
            ) + (each.low <= true <= each.high)
            shown += each.patients is not None
    least = scipy.stats.binom.ppf(1e-6, draws, 0.95)
    assert min(held.values()) >= least
    assert np.mean(list(held.values())) / draws > 0.945
    assert {site for site, *_ in held} == {EVERYWHERE, *(voted if level == "clear" else ())}
    assert shown


def test_a_count_below_its_noise_is_marked_and_not_printed():
    study = count_study(epsilon=0.1)
    far = reach(study, classes=1)
    cells = np.zeros((study.rows_released, study.classes), np.int64)
    cells[0, 0] = study.votes.counted(study) * (far - 1)
    cells[1, 0] = study.votes.counted(study) * (far + 1)
    below, above = (
        next(each for each in counts_of(study, cells, voted=[HOSPITALS[0]])
             if (each.site, each.value, each.label) == (HOSPITALS[0], value, "left"))
        for value in ("below 40", "40 to below 60.5")
    )  # fmt: skip
    assert (below.patients, below.low) == (None, 0)
    assert above.patients == far + 1
    assert f"{HOSPITALS[0]},age,below 40,left,,0,{below.high},yes" in counts_csv([below])


def test_each_hospitals_table_has_the_whole_noise_and_all_together_that_of_their_sum():
    study = count_study()
    assert study.rows_released == 7 * 3
    noise = lattice_noise(np.random.default_rng(3).bytes, units=study.units)
    draws = [study.released(np.zeros((21, 3)), noise, predictions=None)[1] for _ in range(300)]
    spread = np.std(np.array(draws).reshape(300, 3, 21) / study.units, axis=(0, 2))
    assert spread == pytest.approx(study.votes.sigma, rel=0.05)
    assert len(np.unique(np.array(draws).reshape(-1, 3, 21), axis=0)) == 300


def test_a_patient_of_two_hospitals_costs_less_where_their_counts_are_apart():
    one, apart = (count_study(hospitals_per_patient=most).votes.sigma for most in (1, 2))
    assert apart / one == pytest.approx(2**0.5, rel=1e-3)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"features": ()}, "name no columns"),
        ({"features": (Feature(column="note", kind="text", vectors="grams:64"), COLUMNS[1])}, "is of text"),
        ({"features": (replace(COLUMNS[0], edges=(40.0, 400.0)), COLUMNS[1])}, "within 10 scales"),
    ],
)
def test_columns_that_cannot_be_counted_are_refused(change, words):
    made = draft(unit="patient", level=Clear(units=2**16)).voting(purpose="counts")
    terms = replace(made.terms, **change, input_shape=(sum(each.width for each in change["features"]) or 4,))
    with pytest.raises(InvalidInput, match=words):
        plan_count(replace(made, terms=terms))


def test_hospitals_count_with_one_weight():
    study = count_study()
    roster = (replace(study.roster[0], weight=0.5), *study.roster[1:])
    with pytest.raises(InvalidInput, match="one for all hospitals"):
        replace(study, roster=roster)
