"""Labels of a pool from records of one's own: the simulator's own code, and what is refused."""

import csv

import numpy as np
import pytest

import conclave
from simulations.commands.group import run_command

RNG = np.random.default_rng(2)
RECORDS = [RNG.normal(size=(size, 3)).astype(np.float32) for size in (80, 40, 60)]
LABELS = [(each[:, 0] > 0).astype(int) for each in RECORDS]
POOL = RNG.normal(size=(90, 3)).astype(np.float32)
TRUTH = (POOL[:, 0] > 0).astype(int)


def by_records(records=RECORDS, labels=LABELS, pool=POOL, **more):
    given = {"epsilon": 1.0, "delta": 1e-5, "unit": "record", "truth": TRUTH}
    return conclave.label_by_records(records, labels, pool, **(given | more))


def test_labels_and_spends_are_those_of_the_command_for_the_same_records(tmp_path, monkeypatch):
    # No copies of the pool, which would be left out.
    others = np.random.default_rng(3).normal(size=(2, 3)).astype(np.float32)
    rows = np.concatenate([*RECORDS, POOL, others])
    labels = np.concatenate([*LABELS, TRUTH, [0, 1]])
    part = ["private"] * 180 + ["public"] * 90 + ["test"] * 2
    sites = [name for name, size in zip("abc", (80, 40, 60), strict=True) for _ in range(size)] + ["a"] * 92
    with (tmp_path / "own.csv").open("w") as file:
        writer = csv.writer(file)
        writer.writerow(["x", "y", "z", "label", "part", "site"])
        for row, label, which, site in zip(rows, labels, part, sites, strict=True):
            writer.writerow([*(f"{value:.9g}" for value in row), label, which, site])
    columns = "".join(
        f'[[feature]]\ncolumn = "{name}"\nkind = "numeric"\ncentre = 0.0\nscale = 1.0\n' for name in "xyz"
    )
    (tmp_path / "own.schema.toml").write_text(
        f'label = "label"\nclasses = ["0", "1"]\nsplit = "part"\nsite = "site"\n{columns}'
    )
    monkeypatch.setenv("CONCLAVE_CACHE", str(tmp_path / "cache"))
    flags = ["--votes-by", "record", "--dataset", str(tmp_path / "own.csv"), "--partition", "by-site", "--budgets", "8"]
    flags += ["--student", "none", "--no-baselines", "--engine", "in_process", "--workers", "1", "--quiet"]
    assert run_command(["run", *flags, "--out", str(tmp_path / "out")]) == 0
    import pandas as pd

    sums = pd.read_parquet(tmp_path / "out" / "sums.parquet").votes.to_numpy()
    found = by_records(epsilon=8.0)
    np.testing.assert_array_equal(np.concatenate([found.sums, found.again]).ravel(), sums)
    pool = pd.read_parquet(tmp_path / "out" / "pool.parquet")
    np.testing.assert_array_equal(found.probabilities[:, 1], pool.probability_1)
    np.testing.assert_allclose(found.epsilon_spent, 8, rtol=1e-6)
    assert by_records(epsilon=8.0, residuals=False).again is None


def test_patients_of_two_parties_with_one_number_are_two_units():
    patients = [np.arange(len(each)) // 2 for each in RECORDS]
    found = by_records(unit="patient", patients=patients)
    assert found.study.votes.population == 90
    assert found.noise == by_records().noise
    assert not np.array_equal(found.sums, by_records().sums)


def test_patients_whose_numbers_float64_does_not_hold_stay_apart():
    small = [np.arange(len(each)) // 2 for each in LABELS]
    found, wanted = (by_records(unit="patient", patients=each) for each in ([2**60 + of for of in small], small))
    np.testing.assert_array_equal(found.sums, wanted.sums)
    with pytest.raises(conclave.InvalidInput, match="allowed: from"):
        by_records(unit="patient", patients=[2.0**60 + of for of in small])


def test_the_noise_is_that_of_what_is_released():
    assert by_records(confidentiality="two_server").noise == pytest.approx(2**0.5 * by_records().noise)


def test_features_are_chosen_for_the_budgets_that_are_given_also_of_a_single_party():
    rows, pool = RNG.normal(size=(1600, 12)), RNG.normal(size=(600, 12))
    given = {"records": [rows], "labels": [(rows[:, :3].sum(axis=1) > 0).astype(int)], "pool": pool, "truth": None}
    few, more = (by_records(**given, epsilon=epsilon).study.votes.queries for epsilon in (0.02, 2.0))
    assert few < more


def test_a_larger_budget_weighs_more_and_every_budget_is_spent_whole():
    table = by_records(epsilon=[0.5, 1.0, 2.0]).to_pandas()
    assert table.weight.is_monotonic_increasing
    assert (table.epsilon_spent <= table.epsilon_guaranteed).all()
    np.testing.assert_allclose(table.epsilon_spent, [0.5, 1, 2], rtol=0.01)


def test_with_uniform_weights_every_party_spends_what_the_smallest_budget_affords():
    table = by_records(epsilon=[0.5, 1.0, 2.0], weights="uniform").to_pandas()
    np.testing.assert_allclose(table.epsilon_spent[0], 0.5, rtol=0.01)
    assert (table.epsilon_spent[1:] < 0.6).all()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"records": RECORDS[:2]}, "records are of 2 parties and labels of 3"),
        ({"pool": POOL[:, :2]}, r"records\[0\] has shape \(80, 3\)"),
        ({"labels": [LABELS[0][:5], *LABELS[1:]]}, r"labels\[0\] has shape \(5,\)"),
        ({"labels": [LABELS[0] - 1, *LABELS[1:]]}, "allowed: 0 to 1"),
        ({"records": [np.full((80, 3), np.nan), *RECORDS[1:]]}, "NaN"),
        ({"unit": "patient"}, "names no patients"),
        ({"epsilon": [1.0, 2.0]}, "one for each of 3 parties"),
        ({"sigma": 3.0}, "sigma has no effect where records vote"),
        ({"record_queries": "clusters:1"}, "1 queries are asked for"),
        ({"patients": LABELS}, "allowed with unit 'patient' only"),
        ({"labels": [LABELS[0] * 10**7, *LABELS[1:]]}, "allowed: up to 10000"),
        ({"records": [np.ma.masked_greater(RECORDS[0], 0), *RECORDS[1:]]}, "masked values"),
    ],
)
def test_what_cannot_vote_is_refused(more, words):
    with pytest.raises(conclave.InvalidInput, match=words):
        by_records(**more)
