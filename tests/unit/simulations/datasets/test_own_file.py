"""A person's own file: read as its schema says, refused with column and row where it is not."""

import tomllib

import numpy as np
import pandas as pd
import pytest

from protocols.errors import DataCorrupt, DataUnavailable, InvalidInput
from simulations import datasets
from simulations.datasets.dataset import DatasetRequest
from tests.harness.refusals import refuses
from tests.harness.simulating import run

SCHEMA = """
label = "outcome"
classes = ["no", "yes"]
site = "hospital"
patient = "person"

[[feature]]
column = "age"
kind = "numeric"
centre = 50
scale = 10

[[feature]]
column = "dose"
kind = "numeric"
may_miss = true

[[feature]]
column = "sex"
kind = "categorical"
categories = ["f", "m"]
"""


def _table(rows=120):
    rng = np.random.default_rng(0)
    person = rng.integers(0, rows // 2, rows)
    return pd.DataFrame(
        {
            "outcome": np.where(rng.random(rows) < 0.3, "yes", "no"),
            "hospital": [f"H{number % 3}" for number in person],
            "person": person,
            "age": rng.integers(20, 90, rows),
            "dose": np.where(rng.random(rows) < 0.2, np.nan, rng.normal(5, 2, rows)),
            "sex": rng.choice(["f", "m"], rows),
            "note": "not a feature",
        }
    )


def _load(path, schema_text=SCHEMA, **options):
    if schema_text is not None:
        path.with_suffix(".schema.toml").write_text(schema_text)
    return datasets.load(str(path), DatasetRequest(**({"seed": 0} | options)))


@pytest.fixture
def csv(tmp_path):
    path = tmp_path / "clinic.csv"

    def write(change=lambda table: table):
        change(_table()).to_csv(path, index=False)
        return path

    return write


def test_a_table_becomes_features_as_its_schema_says(csv):
    dataset = _load(csv())
    assert (dataset.name, dataset.kind, dataset.class_names) == ("clinic", "table", ("no", "yes"))
    assert dataset.private_inputs.shape[1] == 1 + 2 + 2
    counts = [len(part) for part in (dataset.private_labels, dataset.public_labels, dataset.test_labels)]
    assert counts[1:] == [30, 18]
    assert 60 <= counts[0] <= 72
    table = _table()
    ages = (table["age"] - 50) / 10
    assert set(np.round(dataset.private_inputs[:, 0], 3)) <= set(np.round(ages.astype(np.float32), 3))
    missing = dataset.public_inputs[:, 2] == 1
    assert 0 < missing.sum() < 30
    assert (dataset.public_inputs[missing, 1] == 0).all()
    assert dataset.public_inputs[~missing, 1].mean() == pytest.approx(0, abs=1e-5)
    assert dataset.public_inputs[~missing, 1].std() == pytest.approx(1, abs=1e-5)
    assert (dataset.private_inputs[:, 3:].sum(axis=1) == 1).all()
    assert dataset.site_names == ("H0", "H1", "H2")
    assert dataset.private_sites is not None
    assert dataset.private_patients is not None


def test_csv_and_parquet_give_the_same_data_set(csv, tmp_path):
    table = _table()
    path = tmp_path / "clinic.parquet"
    table.assign(sex=table["sex"].astype("category")).to_parquet(path)
    one, other = _load(csv()), _load(path)
    np.testing.assert_allclose(one.private_inputs, other.private_inputs, atol=1e-6)
    np.testing.assert_array_equal(one.private_patients, other.private_patients)
    np.testing.assert_array_equal(one.test_labels, other.test_labels)


def test_a_patient_whose_name_is_written_in_several_ways_is_one(csv):
    one = _load(csv(), SCHEMA)
    written = [" {}", "00{}", "{}.0", "{}\u200b"]
    other = _load(
        csv(lambda table: table.assign(person=[written[at % 4].format(each) for at, each in enumerate(table.person)])),
        SCHEMA,
    )
    np.testing.assert_array_equal(one.private_patients, other.private_patients)
    np.testing.assert_array_equal(one.private_inputs, other.private_inputs)


def test_patients_are_never_in_two_parts(csv):
    def unique_age(table):
        return table.assign(age=table["person"] / 1000)

    dataset = _load(csv(unique_age), SCHEMA.replace("centre = 50\nscale = 10", "centre = 0\nscale = 1"))
    people = [set(part[:, 0]) for part in (dataset.private_inputs, dataset.public_inputs, dataset.test_inputs)]
    assert sum(map(len, people)) == len(set.union(*people))


def test_private_rows_do_not_shape_the_features(csv):
    schema = SCHEMA.replace('patient = "person"', 'patient = "person"\nsplit = "part"')

    def parted(table):
        part = np.select([table["person"] % 4 == 0, table["person"] % 4 == 1], ["public", "test"], "private")
        return table.assign(part=part)

    def outlier(table):
        table = parted(table)
        table.loc[table["part"] == "private", "dose"] *= 1000
        return table

    calm, wild = _load(csv(parted), schema), _load(csv(outlier), schema)
    np.testing.assert_array_equal(calm.public_inputs, wild.public_inputs)
    np.testing.assert_array_equal(calm.test_inputs, wild.test_inputs)
    assert not np.array_equal(calm.private_inputs, wild.private_inputs)


def test_a_split_column_is_followed_and_sizes_take_its_first_rows(csv):
    schema = SCHEMA.replace('patient = "person"', 'split = "part"')
    part = np.repeat(["private", "public", "test"], 40)
    dataset = _load(csv(lambda table: table.assign(part=part)), schema, public_size=7, private_size=10)
    labels = (_table()["outcome"] == "yes").to_numpy(dtype=np.int64)
    np.testing.assert_array_equal(dataset.public_labels, labels[40:47])
    np.testing.assert_array_equal(dataset.test_labels, labels[80:])
    assert len(dataset.private_labels) == 10
    with refuses(InvalidInput, "public_size", 41, 1, 40):
        _load(csv(lambda table: table.assign(part=part)), schema, public_size=41)
    with refuses(DataCorrupt, 120, 0):
        _load(csv(lambda table: table.assign(part="private")), schema)
    with refuses(DataCorrupt, "part", 1, "train"):
        _load(csv(lambda table: table.assign(part="train")), schema)
    with pytest.raises(DataCorrupt, match=r"\d+ patients have records in several parts"):
        _load(csv(lambda table: table.assign(part=part)), 'patient = "person"\n' + schema)


def test_a_pool_is_in_random_order_however_the_file_is_sorted(csv):
    dataset = _load(csv(lambda table: table.sort_values("outcome")), SCHEMA.replace('patient = "person"', ""))
    assert len(set(dataset.public_labels[:8])) == 2


def test_rows_without_a_label_are_left_out_where_the_schema_says_so(csv):
    labelled = _load(csv(lambda table: table.iloc[5:]))
    some = _load(csv(lambda table: _set("outcome", slice(0, 4), "?")(table)), "only_labelled = true" + SCHEMA)
    np.testing.assert_array_equal(some.private_inputs, labelled.private_inputs)
    np.testing.assert_array_equal(some.public_labels, labelled.public_labels)
    assert (some.site_names, some.about) == (labelled.site_names, labelled.about)
    with refuses(DataCorrupt, "clinic.csv"):
        _load(csv(lambda table: table.assign(outcome="?")), "only_labelled = true" + SCHEMA)


def _set(column, row, value):
    def change(table):
        table = table.astype({column: object})
        table.loc[row, column] = value
        return table

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.drop(columns="age"), "column 'age' occurs 0 times; allowed: once"),
        (_set("age", 17, np.nan), "column 'age', row 18: missing; allowed: a finite number"),
        (_set("dose", 4, "high"), "column 'dose', row 5: 'high'; allowed: a finite number or missing"),
        (_set("sex", 5, "x"), "column 'sex', row 6: 'x'; allowed: f, m"),
        (_set("outcome", 6, "maybe"), "column 'outcome', row 7: 'maybe'; allowed: no, yes"),
        (_set("hospital", 7, np.nan), "column 'hospital', row 8: missing"),
        (lambda table: table.iloc[:0], "has no rows"),
    ],
)
def test_a_table_that_is_not_what_its_schema_says_is_refused(change, message, csv):
    with refuses(DataCorrupt, "clinic.csv", message):
        _load(csv(change))


