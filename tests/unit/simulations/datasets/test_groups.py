"""By what test records are told apart: class, site, features read back, and columns that are no feature."""

import numpy as np
import pytest

from protocols.errors import DataCorrupt, InvalidInput
from simulations.datasets import load
from simulations.datasets.columns import categorical, numeric
from simulations.datasets.dataset import Dataset, DatasetRequest
from simulations.datasets.groups import groupings
from simulations.setup.partition import ByTime, partition
from tests.harness.refusals import refuses

COLUMNS = (
    numeric("age", centre=50, scale=10, may_miss=True),
    categorical("sex", ("f", "m"), may_miss=True),
    numeric("stays", centre=1, scale=2, log=True),
)


def dataset(rows, labels):
    inputs = np.array(rows, np.float32)
    return Dataset(
        name="toy", kind="table", class_names=("no", "yes"), columns=COLUMNS,
        private_inputs=inputs, private_labels=np.array(labels), public_inputs=inputs, public_labels=np.array(labels),
        test_inputs=inputs, test_labels=np.array(labels),
    )  # fmt: skip


def named(grouping):
    return [grouping.names[number] for number in grouping.member]


def test_features_are_read_back_as_they_were_in_the_table():
    rows = [[(age - 50) / 10, 0, *sex, (np.log1p(stays) - 1) / 2]
            for age, sex, stays in ((43, (1, 0), 0), (61, (0, 1), 3), (43, (0, 0), 8))]  # fmt: skip
    rows.append([0, 1, 0, 1, 0])
    by_class, age, sex, stays = groupings(dataset(rows, [0, 1, 1, 1]), ["age", "sex", "stays"])
    assert named(by_class) == ["no", "yes", "yes", "yes"]
    assert named(age) == ["43", "61", "43", "missing"]
    assert named(sex) == ["f", "m", "missing", "m"]
    assert named(stays)[:3] == ["0", "3", "8"]


def test_many_numbers_become_quarters():
    rows = [[(age - 50) / 10, 0, 1, 0, 0] for age in range(20, 60)]
    _, age = groupings(dataset(rows, [0] * 40), ["age"])
    assert age.names == ("below 29.75", "29.75 to 39.5", "39.5 to 49.25", "49.25 or more")
    assert np.bincount(age.member).tolist() == [10, 10, 10, 10]
    _, again = groupings(dataset(rows[:15], [0] * 15), ["age"], like=[age])  # 20 to 34: cut where those are
    assert again.names == ("below 29.75", "29.75 to 39.5")
    assert np.bincount(again.member).tolist() == [10, 5]


@pytest.mark.parametrize("distinct", [3, 40])
def test_numbers_that_differ_late_have_different_names(distinct, tmp_path):
    rows = [f"{part},{row % 2},{10_000_000 + row % distinct}" for part in ("private", "public", "test")
            for row in range(40)]  # fmt: skip
    (tmp_path / "own.csv").write_text("\n".join(["part,outcome,ward", *rows]) + "\n")
    (tmp_path / "own.schema.toml").write_text(
        'label = "outcome"\nclasses = ["0", "1"]\nsplit = "part"\n[[feature]]\ncolumn = "ward"\nkind = "numeric"\n'
    )
    _, ward = groupings(load(str(tmp_path / "own.csv"), DatasetRequest(seed=0, groups=("ward",))), ["ward"])
    assert len(set(ward.names)) == len(ward.names) == min(distinct, 4)
    assert np.bincount(ward.member, minlength=len(ward.names)).min() >= 10


def test_a_column_of_texts_is_no_way_to_tell_records_apart(tmp_path):
    rows = [f"private,{row % 2},note {row}" for row in range(9)] + ["public,0,more"]
    rows += [f"test,{row % 2},{'long ' * 9}{row}" for row in range(201)]
    (tmp_path / "own.csv").write_text("\n".join(["part,outcome,note", *rows]) + "\n")
    (tmp_path / "own.schema.toml").write_text(
        'label = "outcome"\nclasses = ["0", "1"]\nsplit = "part"\n[[feature]]\ncolumn = "note"\nkind = "text"\n'
    )
    found = load(str(tmp_path / "own.csv"), DatasetRequest(seed=0, groups=("note",)))
    assert found.test_names["note"].nbytes < 201 * 9
    with refuses(InvalidInput, 201, 200):
        groupings(found, ["note"])
    with refuses(InvalidInput, "class"):
        groupings(load(str(tmp_path / "own.csv"), DatasetRequest(seed=0)), ["note"])


def own_table(folder, times):
    lines = ["hospital,person,seen,skin,age,outcome,part"]
    parts = ["private"] * 6 + ["public", "test", "test"]
    lines += [
        f"h{row % 2},{row // 2},{time},{'dark' if row % 3 else ''},{30 + row},{row % 2},{part}"
        for row, (time, part) in enumerate(zip(times, parts, strict=True))
    ]
    (folder / "own.csv").write_text("\n".join(lines) + "\n")
    (folder / "own.schema.toml").write_text(
        'label = "outcome"\nclasses = ["0", "1"]\nsite = "hospital"\nsplit = "part"\n'
        '[[feature]]\ncolumn = "age"\nkind = "numeric"\n'
    )
    return str(folder / "own.csv")


def test_columns_that_are_no_feature_tell_records_apart_and_order_them(tmp_path):
    days = ["2024-05-03", "2023-01-01", "2024-05-01T23:00", "2024-05-02T00:30+02:00", "2020-02-29", "2024-05-04"]
    path = own_table(tmp_path, [*days, "2019-01-01", "2019-01-01", "2019-01-01"])
    found = load(path, DatasetRequest(seed=0, groups=("skin", "site"), time="seen"))
    _, site, skin = groupings(found, ["skin", "site"])
    assert (named(site), named(skin)) == (["h1", "h0"], ["dark", "dark"])
    dealt = partition(found, parties=3, scheme=ByTime("seen"), seed=0)
    assert [records.tolist() for records in dealt] == [[1, 4], [2, 3], [0, 5]]


def test_years_order_records_too_and_what_is_no_time_is_refused(tmp_path):
    path = own_table(tmp_path, [5, 4, 3, 2, 1, 0, 9, 9, 9])
    found = load(path, DatasetRequest(seed=0, time="seen"))
    assert [records.tolist() for records in partition(found, parties=2, scheme=ByTime("seen"), seed=0)] == [
        [3, 4, 5],
        [0, 1, 2],
    ]
    with refuses(DataCorrupt, "seen", 3, "soon"):
        load(
            own_table(tmp_path, ["2024-05-03", "2024-05-04", "soon", *["2024-05-03"] * 6]),
            DatasetRequest(seed=0, time="seen"),
        )
