"""Bad data sets, none of which passes silently, and good ones, which do."""

import numpy as np
import pytest

from simulations import datasets
from simulations.datasets.dataset import DatasetRequest
from simulations.datasets.doubts import doubts_of, doubts_of_holdings

ROWS = 600


def _good():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, 6)).astype(np.float32)
    y = (x @ [1, -1, 0.5, 0, 0, 0] + rng.normal(size=ROWS) > 0).astype(int)
    return {"x": x, "y": y, "split": np.repeat(["private", "public", "test"], ROWS // 3)}


def _with_column(of):
    good = _good()
    return good | {"x": np.column_stack([good["x"], of(good["y"])]).astype(np.float32)}


def _same(to, source):
    good = _good()
    good["x"][to] = good["x"][source]
    return good


def _coarse():
    """A table whose patients are often alike; a tenth stands twice."""
    rng = np.random.default_rng(1)
    x = np.column_stack([rng.integers(0, most, ROWS) for most in (60, 60, 2, 60)])
    return {"x": x.astype(np.float32), "y": rng.integers(0, 2, ROWS)}


def _load(arrays, tmp_path):
    path = tmp_path / "data.npz"
    np.savez(path, **arrays)
    return datasets.load(str(path), DatasetRequest(seed=0))


ENDS = slice(ROWS - 40, ROWS)
BAD = {
    "the test part has private records": (_same(ENDS, slice(0, 40)), "40 records of 600"),
    "the pool has private records": (_same(slice(200, 240), slice(0, 40)), "40 records of 600"),
    "every record stands twice": ({k: np.concatenate([v, v]) for k, v in _good().items()}, "600 records of 1200"),
    "a tenth of a coarse table stands twice": (
        {k: np.concatenate([v, v[:60]]) for k, v in _coarse().items()}, "records of 660"),
    "a patient's rows stand twice": (
        {k: np.concatenate([v, v[:60]]) for k, v in (_good() | {"patient": np.arange(ROWS) // 2}).items()},
        "60 records of 660 in data.npz are the same as others of the same patient"),
    "a column is constant": (_with_column(lambda y: y * 0), "'feature 6' says nothing"),
    "a number tells the label": (_with_column(lambda y: y + 0.1 * np.arange(ROWS) / ROWS), "'feature 6' tells"),
    "a number tells the label at a limit within a range": (
        _with_column(lambda y: np.where(y, 0, 30) + np.arange(ROWS) % 29), "'feature 6' tells"),
    "a code tells the label": (_with_column(lambda y: y), "'feature 6' tells"),
    "nobody tests a class": (_good() | {"y": np.where(np.arange(ROWS) < 400, _good()["y"], 0)}, "of class 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_bad_data_set_is_doubted(name, tmp_path):
    arrays, said = BAD[name]
    dataset = _load(arrays, tmp_path)
    assert any(said in doubt for doubt in doubts_of(dataset))
    parts = [{each.tobytes() for each in part} for part in (dataset.private_inputs, dataset.test_inputs)]
    assert name.endswith("coarse table stands twice") or not parts[0] & parts[1]


@pytest.mark.parametrize("arrays", [_good(), _coarse()], ids=["fine", "coarse"])
def test_a_good_data_set_is_not(arrays, tmp_path):
    dataset = _load(arrays, tmp_path)
    assert not doubts_of(dataset)
    assert doubts_of_holdings(dataset, [[np.arange(100)], [np.arange(100, 200)]]) == (None, None)


def test_a_site_whose_patients_are_first_seen_elsewhere_is_no_party(tmp_path):
    numbers = np.arange(ROWS)
    dataset = _load(_good() | {"patient": numbers // 2, "site": np.where(numbers % 2, "B", "A")}, tmp_path)
    assert dataset.site_names == ("A",)


def test_hospitals_of_three_records_and_of_one_class_are_doubted(tmp_path):
    dataset = _load(_good(), tmp_path)
    one = np.flatnonzero(dataset.private_labels == 1)
    little, single = doubts_of_holdings(dataset, [[one[:3]], [one[3:]], [np.arange(50)]])
    assert "smallest 3" in little
    assert "1 of 3" in single