def test_unreadable_and_absent_files_and_schemas_are_told_apart(tmp_path, csv):
    for name, content in (("a.csv", b"\xff\xfe\x00x"), ("a.parquet", b"PAR1 no"), ("b.csv", b"")):
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(DataCorrupt, match=f"{name} (cannot be read|has no header)"):
            _load(path)
    separated = tmp_path / "c.csv"
    separated.write_text("age;sex;dose\n3,5;f;1\n", "utf-8")
    said = r"the columns seem to be separated by ';'; allowed: .* ','\. `conclave-simulate schema .*c\.csv` says how"
    with pytest.raises(DataCorrupt, match=said):
        _load(separated)
    with refuses(DataUnavailable, "none.csv"):
        _load(tmp_path / "none.csv", None)
    with refuses(DataUnavailable, "clinic.schema.toml"):
        _load(csv(), None)
    other = tmp_path / "other.toml"
    other.write_text(SCHEMA)
    assert _load(csv(), None, schema=other).name == "other"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('label = "outcome"', "", "allowed: label = COLUMN"),
        ('["no", "yes"]', '["no"]', "classes lists 1; allowed: at least 2"),
        ('site = "hospital"', 'centre = "hospital"', "unknown key 'centre'; allowed: classes, feature"),
        ('kind = "categorical"', 'kind = "image"', "feature 3.kind is 'image'; allowed: numeric, categorical, text"),
        ("may_miss = true", "may_miss = 1", "may_miss is '1'; allowed: true or false"),
        ("scale = 10", "scale = 0", "scale is 0.0; allowed: above 0"),
        ("scale = 10", "scale = 10\ncategories = []", "unknown key 'feature 1.categories'"),
        ('column = "dose"', 'column = "outcome"', "columns outcome are named twice"),
        ('categories = ["f", "m"]', "categories = []", "categories is empty"),
        ('patient = "person"', "[shares]\nprivate = 0.5\npublic = 0.5\ntest = 0.1", "with sum 1"),
        ('label = "outcome"', "label = ", "is not TOML: Invalid value"),
    ],
)
def test_a_wrong_schema_is_refused(old, new, message, csv):
    assert old in SCHEMA
    with refuses(InvalidInput, "clinic.schema.toml", message):
        _load(csv(), SCHEMA.replace(old, new))


@pytest.mark.parametrize("suffix", [".csv.gz", ".parquet"])
def test_a_proposed_schema_reads_the_file_that_it_was_proposed_from(tmp_path, capsys, suffix):
    path, schema = tmp_path / f"clinic{suffix}", tmp_path / "clinic.schema.toml"
    table = _table().assign(note=[f"free text {row}" for row in range(120)], country="NL", bed=["a", "b\nc"] * 60)
    table.to_parquet(path) if suffix == ".parquet" else table.to_csv(path, index=False)
    with refuses(DataUnavailable, "FILE", "--out", "clinic.schema.toml"):
        _load(path, None)
    assert run("schema", path, "--out", schema) == 0
    assert 'numbers nor few categories (--text COLUMN for notes): "note"' in schema.read_text()
    assert 'as all records have the same value: "country"' in schema.read_text()
    assert 'control characters: mend them: "bed"' in schema.read_text()
    dataset = _load(path, None)
    assert dataset.class_names == ("no", "yes")
    # Age, dose with whether it is missing, two categories.
    assert dataset.private_inputs.shape[1] == 1 + 2 + 2
    assert dataset.private_patients is not None
    assert dataset.site_names == ("H0", "H1", "H2")
    assert run("schema", path, "--out", schema) == 2
    assert run("schema", path, "--text", "note", "--out", schema.with_name("text.toml")) == 0
    assert _load(path, None, schema=schema.with_name("text.toml")).private_inputs.shape[1] == 1 + 2 + 2 + 2048
    assert run("schema", path, "--text", "absent") == 2
    assert run("schema", path, "--label", "note") == 2
    assert run("schema", path, "--label", "absent") == 2
    assert "columns of" in capsys.readouterr().err


WRITTEN = {
    "semicolons.csv": {"sep": ";", "decimal": ",", "encoding": "cp1252"},
    "tabs.tsv": {"sep": "\t", "encoding": "utf-16"},
    "marked.csv.gz": {"encoding": "utf-8-sig"},
}


@pytest.mark.parametrize("name", WRITTEN)
def test_however_a_table_is_written_its_proposed_schema_reads_the_same(name, tmp_path):
    table = _table().assign(dose=lambda table: table["dose"].round(2), sex=lambda table: table["sex"] + "é")
    words = table["dose"].map(lambda dose: f"{dose:.2f}".replace(".", WRITTEN[name].get("decimal", ".")))
    written = table.assign(dose=words.where(table["dose"].notna(), "n/a"))
    path, plain = tmp_path / name, tmp_path / "plain.csv"
    written.to_csv(path, index=False, **WRITTEN[name])
    table.to_csv(plain, index=False)
    loaded = []
    for each in (path, plain):
        schema = each.with_name(f"{each.name}.toml")
        assert run("schema", each, "--out", schema) == 0
        loaded.append(_load(each, None, schema=schema))
    np.testing.assert_array_equal(loaded[0].private_inputs, loaded[1].private_inputs)
    np.testing.assert_array_equal(loaded[0].test_labels, loaded[1].test_labels)
    assert loaded[0].columns == loaded[1].columns


def test_a_register_is_proposed_by_the_look_and_the_repetition_of_its_columns(tmp_path, capsys):
    rng, rows = np.random.default_rng(0), 900
    table = pd.DataFrame({
        "outcome": rng.choice(["no", "yes"], rows), "encounter": 500_000 + np.arange(rows),
        "pat_no": 10_000 + rng.integers(0, 400, rows), "treating_hospital": rng.choice([1170, 2034, 7781], rows),
        "drg": rng.choice([101, 255, 904], rows), "payer": rng.choice(["01", "02", "07"], rows),
        "diagnosis": [f"I{code:02}" for code in rng.integers(0, 87, rows)], "age": rng.integers(18, 95, rows),
        "systolic": rng.integers(100, 180, rows) // 5 * 5, "height": rng.integers(150, 190, rows),
        "remark": [f"text {rng.random()}" for _ in range(rows)],
    })  # fmt: skip
    table.to_csv(tmp_path / "a.csv", index=False)
    assert run("schema", tmp_path / "a.csv", "--out", tmp_path / "a.schema.toml") == 0
    said = capsys.readouterr().err
    assert all(f"{name}" in said for name in ("encounter", "remark"))
    found = tomllib.loads((tmp_path / "a.schema.toml").read_text())
    assert (found["patient"], found["site"]) == ("pat_no", "treating_hospital")
    kinds = {each["column"]: each["kind"] for each in found["feature"]}
    categories = dict.fromkeys(("drg", "payer", "diagnosis"), "categorical")
    assert kinds == categories | dict.fromkeys(("age", "systolic", "height"), "numeric")


def test_a_proposal_says_what_tells_the_label_what_is_unlabelled_and_what_is_left_out(tmp_path, capsys):
    table = _table(400)
    sick = table["outcome"] == "yes"
    table = table.assign(code=np.where(sick, "I21", "Z00"), days=sick * 30 + np.arange(400) % 25)
    table = table.assign(
        admitted=[f"{day % 28 + 1:02}.{day % 12 + 1:02}.2024" for day in range(400)], case_id=range(400),
        crp=["<0.3" if day % 9 == 0 else "inf" if day == 1 else f"{day / 8}" for day in range(400)],
    )  # fmt: skip
    table.loc[399] = table.loc[398]
    table.loc[:2, "outcome"] = np.nan
    table.loc[3, "outcome"] = "perhaps"
    table.to_csv(tmp_path / "a.csv", index=False)
    assert run("schema", tmp_path / "a.csv") == 0
    out, err = capsys.readouterr()
    assert 'classes = ["no", "perhaps", "yes"]' in out
    assert out.count("# This column alone tells the label") == 2
    assert "column 'code' alone tells the label" in err
    assert "column 'days' alone tells the label" in err
    assert "3 of 400 rows have no label, and are left out" in err
    assert "class 'perhaps' has 1 of 400 records, too few" in err
    assert "only_labelled = true" in out
    assert 'as dates are no numbers (--partition by-time:COLUMN orders records by them): "admitted"' in out
    assert 'as identifiers say nothing about other records: "case_id"' in out
    assert "46 values are no finite numbers (<0.3, inf)" in err
    assert "1 of 400 rows are the same" in err


@pytest.mark.parametrize(("delimiter", "says"), [(";", 'decimal = ","'), (",", 'decimal = "."\nthousands = ","')])
def test_a_comma_before_three_digits_means_what_it_means_beside_such_delimiters(delimiter, says, tmp_path, capsys):
    numbers = [f'"{row % 7 + 1},{row:03}"' for row in range(60)]
    rows = [f"{number}{delimiter}{'yes' if row % 3 else 'no'}" for row, number in enumerate(numbers)]
    (tmp_path / "a.csv").write_text("\n".join([f"dose{delimiter}label", *rows]))
    assert run("schema", tmp_path / "a.csv") == 0
    assert says in capsys.readouterr().out.replace("  # how the file is written", "")
